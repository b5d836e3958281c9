/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_time.c - timed runs, Shunt and the real NCCL in turn.
 *
 * A run is a number of calls: eager ones, or one replay of a graph of them. In a round each side does a warm-up and a
 * run on the same stream, so the ranks are in step when the clock starts. The two sides alternate, so that changes of
 * clock rates and load affect both alike.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tools/bench/bench.h"

static uint32_t calls_of_step(const bench_rank_t *rank, const bench_side_t *side)
{
    return rank->options->grouped > 1 && side->nccl != NULL ? rank->options->grouped : 1;
}

/* Errors of calls in a group are not checked: the group's end reports them, too. */
static bool issue_step(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t step)
{
    const uint32_t calls = calls_of_step(rank, side);
    bool done = calls == 1 || side->nccl->ncclGroupStart() == ncclSuccess;
    for (uint32_t i = 0; done && i < calls; i++) {
        done = bench_issue(rank, side, one, step * calls + i);
    }
    if (calls > 1 && side->nccl->ncclGroupEnd() != ncclSuccess) {
        return bench_fail(rank, "ncclGroupEnd: %.500s", side->nccl->ncclGetLastError(side->comm));
    }
    return done;
}

static bool issue_many(bench_rank_t *rank, const bench_side_t *side, const bench_case_t *one, uint32_t steps)
{
    const bool waits = rank->options->blocking && !rank->options->graph;
    for (uint32_t i = 0; i < steps; i++) {
        if (!issue_step(rank, side, one, i) || (waits && !rank->device->wait(rank))) {
            return false;
        }
    }
    return true;
}

bool bench_run_open(bench_rank_t *rank, const bench_case_t *one, const bench_side_t *side, uint32_t calls,
                    bench_run_t *run)
{
    *run = (bench_run_t){.side = side, .calls = calls, .graph = NULL};
    if (!rank->options->graph) {
        return true;
    }
    return rank->device->capture_begin(rank) && issue_many(rank, side, one, calls) &&
           rank->device->capture_end(rank, &run->graph);
}

bool bench_run_start(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run)
{
    if (run->graph != NULL) {
        return rank->device->replay(rank, run->graph);
    }
    return issue_many(rank, run->side, one, run->calls);
}

void bench_run_close(bench_rank_t *rank, bench_run_t *run)
{
    if (run->graph != NULL) {
        rank->device->graph_free(rank, run->graph);
        run->graph = NULL;
    }
}

static bool warm_up(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run)
{
    uint32_t calls = rank->options->warmup;
    if (run->graph == NULL) {
        return issue_many(rank, run->side, one, calls);
    }
    for (uint32_t done = 0; done < calls; done += run->calls) {
        if (!rank->device->replay(rank, run->graph)) {
            return false;
        }
    }
    return true;
}

double bench_slowest(bench_rank_t *rank, double own)
{
    rank->shared->seconds[rank->rank] = own;
    bench_barrier(rank);
    double most = 0;
    for (uint32_t i = 0; i < rank->nranks; i++) {
        double time = rank->shared->seconds[i];
        most = time > most ? time : most;
    }
    return most;
}

bool bench_round(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, double *seconds)
{
    const bench_device_t *device = rank->device;
    double own = 0;
    bench_barrier(rank);
    if (!warm_up(rank, one, run) || !device->mark(rank, 0) || !bench_run_start(rank, one, run) ||
        !device->mark(rank, 1) || !device->elapsed(rank, &own)) {
        return false;
    }
    *seconds = bench_slowest(rank, own / run->calls / calls_of_step(rank, run->side));
    return true;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, uint32_t count)
{
    qsort(values, count, sizeof values[0], by_size);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static bool time_rounds(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, double *seconds)
{
    double times[2][BENCH_MAX_ROUNDS];
    uint32_t rounds = rank->options->rounds;
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t turn = 0; turn < rank->sides; turn++) {
            uint32_t side = (turn + i) % rank->sides; /* each side is first in turn */
            if (!bench_round(rank, one, &run[side], &times[side][i])) {
                return false;
            }
            bench_tell_part(rank, 0, i * rank->sides + turn + 1, rounds * rank->sides);
        }
    }
    for (uint32_t side = 0; side < rank->sides; side++) {
        seconds[side] = bench_median(times[side], rounds);
    }
    return true;
}

/* Record the decision on Shunt's last call, eager or captured. */
static void note_algorithm(const bench_rank_t *rank, bench_row_t *row)
{
    shunt_decision_t decision = {.size = sizeof decision};
    const char *name = "?";
    if (rank->shunt.shunt_last_decision(&decision) == 0) {
        name = decision.taken != 0 ? decision.algorithm : "nccl";
    }
    snprintf(row->algorithm, sizeof row->algorithm, "%s", name);
}

bool bench_time(bench_rank_t *rank, const bench_case_t *one, bench_row_t *row, uint64_t *wrong)
{
    bench_run_t run[2] = {{0}, {0}};
    double seconds[2] = {0, 0};
    bool done = true;
    for (uint32_t side = 0; done && side < rank->sides; side++) {
        done = bench_run_open(rank, one, &rank->side[side], rank->options->calls, &run[side]);
    }
    done = done && time_rounds(rank, one, run, seconds);
    /* In place, each call reduces the previous result: there is no expected output. */
    if (done && rank->options->check && !one->in_place) {
        done = bench_check_run(rank, one, &run[0], wrong);
    }
    note_algorithm(rank, row);
    for (uint32_t side = 0; side < rank->sides; side++) {
        bench_run_close(rank, &run[side]);
    }
    row->seconds = seconds[0];
    row->nccl_seconds = seconds[1];
    return done;
}
