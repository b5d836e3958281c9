/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor_bounce.cuh - a word on its way from GPU to GPU, wherever it lies (floor.h).
 */
#ifndef SHUNT_TOOL_FLOOR_BOUNCE_CUH
#define SHUNT_TOOL_FLOOR_BOUNCE_CUH

#include <stdint.h>

enum {
    BOUNCES = 10000, /* round trips of a flag */
    SPINS = 1 << 22, /* some seconds; then the flag is lost */
};

/* A count goes to and fro between two GPUs. Volatile accesses go to memory, each whole, in program order. */
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
