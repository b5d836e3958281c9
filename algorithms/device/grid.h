/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h - blocks and threads of a launch. */
#ifndef SHUNT_GRID_H
#define SHUNT_GRID_H

#include "algorithms/device/reduce.h"

/* Kernels of more than EXACT_RANKS ranks need more registers than 1024 threads leave. */
static const uint32_t GRID_MOST_THREADS = 1024, GRID_USUAL_THREADS = 512;

template <class A> LANE_HOST_FN constexpr uint32_t grid_most_threads(uint32_t nranks)
{
    return nranks <= EXACT_RANKS || A::MOST_THREADS < GRID_MOST_THREADS ? (uint32_t)A::MOST_THREADS
                                                                        : GRID_USUAL_THREADS;
}

/* Blocks a multiprocessor for __launch_bounds__. The compiler may otherwise spill registers so that two fit. */
template <class A, int N> constexpr int BLOCKS_A_MULTIPROCESSOR = 1;

template <class A> static inline uint32_t grid_block_room(uint32_t nranks, uint32_t threads)
{
    const uint32_t blocks = nranks == 2 ? BLOCKS_A_MULTIPROCESSOR<A, 2> : 1;
    const uint32_t lanes = grid_most_threads<A>(nranks) * blocks;
    uint32_t room = 1;
    while (room < ALG_ROOM && room * lanes < threads * ALG_ROOM)
        room *= 2;
    return room;
}

/* Gives each lane a vector. A block's warps delay each other, so blocks are many, with as few threads as suffice. */
static inline void grid_shape(uint64_t vectors, uint32_t most_threads, uint32_t *blocks, uint32_t *threads)
{
    uint32_t wanted = 64;
    if (*threads > most_threads)
        *threads = most_threads;
    while (wanted < *threads && (uint64_t)wanted * *blocks < vectors)
        wanted *= 2;
    if (wanted < *threads)
        *threads = wanted;
    const uint64_t filled = (vectors + *threads - 1) / *threads;
    if (filled < *blocks)
        *blocks = filled > 0 ? (uint32_t)filled : 1;
}

/* Fewer than call->blocks if this rank's share of its GPU is smaller. Ranks may differ. */
static inline uint32_t grid_blocks(const alg_call_t *call)
{
    const uint32_t wanted = call->blocks < LANE_MOST_BLOCKS ? call->blocks : LANE_MOST_BLOCKS;
    return call->most_blocks > 0 && call->most_blocks < wanted ? call->most_blocks : wanted;
}

#endif
