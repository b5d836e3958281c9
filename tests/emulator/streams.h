/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - the interface between the streams of emulated GPUs (streams.cc) and the kernels' emulator.
 */
#ifndef SHUNT_EMULATOR_STREAMS_H
#define SHUNT_EMULATOR_STREAMS_H

#include <functional>
#include <stddef.h>
#include <stdint.h>

typedef struct launch {
    uint32_t blocks, threads;
    size_t shared_bytes;
    std::function<void()> kernel;
} launch_t;

typedef struct grid grid_t;

void emulator_seed(uint64_t seed);
/* Begins a kernel. before: one whose end it may have to wait for; NULL: there is none. */
grid_t *emulator_begin(const launch_t &launch, grid_t *before);
/* Whether all blocks have triggered the dependent launch. */
bool emulator_lets_in(const grid_t *g);
/* Whether the kernel has ended and its stores are visible. If so, the grid is freed. */
bool emulator_over(grid_t *g);
/* Run fibers for this many turns. False: none can run. */
bool emulator_run(uint32_t turns);

#endif
