/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_calls.c - host time of a call (--host-time), and of the choice within it (--choose).
 *
 * Measures Shunt, the real NCCL, and in the same process the launch of an empty kernel, the minimum of any call on a
 * stream. Rounds and medians are as in bench_time.c.
 */

#include "tools/base/clock.h"
#include "tools/bench/bench.h"

/* A stream's queue holds about a thousand entries and a call of NCCL takes several; with more calls the host would wait
 * for the GPU. */
enum { MOST_CALLS = 200 };

static uint32_t calls_of(const bench_rank_t *rank)
{
    return rank->options->calls < MOST_CALLS ? rank->options->calls : MOST_CALLS;
}

static bool wait_for_all(bench_rank_t *rank)
{
    if (!rank->device->wait(rank)) {
        return false;
    }
    bench_barrier(rank);
    return true;
}

static bool round_call(bench_rank_t *rank, const bench_case_t *one, const bench_side_t *side, double *seconds)
{
    uint32_t calls = calls_of(rank);
    if (!wait_for_all(rank)) {
        return false;
    }
    double start = tool_now();
    for (uint32_t i = 0; i < calls; i++) {
        if (!bench_issue(rank, side, one, i)) {
            return false;
        }
    }
    *seconds = bench_slowest(rank, (tool_now() - start) / calls);
    return true;
}

/* Median time of one call and a wait for its stream. */
static bool round_sync(bench_rank_t *rank, const bench_case_t *one, const bench_side_t *side, double *seconds)
{
    double times[MOST_CALLS];
    uint32_t calls = calls_of(rank);
    if (!wait_for_all(rank)) {
        return false;
    }
    for (uint32_t i = 0; i < calls; i++) {
        double start = tool_now();
        if (!bench_issue(rank, side, one, i) || !rank->device->wait(rank)) {
            return false;
        }
        times[i] = tool_now() - start;
    }
    *seconds = bench_slowest(rank, bench_median(times, calls));
    return true;
}

typedef struct rounds {
    double call[BENCH_MAX_ROUNDS];
    double sync[BENCH_MAX_ROUNDS];
} rounds_t;

bool bench_calls(bench_rank_t *rank, const bench_case_t *one, bench_calls_t *calls)
{
    const bench_side_t empty = {.nccl = NULL};
    const bench_side_t *sides[] = {&rank->side[0], &empty, &rank->side[1]};
    const bench_run_t empties = {.side = &empty, .calls = calls_of(rank), .graph = NULL};
    uint32_t count = rank->sides + 1;
    uint32_t rounds = rank->options->rounds;
    rounds_t times[3];
    double each[BENCH_MAX_ROUNDS];
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t side = 0; side < count; side++) {
            if (!round_call(rank, one, sides[side], &times[side].call[i]) ||
                !round_sync(rank, one, sides[side], &times[side].sync[i])) {
                return false;
            }
        }
        if (!bench_round(rank, one, &empties, &each[i])) {
            return false;
        }
    }
    *calls = (bench_calls_t){.call = bench_median(times[0].call, rounds),
                             .launch = bench_median(times[1].call, rounds),
                             .launch_each = bench_median(each, rounds),
                             .sync = bench_median(times[0].sync, rounds)};
    if (rank->sides > 1) {
        calls->nccl_call = bench_median(times[2].call, rounds);
        calls->nccl_sync = bench_median(times[2].sync, rounds);
    }
    return true;
}

/* Time from the handle to the decision, without a call. Sizes vary, as the branch predictor would learn a fixed
 * search. */
bool bench_choice(bench_rank_t *rank, const bench_case_t *one, double *seconds)
{
    enum { CHOICES = 20000 };
    double times[BENCH_MAX_ROUNDS];
    for (uint32_t round = 0; round < rank->options->rounds; round++) {
        const double start = tool_now();
        for (uint32_t i = 0; i < CHOICES; i++) {
            shunt_decision_t decision = {.size = sizeof decision};
            const uint64_t count = (one->count >> (i * 2654435761u >> 28)) + 1;
            if (rank->shunt.shunt_choose(rank->side[0].comm, alg_collective_name(one->collective), count,
                                         (int)one->type->type, &decision) != 0) {
                return bench_fail(rank, "--choose: Shunt forwards this communicator; SHUNT_DEBUG=info says why");
            }
        }
        times[round] = (tool_now() - start) / CHOICES;
    }
    *seconds = bench_slowest(rank, bench_median(times, rank->options->rounds));
    return true;
}
