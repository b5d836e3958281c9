/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_parts.c - merges collectives of a group into parts of one call: broadcasts and reduces with rising roots, and
 * short calls without a root. Transfers on the link do not change, because another rank may make the calls one by one.
 */
#include "shim/call/group_state.h"

static bool can_be_part(const shim_queued_t *queued)
{
    const alg_algorithm_t *algorithm = queued->call.algorithm;
    const alg_call_t *call = &queued->call.alg;
    return algorithm->part_bytes != NULL && call->count * alg_type_bytes(call->type) <=
                                                algorithm->part_bytes(alg_scratch_team(queued->comm->scratch), call);
}

static bool are_alike(const alg_call_t *a, const alg_call_t *b)
{
    if (a->collective != b->collective || a->type != b->type)
        return false;
    return !alg_collective_reduces(a->collective) ||
           (a->op == b->op && a->scalar_pointer == b->scalar_pointer && a->scalar_bits == b->scalar_bits);
}

/* A kernel uses either the short halves of the scratch or the long ones. */
static bool same_halves(const shim_queued_t *a, const shim_queued_t *b)
{
    const alg_map_t *map = alg_scratch_map(a->comm->scratch);
    const uint32_t nranks = a->comm->nranks;
    return alg_piece_of(map, a->call.algorithm, alg_call_bytes(&a->call.alg, nranks)) ==
           alg_piece_of(map, b->call.algorithm, alg_call_bytes(&b->call.alg, nranks));
}

static bool fits_behind(const shim_queued_t *before, const shim_queued_t *queued)
{
    const alg_call_t *call = &before->call.alg;
    const uint32_t last = call->part_count > 0 ? call->parts[call->part_count - 1].root : call->root;
    const bool room =
        alg_collective_rooted(call->collective) ? queued->call.alg.root > last : call->part_count < ALG_MOST_PARTS;
    return before->call.algorithm == queued->call.algorithm && are_alike(call, &queued->call.alg) && room &&
           can_be_part(before) && can_be_part(queued) && same_halves(before, queued);
}

static alg_part_t part_of(const alg_call_t *call)
{
    return (alg_part_t){.root = call->root, .input = call->input, .output = call->output, .count = call->count};
}

/* The kernel waits for all ranks to make its last call, so it reports that call's id. */
static void add_part(shim_group_t *g, shim_comm_t *comm, alg_call_t *call, const alg_call_t *other)
{
    if (call->part_count == 0) {
        alg_part_t *parts = &g->parts[ALG_MOST_PARTS * g->part_count++];
        parts[call->part_count++] = part_of(call);
        call->parts = parts;
    }
    g->parts[call->parts - g->parts + call->part_count++] = part_of(other);
    call->id = other->id;
    shim_record_listed(comm->record, other->id);
}

static void shape(const shim_queued_t *queued, alg_call_t *call)
{
    const shim_comm_t *comm = queued->comm;
    const uint32_t most = comm->plan->settings.max_blocks;
    const bool rooted = alg_collective_rooted(call->collective);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < call->part_count; i++)
        rows += (call->parts[i].count * alg_type_bytes(call->type) - 1) / ALG_ROW_BYTES + 1;
    const uint64_t bytes = rows * ALG_ROW_BYTES * alg_collective_blocks(call->collective, comm->nranks);
    sel_choice_t grid = sel_usual_grid(&comm->plan->topology, call->collective, bytes);
    queued->call.algorithm->shape(bytes, comm->nranks, &grid.blocks, &grid.threads);
    call->blocks = grid.blocks > call->part_count || !rooted ? grid.blocks : call->part_count;
    call->blocks = most > 0 && call->blocks > most ? most : call->blocks;
    call->aligned_blocks = call->blocks;
    call->threads = grid.threads;
}

static shim_queued_t *last_of(const shim_group_t *g, uint32_t count, const shim_comm_t *comm)
{
    while (count > 0 && (g->calls[count - 1].comm != comm || shim_group_is_message(&g->calls[count - 1])))
        count--;
    return count > 0 ? &g->calls[count - 1] : NULL;
}

ncclResult_t shim_group_join_parts(shim_group_t *g)
{
    uint32_t kept = 0, may = 0;
    for (uint32_t i = 0; i < g->call_count; i++)
        may += g->calls[i].call.algorithm->part_bytes != NULL;
    if (may < 2)
        return ncclSuccess;
    while (g->part_room < ALG_MOST_PARTS / 2 * may) /* a call with parts joins two or more */
        if (!shim_group_grow((void **)&g->parts, g->part_room, &g->part_room, sizeof(alg_part_t)))
            return shim_group_out_of_memory(g->calls[0].comm);
    for (uint32_t i = 0; i < g->call_count; i++) {
        const shim_queued_t *queued = &g->calls[i];
        shim_queued_t *before = queued->call.algorithm->part_bytes ? last_of(g, kept, queued->comm) : NULL;
        if (before != NULL && fits_behind(before, queued)) {
            add_part(g, queued->comm, &before->call.alg, &queued->call.alg);
            shim_comm_release(queued->comm);
        } else {
            if (kept != i)
                g->calls[kept] = *queued;
            kept++;
        }
    }
    g->call_count = kept;
    for (uint32_t i = 0; i < kept; i++)
        if (g->calls[i].call.alg.part_count > 0)
            shape(&g->calls[i], &g->calls[i].call.alg);
    return ncclSuccess;
}
