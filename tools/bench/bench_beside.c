/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_beside.c - calls beside matrix products (--beside): the time until both have ended.
 *
 * A collective that is faster alone may be slower here: it takes multiprocessors from the products, and each of its
 * kernels first waits until a product's block ends. Shunt and NCCL make the same number of calls, which alone take
 * three quarters of the products' time.
 */
#include <math.h>

#include "tools/bench/bench.h"

enum { ROUNDS = 5, MOST_CALLS = 300, LEAST_CALLS = 2 };
#define PART 0.75

uint32_t bench_beside_calls(double products, double seconds)
{
    const double calls = seconds > 0 ? PART * products / seconds : MOST_CALLS;
    return (uint32_t)fmin(fmax(calls, LEAST_CALLS), MOST_CALLS);
}

bool bench_beside_round(bench_rank_t *rank, const bench_case_t *one, const bench_run_t *run, double *seconds)
{
    const bench_device_t *device = rank->device;
    double own = 0;
    bench_barrier(rank);
    if (!device->mark(rank, 0) || !device->load_start(rank) || (run->calls > 0 && !bench_run_start(rank, one, run)) ||
        !device->load_join(rank) || !device->mark(rank, 1) || !device->elapsed(rank, &own)) {
        return false;
    }
    *seconds = bench_slowest(rank, own);
    return true;
}

bool bench_beside_open(bench_rank_t *rank)
{
    const bench_run_t nothing = {.calls = 0};
    double times[ROUNDS];
    if (!rank->device->load_open(rank) || !bench_beside_round(rank, NULL, &nothing, &times[0])) {
        return false;
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (!bench_beside_round(rank, NULL, &nothing, &times[i])) {
            return false;
        }
    }
    rank->products = bench_median(times, ROUNDS);
    return true;
}

static bool rounds(bench_rank_t *rank, const bench_case_t *one, const bench_run_t run[2], bench_beside_t *beside)
{
    double times[2][ROUNDS], unused;
    for (uint32_t side = 0; side < rank->sides; side++) {
        if (!bench_beside_round(rank, one, &run[side], &unused)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        for (uint32_t side = 0; side < rank->sides; side++) {
            if (!bench_beside_round(rank, one, &run[side], &times[side][i])) {
                return false;
            }
        }
    }
    beside->total = bench_median(times[0], ROUNDS);
    beside->nccl_total = rank->sides == 2 ? bench_median(times[1], ROUNDS) : 0;
    return true;
}

bool bench_beside(bench_rank_t *rank, const bench_case_t *one, const bench_row_t *row, bench_beside_t *beside)
{
    bench_run_t run[2] = {{0}, {0}};
    *beside = (bench_beside_t){.products = rank->products,
                               .calls = bench_beside_calls(rank->products, fmax(row->seconds, row->nccl_seconds))};
    bool done = true;
    for (uint32_t side = 0; done && side < rank->sides; side++) {
        done = bench_run_open(rank, one, &rank->side[side], beside->calls, &run[side]);
    }
    done = done && rounds(rank, one, run, beside);
    for (uint32_t side = 0; side < rank->sides; side++) {
        bench_run_close(rank, &run[side]);
    }
    return done;
}
