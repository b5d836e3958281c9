/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - what the streams of emulated GPUs (streams.cc) ask of the kernels' emulator.
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
/* All blocks have let a successor in. */
bool emulator_lets_in(const grid_t *g);
/* The kernel has ended, and its stores are visible. If true, the grid is gone. */
bool emulator_over(grid_t *g);
/* Runs fibers for so many turns. False: none can run. */
bool emulator_run(uint32_t turns);

#endif
