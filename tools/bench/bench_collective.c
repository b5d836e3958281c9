/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_collective.c - the properties of each collective: counts, buffers in place and out of place, the call, and the
 * factor of its bus bandwidth.
 */
#include "tools/bench/bench.h"

/* Whether a rank's input (below: output) has a block for every rank, rather than one. */
static bool takes_all(alg_collective_t collective)
{
    return collective == ALG_REDUCE_SCATTER || collective == ALG_ALL_TO_ALL || collective == ALG_SCATTER;
}

static bool gives_all(alg_collective_t collective)
{
    return collective == ALG_ALL_GATHER || collective == ALG_ALL_TO_ALL || collective == ALG_GATHER;
}

uint64_t bench_input_count(const bench_rank_t *rank, const bench_case_t *one)
{
    return takes_all(one->collective) ? one->count * rank->nranks : one->count;
}

uint64_t bench_output_count(const bench_rank_t *rank, const bench_case_t *one)
{
    return gives_all(one->collective) ? one->count * rank->nranks : one->count;
}

bool bench_has_place(alg_collective_t collective)
{
    return collective != ALG_ALL_TO_ALL && collective != ALG_SEND_RECV;
}

uint32_t bench_root(const bench_rank_t *rank, const bench_case_t *one, uint32_t call)
{
    return one->rotates ? (one->root + call) % rank->nranks : one->root;
}

void bench_place(bench_rank_t *rank, const bench_case_t *one)
{
    const size_t shift = rank->options->skew ? one->type->bytes : 0;
    const size_t own = (size_t)rank->rank * one->count * one->type->bytes; /* this rank's block of the larger buffer */
    uint8_t *memory = rank->memory[1] + shift;
    if (!one->in_place) {
        rank->input = rank->memory[0] + shift;
        rank->output = memory;
        rank->guard = memory + bench_output_count(rank, one) * one->type->bytes;
        return;
    }
    const bool blocks = alg_collective_blocks(one->collective, 2) > 1;
    rank->input = blocks && !takes_all(one->collective) ? memory + own : memory;
    rank->output = blocks && !gives_all(one->collective) ? memory + own : memory;
    rank->guard = memory + one->count * alg_collective_blocks(one->collective, rank->nranks) * one->type->bytes;
}

bool bench_can_call(const bench_options_t *options, const tool_nccl_t *nccl, alg_collective_t collective)
{
    return (collective != ALG_ALL_TO_ALL || nccl->ncclAlltoAll != NULL || options->messages) &&
           (collective != ALG_GATHER || nccl->ncclGather != NULL) &&
           (collective != ALG_SCATTER || nccl->ncclScatter != NULL);
}

/* NCCL reports the calls' errors at the group's end. */
static ncclResult_t ring(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one)
{
    const tool_nccl_t *nccl = side->nccl;
    const uint32_t n = rank->nranks, next = (rank->rank + 1) % n, last = (rank->rank + n - 1) % n;
    nccl->ncclGroupStart();
    nccl->ncclSend(rank->input, one->count, one->type->type, (int)next, side->comm, rank->stream);
    nccl->ncclRecv(rank->output, one->count, one->type->type, (int)last, side->comm, rank->stream);
    return nccl->ncclGroupEnd();
}

static ncclResult_t all_pairs(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one)
{
    const tool_nccl_t *nccl = side->nccl;
    const size_t bytes = one->count * one->type->bytes;
    nccl->ncclGroupStart();
    for (uint32_t i = 0; i < rank->nranks; i++) {
        nccl->ncclSend(rank->input + i * bytes, one->count, one->type->type, (int)i, side->comm, rank->stream);
        nccl->ncclRecv(rank->output + i * bytes, one->count, one->type->type, (int)i, side->comm, rank->stream);
    }
    return nccl->ncclGroupEnd();
}

/* An all-gather as broadcasts, or a reduce-scatter as reduces. */
static ncclResult_t all_roots(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one)
{
    const tool_nccl_t *nccl = side->nccl;
    const size_t bytes = one->count * one->type->bytes;
    nccl->ncclGroupStart();
    for (uint32_t i = 0; i < rank->nranks; i++) {
        if (one->collective == ALG_ALL_GATHER) {
            nccl->ncclBroadcast(rank->input, rank->output + i * bytes, one->count, one->type->type, (int)i, side->comm,
                                rank->stream);
        } else {
            nccl->ncclReduce(rank->input + i * bytes, rank->output, one->count, one->type->type, side->op, (int)i,
                             side->comm, rank->stream);
        }
    }
    return nccl->ncclGroupEnd();
}

ncclResult_t bench_call(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t call)
{
    const tool_nccl_t *nccl = side->nccl;
    const void *in = rank->input;
    void *out = rank->output;
    const size_t count = one->count;
    const ncclDataType_t type = one->type->type;
    const int root = (int)bench_root(rank, one, call);
    if (rank->options->roots) {
        return all_roots(rank, side, one);
    }
    switch (one->collective) {
    case ALG_ALL_REDUCE:
        return nccl->ncclAllReduce(in, out, count, type, side->op, side->comm, rank->stream);
    case ALG_REDUCE_SCATTER:
        return nccl->ncclReduceScatter(in, out, count, type, side->op, side->comm, rank->stream);
    case ALG_REDUCE:
        return nccl->ncclReduce(in, out, count, type, side->op, root, side->comm, rank->stream);
    case ALG_ALL_GATHER:
        return nccl->ncclAllGather(in, out, count, type, side->comm, rank->stream);
    case ALG_ALL_TO_ALL:
        if (rank->options->messages) {
            return all_pairs(rank, side, one);
        }
        return nccl->ncclAlltoAll(in, out, count, type, side->comm, rank->stream);
    case ALG_BROADCAST:
        return nccl->ncclBroadcast(in, out, count, type, root, side->comm, rank->stream);
    case ALG_GATHER:
        return nccl->ncclGather(in, out, count, type, root, side->comm, rank->stream);
    case ALG_SCATTER:
        return nccl->ncclScatter(in, out, count, type, root, side->comm, rank->stream);
    case ALG_SEND_RECV:
        return ring(rank, side, one);
    case ALG_COLLECTIVE_COUNT:
        break;
    }
    return ncclInternalError;
}

double bench_bus_factor(alg_collective_t collective, uint32_t nranks)
{
    const double part = (nranks - 1.0) / nranks;
    return collective == ALG_ALL_REDUCE ? 2 * part : alg_collective_blocks(collective, 2) > 1 ? part : 1;
}
