/* SPDX-License-Identifier: Apache-2.0 */
/* start.h - starts a kernel: K::run(lane, team, call, shared), with K::shared_bytes of shared memory. */
#ifndef SHUNT_EXPERTS_START_H
#define SHUNT_EXPERTS_START_H

#include "algorithms/device/launch.h"
#include "algorithms/experts/room.h"

#ifdef __CUDACC__

/* Two blocks a multiprocessor: see alg_experts_grid. */
template <class K>
__global__ void __launch_bounds__(ALG_EXPERTS_THREADS, 2)
    ncclKernel_shunt_experts(const __grid_constant__ alg_team_t team, const __grid_constant__ experts_call_t call)
{
    K::run(lane_here(), team, call, lane_shared());
}

/* Loads a kernel and allows it all shared memory. Returns a cudaError_t; cudaErrorInvalidValue: the call needs more. */
template <class K> static int experts_preload(const experts_call_t &call)
{
    int device, most = 0;
    int error = (int)cudaGetDevice(&device);
    if (error == 0)
        error = (int)cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == 0 && K::shared_bytes(call, ALG_EXPERTS_THREADS / 32) > (uint32_t)most)
        return (int)cudaErrorInvalidValue;
    if (error == 0)
        error = launch_preload(ncclKernel_shunt_experts<K>);
    return error != 0 ? error
                      : (int)cudaFuncSetAttribute((const void *)ncclKernel_shunt_experts<K>,
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

template <class K> static int experts_start(const alg_team_t *team, const experts_call_t &call, void *stream)
{
    return launch_grid(ncclKernel_shunt_experts<K>, team, call, call.call.blocks, ALG_EXPERTS_THREADS,
                       K::shared_bytes(call, ALG_EXPERTS_THREADS / 32), stream);
}

#else

template <class K> static void experts_block(lane_t lane, const alg_team_t &team, const experts_call_t &call)
{
    uint8_t *const shared = (uint8_t *)malloc(K::shared_bytes(call, 1));
    if (shared != NULL)
        K::run(lane, team, call, shared);
    else
        lane_lose(team);
    free(shared);
}

template <class K> static int experts_start(const alg_team_t *team, const experts_call_t &call, void *)
{
    const uint32_t blocks = call.call.blocks < LANE_MOST_BLOCKS ? call.call.blocks : LANE_MOST_BLOCKS;
    return launch_threads(experts_block<K>, team, call, blocks, false, 0);
}

#endif

/* choose(c) returns experts_start of the call's kernel. */
#ifdef __CUDACC__
#define EXPERTS_ENTRIES(name, choose)                                                                  \
    extern "C" int alg_experts_##name##_cuda(const alg_team_t *team, const alg_experts_shape_t *shape, \
                                             const alg_experts_call_t *call, void *stream)             \
    {                                                                                                  \
        const experts_call_t c = experts_call_make(shape, call);                                       \
        return choose(c)(team, c, stream);                                                             \
    }
#else
#define EXPERTS_ENTRIES(name, choose)                                                                 \
    extern "C" int alg_experts_##name##_cpu(const alg_team_t *team, const alg_experts_shape_t *shape, \
                                            const alg_experts_call_t *call)                           \
    {                                                                                                 \
        const experts_call_t c = experts_call_make(shape, call);                                      \
        return choose(c)(team, c, NULL);                                                              \
    }
#endif

typedef int (*experts_start_t)(const alg_team_t *, const experts_call_t &, void *);

#endif
