/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - launches kernels whose blocks hold two rings of stages in shared memory. A kernel's algorithm also has:
 *   WHOLE_THREADS   threads of a block if buffers are whole
 *   DEPTH           stages of a ring
 *   IN_CHUNKS       longest chunks that a stage of the second ring holds
 *   PARTS           most parts of the first ring's stages (bulk_make) */
#ifndef SHUNT_BULK_LAUNCH_H
#define SHUNT_BULK_LAUNCH_H

#include "algorithms/bulk/walk.h"
#include "algorithms/device/launch.h"

/* Threads of the largest block on a GPU; host code has another BULK_WARPS. */
enum { BULK_MOVE_THREADS = 544, BULK_ADD_THREADS = 800 };

#ifdef __CUDACC__

/* Bytes of shared memory that every GPU has for a block. */
enum { BULK_LEAST_ROOM = 99 << 10 };

/* Gets a block's most shared memory on the current device, 99 to 227 KiB. Returns a cudaError_t. */
static int bulk_most_room(int *bytes)
{
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return (int)error;
}

template <class A>
static int bulk_launch(kernel_t<kernel_call_t> kernel, const alg_team_t *team, const kernel_call_t &call, bool whole,
                       void *stream)
{
    static_assert(A::MOST_THREADS <= grid_most_threads<A>(ALG_MAX_RANKS), "more threads than the kernel is built for");
    static_assert(bulk_shared_bytes(BULK_TURNS, BULK_STAGE, A::IN_CHUNKS * BULK_STAGE) <= BULK_LEAST_ROOM,
                  "no stage for each group of warps");
    static_assert(bulk_head_bytes(A::DEPTH, A::PARTS) <= BULK_HEAD, "barriers reach into the stages");
    const uint32_t threads = whole ? (uint32_t)A::WHOLE_THREADS : (uint32_t)A::MOST_THREADS;
    const uint32_t all = bulk_shared_bytes(A::DEPTH, BULK_STAGE, A::IN_CHUNKS * BULK_STAGE);
    int most = 0;
    const int error = bulk_most_room(&most);
    return error != 0 ? error
                      : launch_grid(kernel, team, call, call.grid_blocks, threads,
                                    all < (uint32_t)most ? all : (uint32_t)most, stream);
}

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

template <class P> static int bulk_preload(kernel_t<P>)
{
    return 0;
}

#endif

/* Whether bulk copies can move all but the buffers' last bytes. Ranks may differ. */
static inline bool bulk_is_whole(const kernel_call_t &call)
{
    const bool blocks = alg_collective_blocks(call.collective, 2) > 1;
    return ((uintptr_t)call.input | (uintptr_t)call.output | (blocks ? call.stride : 0)) % VEC == 0;
}

/* Least blocks if not bulk_is_whole (docs/lab/beside.md). */
enum { BULK_UNALIGNED_BLOCKS = 32 };

/* Allows a block per KiB of a rank's data, since chunks have 2 KiB or more. */
static inline void bulk_shape(uint64_t rank_bytes, uint32_t *blocks)
{
    const uint64_t most = rank_bytes / 1024 + 1;
    if (*blocks > most)
        *blocks = (uint32_t)most;
}

/* Vectors are counted in 32 bits. */
#define BULK_MOST_BYTES ((uint64_t)32 << 30)
/* A ring of BULK_FULL_RING bytes holds what the link carries until a chunk's credit returns (some 10 us), so sending
 * never stalls. BULK_LEAST_RING holds a few slots. */
#define BULK_FULL_RING ((uint64_t)1 << 20)
#define BULK_LEAST_RING ((uint64_t)128 << 10)

/* Most bytes of a rank's data: a ring shorter than BULK_FULL_RING must hold them all. */
static inline uint64_t bulk_most_bytes(const alg_map_t *map, uint32_t nranks)
{
    const uint64_t ring = map->staging_bytes / 2 / (nranks - 1);
    return ring >= BULK_FULL_RING ? BULK_MOST_BYTES : ring >= BULK_LEAST_RING ? ring : 0;
}

static inline uint64_t bulk_segment_bytes(uint32_t chunk)
{
    return (uint64_t)BULK_MOST_CHUNKS * chunk;
}

#endif
