/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_draw.h - random calls for tests of kernels on GPUs and on emulated GPUs (tests/emulator/), which are slow and
 * have few types.
 */
#ifndef TEST_GPU_DRAW_H
#define TEST_GPU_DRAW_H

#include <nccl.h>

#include "algorithms/algorithm.h"
#include "tests/support/data.h"

/* GPU_BLOCKS: most blocks of a grid. GPU_DOUBLED: blocks have 32 threads, doubled up to so often. GPU_BYTES: of the
 * longest message. GPU_SCRATCH: a scratch whose rings such messages fill. GPU_REPLAYS: of a graph. GPU_SECONDS: limit
 * of a program; 0: none. */
#ifdef EMULATED
enum {
    GPU_BLOCKS = 4,
    GPU_DOUBLED = 2,
    GPU_BYTES = 48 << 10,
    GPU_SCRATCH = 1 << 20,
    GPU_REPLAYS = 16,
    GPU_SECONDS = 0
};
#else
enum {
    GPU_BLOCKS = 64,
    GPU_DOUBLED = 4,
    GPU_BYTES = 4 << 20,
    GPU_SCRATCH = 80 << 20,
    GPU_REPLAYS = 50,
    GPU_SECONDS = 200
};
#endif

static inline ncclDataType_t gpu_draw_type(uint64_t *state)
{
#ifdef EMULATED
    static const ncclDataType_t types[] = {ncclInt8, ncclUint8, ncclFloat32, ncclBfloat16};
    return types[data_below(state, sizeof types / sizeof types[0])];
#else
    return (ncclDataType_t)data_below(state, ALG_TYPE_COUNT);
#endif
}

#endif
