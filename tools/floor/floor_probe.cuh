/* SPDX-License-Identifier: Apache-2.0 */
/* floor_probe.cuh - what the floor's probes share: medians, times between events, a flag's trips between two GPUs. */
#ifndef SHUNT_TOOL_FLOOR_PROBE_CUH
#define SHUNT_TOOL_FLOOR_PROBE_CUH

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    ROUNDS = 5,
    BOUNCES = 10000, /* round trips of a flag */
    SPINS = 1 << 22, /* polls, for some seconds, before the flag counts as lost */
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
    qsort(values, ROUNDS, sizeof values[0], by_size);
    return values[ROUNDS / 2];
}

static cudaError_t seconds_between(const cudaEvent_t mark[2], double *seconds)
{
    float milliseconds = 0;
    cudaError_t status = cudaEventSynchronize(mark[1]);
    if (status == cudaSuccess)
        status = cudaEventElapsedTime(&milliseconds, mark[0], mark[1]);
    *seconds = milliseconds * 1e-3;
    return status;
}

/* Two GPUs exchange a count. Volatile accesses are not cached in registers, split or reordered. */
static __global__ void bounce(volatile uint64_t *own, volatile uint64_t *peer, bool first, uint64_t *done)
{
    uint64_t round = 0;
    for (; round < BOUNCES; round++) {
        if (first)
            *peer = round + 1;
        uint32_t spins = 0;
        while (*own != round + 1 && spins < SPINS)
            spins++;
        if (spins == SPINS)
            break;
        if (!first)
            *peer = round + 1;
    }
    *done = round;
}

#endif
