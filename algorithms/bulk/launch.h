/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - kernels whose blocks have memory of their own, for two rings of stages,
 * and as many threads as their roles take.
 *
 * An algorithm A of such kernels has, beside what device/launch.h wants:
 *   WHOLE_THREADS       of a block, where buffers are whole
 *   size(collective)    a bulk_size_t
 *   IN_CHUNKS           chunks of a stage of the second ring
 */
#ifndef SHUNT_BULK_LAUNCH_H
#define SHUNT_BULK_LAUNCH_H

#include "algorithms/bulk/walk.h"
#include "algorithms/device/launch.h"

#ifdef __CUDACC__

static constexpr uint32_t bulk_room(bulk_size_t size, uint32_t in_chunks)
{
    return bulk_shared_bytes(size.depth, size.chunk, in_chunks * size.chunk);
}
/* What sm_86, sm_89 and sm_120 give a block: each that is resident has a place somewhere (shim/comm/share.c). Of the
 * 227 KiB of sm_90 and sm_100 two take less. */
enum { BULK_MOST_ROOM = 99 << 10 };
static_assert(bulk_room(BULK_SIZE<false>, 1) <= BULK_MOST_ROOM && bulk_room(BULK_SIZE<true>, 1) <= BULK_MOST_ROOM &&
                  bulk_room(BULK_SUMS, 2) <= BULK_MOST_ROOM,
              "too large a block");

template <class A>
static int bulk_launch(kernel_t<kernel_call_t> kernel, const alg_team_t *team, const kernel_call_t &call, bool whole,
                       void *stream)
{
    const uint32_t threads = whole ? (uint32_t)A::WHOLE_THREADS : (uint32_t)A::MOST_THREADS;
    return launch_grid(kernel, team, call, call.grid_blocks, threads, bulk_room(A::size(call.collective), A::IN_CHUNKS),
                       stream);
}

/* Load it into the current device, and let it have the memory. A cudaError_t. */
static int bulk_preload(kernel_t<kernel_call_t> kernel, bulk_size_t size, uint32_t in_chunks)
{
    const cudaError_t error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   (int)bulk_room(size, in_chunks));
    return error != cudaSuccess ? (int)error : launch_preload(kernel);
}

#else

template <class A>
static int bulk_launch(kernel_t<kernel_call_t> kernel, const alg_team_t *team, const kernel_call_t &call, bool,
                       void *stream)
{
    return launch_collective(kernel, team, call, call, 1, stream);
}

/* There is nothing to load. */
static inline int bulk_preload(kernel_t<kernel_call_t>, bulk_size_t, uint32_t)
{
    return 0;
}

#endif

/* At least some chunks a channel. */
static inline void bulk_shape(uint64_t block_bytes, uint32_t chunk, uint32_t *blocks)
{
    const uint64_t most = block_bytes / (2 * chunk) + 1;
    if (*blocks > BULK_MOST_CHANNELS)
        *blocks = BULK_MOST_CHANNELS;
    if (*blocks > most)
        *blocks = (uint32_t)most;
}

/* Whether the scratch has room for the least rings. */
static inline bool bulk_fits(const alg_map_t *map, uint32_t nranks, uint32_t chunk)
{
    return map->staging_bytes / 2 >= bulk_rings(nranks, BULK_MOST_CHANNELS, BULK_LEAST_SLOTS, chunk);
}

/* Vectors are counted in 32 bits. */
#define BULK_MOST_BYTES ((uint64_t)32 << 30)

#endif
