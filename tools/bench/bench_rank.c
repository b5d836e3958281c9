/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_rank.c - one rank of the benchmark, a process of its own.
 *
 * It has two communicators, Shunt's and the real NCCL's, runs the cases in the same order as every rank, and owns
 * buffers for the largest case.
 */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"

bool bench_fail(bench_rank_t *rank, const char *format, ...)
{
    char *error = rank->shared->error[rank->rank];
    if (error[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error, BENCH_ERROR_BYTES, format, arguments);
        va_end(arguments);
    }
    return false;
}

static bool nccl_ok(bench_rank_t *rank, const tool_nccl_t *nccl, ncclComm_t comm, ncclResult_t result, const char *call)
{
    if (result == ncclSuccess) {
        return true;
    }
    return bench_fail(rank, "%s: %s (%.500s)", call, nccl->ncclGetErrorString(result), nccl->ncclGetLastError(comm));
}

/* No other rank writes this counter. */
static void pulse(bench_rank_t *rank)
{
    atomic_ullong *steps = &rank->shared->pulse[rank->rank].steps;
    atomic_store_explicit(steps, atomic_load_explicit(steps, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* Yields: with more ranks than cores, spinning would keep the awaited rank from running. */
void bench_barrier(bench_rank_t *rank)
{
    bench_shared_t *shared = rank->shared;
    if (rank->options->launch.on) {
        pulse(rank);
        bench_launch_barrier(rank);
        return;
    }
    uint32_t phase = atomic_load(&shared->phase);
    if (atomic_fetch_add(&shared->waiting, 1) + 1 == rank->nranks) {
        atomic_store(&shared->waiting, 0);
        pulse(rank);
        atomic_fetch_add(&shared->phase, 1);
        return;
    }
    for (uint32_t tries = 0; atomic_load(&shared->phase) == phase; tries++) {
        if (tries > 10000) {
            sched_yield();
        }
    }
}

void bench_tell_part(bench_rank_t *rank, uint64_t bytes, uint32_t done, uint32_t all)
{
    if (rank->rank == 0) {
        atomic_store(&rank->shared->case_part, (unsigned)((uint64_t)done * 1000 / all));
        if (bytes != 0) {
            atomic_store(&rank->shared->case_bytes, bytes);
        }
    }
}

bool bench_issue(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t call)
{
    pulse(rank);
    if (side->nccl == NULL) {
        return rank->device->launch_empty(rank);
    }
    return nccl_ok(rank, side->nccl, side->comm, bench_call(rank, side, one, call),
                   alg_collective_name(one->collective));
}

void bench_begin(bench_rank_t *rank, const bench_case_t *one)
{
    rank->sides = rank->comms == 2 && bench_can_call(rank->options, &rank->nccl[1], one->collective) ? 2 : 1;
    bench_place(rank, one);
}

static bool op_open(bench_rank_t *rank, bench_side_t *side, const bench_case_t *one)
{
    side->op = one->op->op;
    if (!one->op->premul) {
        return true;
    }
    uint64_t scalar = bench_encode(one->type, bench_scalar(one->type, rank->rank));
    return nccl_ok(
        rank, side->nccl, side->comm,
        side->nccl->ncclRedOpCreatePreMulSum(&side->op, &scalar, one->type->type, ncclScalarHostImmediate, side->comm),
        "ncclRedOpCreatePreMulSum");
}

static bool op_close(bench_rank_t *rank, bench_side_t *side, const bench_case_t *one)
{
    return !one->op->premul || nccl_ok(rank, side->nccl, side->comm, side->nccl->ncclRedOpDestroy(side->op, side->comm),
                                       "ncclRedOpDestroy");
}

static uint64_t sum_wrong(bench_rank_t *rank, uint64_t own)
{
    rank->shared->wrong[rank->rank] = own;
    bench_barrier(rank);
    uint64_t all = 0;
    for (uint32_t i = 0; i < rank->nranks; i++) {
        all += rank->shared->wrong[i];
    }
    return all;
}

/* Make the first call before any capture, since NCCL connects and loads kernels lazily. */
static bool first_calls(bench_rank_t *rank, const bench_case_t *one)
{
    for (uint32_t side = 0; side < rank->sides; side++) {
        if (!bench_issue(rank, &rank->side[side], one, 0) || !rank->device->wait(rank)) {
            return false;
        }
    }
    return true;
}

static bool measure(bench_rank_t *rank, const bench_case_t *one, bench_row_t *row)
{
    uint64_t wrong = 0;
    if (!first_calls(rank, one) || (rank->options->check && !bench_check(rank, one, &wrong)) ||
        !bench_time(rank, one, row, &wrong) || (rank->options->host_time && !bench_calls(rank, one, &row->calls)) ||
        (rank->options->choose && !bench_choice(rank, one, &row->choice)) ||
        (rank->options->beside && !bench_beside(rank, one, row, &row->beside))) {
        return false;
    }
    row->wrong = rank->options->check ? sum_wrong(rank, wrong) : UINT64_MAX;
    return true;
}

static bool run_case(bench_rank_t *rank, const bench_case_t *one, const bench_kind_t *kind, int rows)
{
    bench_row_t row;
    memset(&row, 0, sizeof row);
    row.count = one->count;
    row.bytes = one->count * alg_collective_blocks(one->collective, rank->nranks) * one->type->bytes;
    row.collective = kind->collective;
    row.type = kind->type;
    row.op = kind->op;
    row.in_place = one->in_place;
    bench_tell_part(rank, row.bytes, 0, 1);
    bench_begin(rank, one);
    bool done = true;
    for (uint32_t side = 0; done && side < rank->sides; side++) {
        done = op_open(rank, &rank->side[side], one);
    }
    done = done && measure(rank, one, &row);
    for (uint32_t side = 0; done && side < rank->sides; side++) {
        done = op_close(rank, &rank->side[side], one);
    }
    bench_tell_part(rank, 0, 0, 1); /* progress: the finished row follows, so its part is 0 again */
    if (done && rank->rank == 0 && write(rows, &row, sizeof row) != (ssize_t)sizeof row) {
        return bench_fail(rank, "the parent is gone");
    }
    return done;
}

static bool run_places(bench_rank_t *rank, const bench_case_t *one, const bench_kind_t *kind, int rows)
{
    for (int place = 0; place < 2; place++) {
        bench_case_t placed = *one;
        placed.in_place = place == 1;
        if (bench_measures_place(rank->options, one->collective, placed.in_place) &&
            !run_case(rank, &placed, kind, rows)) {
            return false;
        }
    }
    return true;
}

static bool run_cases(bench_rank_t *rank, int rows)
{
    const bench_options_t *options = rank->options;
    const bool rotates = options->root == BENCH_ROTATE;
    uint64_t seed = 0;
    bench_kind_t kind;
    for (uint32_t at = 0; bench_next_kind(options, &rank->shared->machine, &at, &kind);) {
        for (uint64_t bytes = options->from_bytes; bytes <= options->to_bytes;
             bytes = bench_next_size(options, bytes)) {
            seed++;
            const bench_case_t one = {.collective = kind.collective,
                                      .root = rotates ? (uint32_t)((seed - 1) % rank->nranks) : options->root,
                                      .rotates = rotates,
                                      .type = &bench_types[kind.type],
                                      .op = &bench_ops[kind.op],
                                      .count = bench_count(options, &kind, bytes),
                                      .seed = seed};
            if (one.count != 0 && !run_places(rank, &one, &kind, rows)) {
                return false;
            }
        }
    }
    return true;
}

static bool open_libraries(bench_rank_t *rank)
{
    char error[TOOL_ERROR_BYTES];
    if (!tool_open_shunt(&rank->shunt, &rank->nccl[0], error)) {
        return bench_fail(rank, "%s", error);
    }
    rank->comms = 1;
    if (rank->options->nccl && rank->shared->machine.nccl_path[0] != '\0') {
        if (!tool_open_nccl(rank->shared->machine.nccl_path, &rank->nccl[1], error)) {
            return bench_fail(rank, "%s", error);
        }
        rank->comms = 2;
    }
    return true;
}

static bool open_comm(bench_rank_t *rank, uint32_t index)
{
    bench_side_t *side = &rank->side[index];
    ncclUniqueId *id = &rank->shared->id[index];
    side->nccl = &rank->nccl[index];
    if (rank->rank == 0 && !nccl_ok(rank, side->nccl, NULL, side->nccl->ncclGetUniqueId(id), "ncclGetUniqueId")) {
        return false;
    }
    bench_barrier(rank);
    return nccl_ok(rank, side->nccl, NULL,
                   side->nccl->ncclCommInitRank(&side->comm, (int)rank->nranks, *id, (int)rank->rank),
                   "ncclCommInitRank");
}

bool bench_rank_open(bench_rank_t *rank, const bench_options_t *options, bench_shared_t *shared, uint32_t number)
{
    rank->options = options;
    rank->shared = shared;
    rank->rank = number;
    rank->nranks = options->ranks;
    rank->local = options->launch.on ? options->launch.local : number;
    rank->device = shared->machine.cpu ? &bench_device_cpu : bench_device_cuda;
    if ((options->launch.on && !bench_launch_open(rank)) || !open_libraries(rank) || !rank->device->open(rank)) {
        return false;
    }
    for (uint32_t side = 0; side < rank->comms; side++) {
        if (!open_comm(rank, side)) {
            return false;
        }
    }
    if (options->beside && !bench_beside_open(rank)) {
        return false;
    }
    /* Without a check nothing fills the buffers; clear them rather than reduce uninitialised memory. */
    size_t bytes = (size_t)rank->options->to_bytes + BENCH_GUARD_BYTES;
    for (int i = rank->options->in_place ? 1 : 0; i < 2; i++) {
        if (!rank->device->allocate(rank, bytes, &rank->memory[i]) ||
            !rank->device->fill(rank, rank->memory[i], 0, bytes)) {
            return false;
        }
    }
    return true;
}

bool bench_rank_close(bench_rank_t *rank)
{
    bool done = rank->device->wait(rank);
    for (uint32_t i = rank->comms; done && i-- > 0;) {
        bench_side_t *side = &rank->side[i];
        done = nccl_ok(rank, side->nccl, NULL, side->nccl->ncclCommDestroy(side->comm), "ncclCommDestroy");
    }
    rank->device->release(rank, rank->memory[0]);
    rank->device->release(rank, rank->memory[1]);
    rank->device->close(rank);
    return done;
}

bool bench_rank_run(const bench_options_t *options, bench_shared_t *shared, uint32_t number, int rows)
{
    bench_rank_t rank;
    memset(&rank, 0, sizeof rank);
    return bench_rank_open(&rank, options, shared, number) && run_cases(&rank, rows) && bench_rank_close(&rank);
}
