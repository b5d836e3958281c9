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

/* The most that the current device gives a block (227 KiB on sm_90 and sm_100, 163 on sm_80, 99 on sm_86, sm_89 and
 * sm_120). A cudaError_t. */
static int bulk_most_room(int *bytes)
{
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return (int)error;
}

/* A block takes fewer stages where there is no room for all (bulk_make). */
template <class A>
static int bulk_launch(kernel_t<kernel_call_t> kernel, const alg_team_t *team, const kernel_call_t &call, bool whole,
                       void *stream)
{
    const bulk_size_t size = A::size(call.collective);
    const uint32_t threads = whole ? (uint32_t)A::WHOLE_THREADS : (uint32_t)A::MOST_THREADS;
    const uint32_t all = bulk_shared_bytes(size.depth, size.chunk, A::IN_CHUNKS * size.chunk);
    int most = 0;
    const int error = bulk_most_room(&most);
    return error != 0 ? error
                      : launch_grid(kernel, team, call, call.grid_blocks, threads,
                                    all < (uint32_t)most ? all : (uint32_t)most, stream);
}

/* Load it into the current device, and let it have the memory. A cudaError_t. */
template <class P> static int bulk_preload(kernel_t<P> kernel)
{
    int most = 0;
    int error = bulk_most_room(&most);
    if (error == 0)
        error = (int)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    return error != 0 ? error : launch_preload(kernel);
}

#else

template <class A>
static int bulk_launch(kernel_t<kernel_call_t> kernel, const alg_team_t *team, const kernel_call_t &call, bool,
                       void *stream)
{
    return launch_collective(kernel, team, call, call, 1, stream);
}

/* There is nothing to load. */
template <class P> static int bulk_preload(kernel_t<P>)
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
