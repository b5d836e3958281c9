/* SPDX-License-Identifier: Apache-2.0 */
/* group_join.c - sorts a group's calls into launch order, and merges each communicator's messages into one call. */
#include <stdlib.h>

#include "shim/base/last_error.h"
#include "shim/call/group_state.h"
#include "shim/comm/share.h"

static int compare_calls(const void *first, const void *second)
{
    const shim_queued_t *a = first, *b = second;
    if (shim_group_is_message(a) != shim_group_is_message(b))
        return shim_group_is_message(a) ? -1 : 1;
    for (int i = 0; i < 2; i++)
        if (a->comm->key.word[i] != b->comm->key.word[i])
            return a->comm->key.word[i] < b->comm->key.word[i] ? -1 : 1;
    if (a->comm->nonce != b->comm->nonce)
        return a->comm->nonce < b->comm->nonce ? -1 : 1;
    if (shim_group_is_message(a) && a->comm != b->comm)
        return a->comm < b->comm ? -1 : 1;
    if (a->round != b->round)
        return a->round < b->round ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static void sort_calls(shim_group_t *g)
{
    bool sorted = true;
    for (uint32_t i = 0; i < g->call_count; i++) {
        shim_queued_t *queued = &g->calls[i];
        shim_stream_use_t *lead = shim_group_lead(g, queued->comm); /* NULL on the CPU device */
        queued->round = lead != NULL && !shim_group_is_message(queued) ? lead->calls++ : 0;
        sorted = sorted && (i == 0 || compare_calls(queued - 1, queued) < 0);
    }
    if (!sorted)
        qsort(g->calls, g->call_count, sizeof(*g->calls), compare_calls);
}

ncclResult_t shim_group_self_fault(const char *function)
{
    shim_set_last_error(
        "%s: a message of a rank to itself needs both a send and a receive of the same size in one group", function);
    return ncclInvalidUsage;
}

static uint32_t next_self(const alg_call_t *call, uint32_t rank, bool send, uint32_t at)
{
    while (at < call->message_count && (call->messages[at].peer != rank || call->messages[at].send != send))
        at++;
    return at;
}

static bool selves_match(const alg_call_t *call, uint32_t rank)
{
    const uint32_t count = call->message_count;
    uint32_t send = next_self(call, rank, true, 0), recv = next_self(call, rank, false, 0);
    while (send < count && recv < count && call->messages[send].bytes == call->messages[recv].bytes) {
        send = next_self(call, rank, true, send + 1);
        recv = next_self(call, rank, false, recv + 1);
    }
    return send == count && recv == count;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Gives `call` an algorithm and grid for the messages of both calls. */
static void join_grids(shim_call_t *call, const shim_call_t *other)
{
    if (other->algorithm == call->algorithm) {
        call->alg.blocks = most(call->alg.blocks, other->alg.blocks);
        call->alg.threads = most(call->alg.threads, other->alg.threads);
    } else if (other->algorithm->bulk_messages) { /* its algorithm also serves the messages of `call` */
        call->algorithm = other->algorithm;
        call->alg.blocks = other->alg.blocks;
        call->alg.aligned_blocks = other->alg.aligned_blocks;
        call->alg.threads = other->alg.threads;
    }
}

static uint32_t join_run(shim_queued_t *run, uint32_t calls, alg_message_t *list)
{
    alg_call_t *call = &run->call.alg;
    uint32_t count = 0;
    for (; count < calls && shim_group_is_message(&run[count]) && run[count].comm == run->comm; count++) {
        list[count] = run[count].call.message;
        join_grids(&run->call, &run[count].call);
        if (count > 0)
            shim_comm_release(run[count].comm);
    }
    call->messages = list;
    call->message_count = count;
    return count;
}

static void note_room(const shim_group_t *g, const shim_queued_t *queued)
{
    shim_stream_use_t *lead = shim_group_lead(g, queued->comm);
    if (lead == NULL)
        return;
    shim_track_t *track = &lead->track[shim_group_is_message(queued) ? SHIM_USE_MESSAGE : SHIM_USE_COLLECTIVE];
    track->room = most(track->room, shim_share_room(queued->call.algorithm, &queued->call.alg, queued->comm->nranks));
}

ncclResult_t shim_group_join(shim_group_t *g)
{
    uint32_t kept = 0, run = 0;
    ncclResult_t result = shim_group_join_parts(g);
    const uint32_t count = g->call_count;
    if (result != ncclSuccess)
        return result;
    while (g->message_room < count)
        if (!shim_group_grow((void **)&g->messages, g->message_room, &g->message_room, sizeof(alg_message_t)))
            return shim_group_out_of_memory(g->calls[0].comm);
    sort_calls(g);
    for (uint32_t i = 0; i < count; i += run) {
        shim_queued_t *queued = &g->calls[i];
        run = shim_group_is_message(queued) ? join_run(queued, count - i, &g->messages[i]) : 1;
        if (shim_group_is_message(queued) && !selves_match(&queued->call.alg, queued->comm->rank))
            result = shim_group_self_fault("ncclGroupEnd");
        note_room(g, queued);
        if (kept != i)
            g->calls[kept] = *queued;
        kept++;
    }
    g->call_count = kept;
    return result;
}
