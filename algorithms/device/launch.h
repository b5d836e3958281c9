/*
 * launch.h - from an algorithm's `run` to its descriptor: kernels for every
 * type and kind of operator, and how they are launched on each device.
 *
 * An algorithm is a struct with
 *   template <int TYPE, int OPS> static void run(lane_t, const alg_team_t &, const alg_call_t &)
 *   static uint64_t max_bytes(const alg_map_t *, uint32_t nranks, alg_type_t)
 *   static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
 * and ends its file with ALG_DEFINE. On CUDA the file gives `<symbol>_launch` and
 * `<symbol>_preload`; compiled for the host it gives the descriptor, which
 * refers to those two when the build has CUDA.
 */
#ifndef SHUNT_LAUNCH_H
#define SHUNT_LAUNCH_H

#include "algorithms/device/lane.h"
#include "algorithms/device/reduce.h"

enum { LAUNCH_MAX_THREADS = 512 };

static inline int launch_ops_kind(alg_op_t op)
{
    return op == ALG_SUM || op == ALG_AVG || op == ALG_PREMUL_SUM ? OPS_SUM : OPS_OTHER;
}

#define ALG_PER_TYPE(X, A)                                                                                        \
    {X<A, ALG_INT8, OPS_SUM>, X<A, ALG_INT8, OPS_OTHER>}, {X<A, ALG_UINT8, OPS_SUM>, X<A, ALG_UINT8, OPS_OTHER>}, \
        {X<A, ALG_INT32, OPS_SUM>, X<A, ALG_INT32, OPS_OTHER>},                                                   \
        {X<A, ALG_UINT32, OPS_SUM>, X<A, ALG_UINT32, OPS_OTHER>},                                                 \
        {X<A, ALG_INT64, OPS_SUM>, X<A, ALG_INT64, OPS_OTHER>},                                                   \
        {X<A, ALG_UINT64, OPS_SUM>, X<A, ALG_UINT64, OPS_OTHER>},                                                 \
        {X<A, ALG_FLOAT16, OPS_SUM>, X<A, ALG_FLOAT16, OPS_OTHER>},                                               \
        {X<A, ALG_FLOAT32, OPS_SUM>, X<A, ALG_FLOAT32, OPS_OTHER>},                                               \
        {X<A, ALG_FLOAT64, OPS_SUM>, X<A, ALG_FLOAT64, OPS_OTHER>},                                               \
        {X<A, ALG_BFLOAT16, OPS_SUM>, X<A, ALG_BFLOAT16, OPS_OTHER>},                                             \
        {X<A, ALG_FLOAT8_E4M3, OPS_SUM>, X<A, ALG_FLOAT8_E4M3, OPS_OTHER>},                                       \
    {                                                                                                             \
        X<A, ALG_FLOAT8_E5M2, OPS_SUM>, X<A, ALG_FLOAT8_E5M2, OPS_OTHER>                                          \
    }

#ifdef __CUDACC__

template <class A, int TYPE, int OPS>
__global__ void __launch_bounds__(LAUNCH_MAX_THREADS)
    alg_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ alg_call_t call)
{
    A::template run<TYPE, OPS>(lane_here(), team, call);
}

typedef void (*alg_kernel_t)(alg_team_t, alg_call_t);

static inline int launch_cuda(const alg_kernel_t kernels[ALG_TYPE_COUNT][OPS_KINDS], const alg_team_t *team,
                              const alg_call_t *call, void *stream)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(call->blocks);
    config.blockDim = dim3(call->threads);
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernels[call->type][launch_ops_kind(call->op)], *team, *call);
}

static inline int launch_preload(const alg_kernel_t kernels[ALG_TYPE_COUNT][OPS_KINDS])
{
    for (int i = 0; i < ALG_TYPE_COUNT * OPS_KINDS; i++) {
        cudaFuncAttributes attributes;
        const cudaError_t error =
            cudaFuncGetAttributes(&attributes, (const void *)kernels[i / OPS_KINDS][i % OPS_KINDS]);
        if (error != cudaSuccess)
            return (int)error;
    }
    return 0;
}

#define ALG_DEFINE(symbol, title, kind, A)                                                                 \
    static const alg_kernel_t symbol##_kernels[ALG_TYPE_COUNT][OPS_KINDS] = {ALG_PER_TYPE(alg_kernel, A)}; \
    extern "C" int symbol##_launch(const alg_team_t *team, const alg_call_t *call, void *stream)           \
    {                                                                                                      \
        return launch_cuda(symbol##_kernels, team, call, stream);                                          \
    }                                                                                                      \
    extern "C" int symbol##_preload(void)                                                                  \
    {                                                                                                      \
        return launch_preload(symbol##_kernels);                                                           \
    }

#else

#include <pthread.h>

typedef void (*alg_body_t)(lane_t, const alg_team_t &, const alg_call_t &);

template <class A, int TYPE, int OPS> void alg_body(lane_t lane, const alg_team_t &team, const alg_call_t &call)
{
    A::template run<TYPE, OPS>(lane, team, call);
}

typedef struct launch_block {
    alg_body_t body;
    const alg_team_t *team;
    const alg_call_t *call;
    lane_t lane;
    pthread_t thread;
} launch_block_t;

static inline void *launch_block_main(void *argument)
{
    const launch_block_t *b = (const launch_block_t *)argument;
    b->body(b->lane, *b->team, *b->call);
    return NULL;
}

enum { LAUNCH_HOST_BLOCKS = 16 };

/* Blocks 1.. in threads of their own, block 0 here. A block that gets no thread would leave the peers'
 * block waiting, so then the team is given up. */
static inline int launch_host(const alg_body_t bodies[ALG_TYPE_COUNT][OPS_KINDS], const alg_team_t *team,
                              const alg_call_t *call)
{
    launch_block_t block[LAUNCH_HOST_BLOCKS];
    const uint32_t blocks = call->blocks < LAUNCH_HOST_BLOCKS ? call->blocks : (uint32_t)LAUNCH_HOST_BLOCKS;
    uint32_t started = 1;
    for (uint32_t i = 0; i < blocks; i++)
        block[i] = {bodies[call->type][launch_ops_kind(call->op)], team, call, {i, blocks, 0, 1, 0, 0}, 0};
    for (; started < blocks; started++) {
        if (pthread_create(&block[started].thread, NULL, launch_block_main, &block[started]) != 0) {
            __atomic_store_n(&team->control->abort, 1u, __ATOMIC_RELEASE);
            break;
        }
    }
    launch_block_main(&block[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(block[i].thread, NULL);
    if (!__atomic_load_n(&team->control->abort, __ATOMIC_ACQUIRE))
        return ALG_STATUS_OK;
    const uint32_t status = __atomic_load_n(&team->control->status, __ATOMIC_ACQUIRE);
    return status == ALG_STATUS_OK ? ALG_STATUS_ABORTED : (int)status;
}

#if SHUNT_HAS_CUDA
#define ALG_CUDA_DECLARE(symbol)                                                                  \
    extern "C" int symbol##_launch(const alg_team_t *team, const alg_call_t *call, void *stream); \
    extern "C" int symbol##_preload(void);
#define ALG_CUDA(symbol, what) symbol##_##what
#else
#define ALG_CUDA_DECLARE(symbol)
#define ALG_CUDA(symbol, what) NULL
#endif

#define ALG_DEFINE(symbol, title, kind, A)                                                                       \
    static const alg_body_t symbol##_bodies[ALG_TYPE_COUNT][OPS_KINDS] = {ALG_PER_TYPE(alg_body, A)};            \
    static int symbol##_host(const alg_team_t *team, const alg_call_t *call)                                     \
    {                                                                                                            \
        return launch_host(symbol##_bodies, team, call);                                                         \
    }                                                                                                            \
    ALG_CUDA_DECLARE(symbol)                                                                                     \
    extern "C" {                                                                                                 \
    extern const alg_algorithm_t symbol;                                                                         \
    const alg_algorithm_t symbol = {                                                                             \
        title, kind, A::max_bytes, A::shape, ALG_CUDA(symbol, launch), symbol##_host, ALG_CUDA(symbol, preload), \
    };                                                                                                           \
    }

#endif

/* One vector a lane: fewer threads for a short message, then fewer blocks. */
static inline void launch_shape(uint64_t vectors, uint32_t *blocks, uint32_t *threads)
{
    if (vectors < *threads)
        *threads = vectors < 32 ? 32 : (uint32_t)((vectors + 31) / 32 * 32);
    const uint64_t wanted = (vectors + *threads - 1) / *threads;
    if (wanted < *blocks)
        *blocks = wanted > 0 ? (uint32_t)wanted : 1;
}

#endif
