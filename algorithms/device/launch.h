/*
 * launch.h - from an algorithm's `run` to its descriptor: kernels for every
 * type and kind of operator, and how they are launched on each device.
 *
 * An algorithm is a struct with
 *   template <int TYPE, int OPS, int N, bool WHOLE> static void run(lane_t, const alg_team_t &, const alg_call_t &)
 *   static uint64_t max_bytes(const alg_map_t *, uint32_t nranks, alg_type_t)
 *   static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
 *   MOST_THREADS, of a block
 * (N: for 2, 3, 4 or up to 8 ranks; WHOLE: of reduction, input.h) and ends its file with ALG_DEFINE. On CUDA
 * the file gives `<symbol>_launch` and `<symbol>_preload`; compiled for the host
 * it gives the descriptor, which refers to those two when the build has CUDA.
 */
#ifndef SHUNT_LAUNCH_H
#define SHUNT_LAUNCH_H

#include "algorithms/device/lane.h"
#include "algorithms/device/reduce.h"

/* Kernels are unrolled for just 2, 3 or 4 ranks, or serve any number: less code to fetch is what a short message feels.
 * The host device has one of each sort, which is enough to test all. Each kernel has a brother for buffers that are not
 * whole (input.h). */
#ifdef __CUDACC__
#define ALG_PER_RANKS(X, A, T, O, W) X<A, T, O, 8, W>, X<A, T, O, 2, W>, X<A, T, O, 3, W>, X<A, T, O, 4, W>
enum { BODY_RANKS = 4, BODY_LEAST_EXACT = 2 };
#else
#define ALG_PER_RANKS(X, A, T, O, W) X<A, T, O, 8, W>, X<A, T, O, 4, W>
enum { BODY_RANKS = 2, BODY_LEAST_EXACT = 4 };
#endif
enum { BODY_KINDS = 2 * BODY_RANKS }; /* first those for buffers that are not whole */

/* Ranks may differ in wholeness: what crosses the link is the same. */
static inline int launch_body_kind(const alg_team_t *team, const alg_call_t *call)
{
    const uint64_t bytes = call->count * alg_type_bytes(call->type);
    const bool whole = ((uintptr_t)call->input | (uintptr_t)call->output | bytes) % VEC == 0;
    const bool exact = team->nranks >= BODY_LEAST_EXACT && team->nranks <= EXACT_RANKS;
    return (whole ? BODY_RANKS : 0) + (exact ? (int)team->nranks - BODY_LEAST_EXACT + 1 : 0);
}

/* Values of more ranks need more registers than 1024 threads can have. */
static const uint32_t LAUNCH_USUAL_THREADS = 512;

template <class A> LANE_HOST_FN constexpr uint32_t launch_most_threads(uint32_t nranks)
{
    return nranks <= EXACT_RANKS ? (uint32_t)A::MOST_THREADS : LAUNCH_USUAL_THREADS;
}

#define ALG_PER_WHOLE(X, A, T, O)                                         \
    {                                                                     \
        ALG_PER_RANKS(X, A, T, O, false), ALG_PER_RANKS(X, A, T, O, true) \
    }
#define ALG_PER_OPS(X, A, T)                                                                                \
    {                                                                                                       \
        ALG_PER_WHOLE(X, A, T, OPS_SUM), ALG_PER_WHOLE(X, A, T, OPS_MAX), ALG_PER_WHOLE(X, A, T, OPS_OTHER) \
    }
/* In the order of alg_type_t; an unsigned integer takes the signed one's. */
#define ALG_PER_TYPE(X, A)                                                                                          \
    {                                                                                                               \
        ALG_PER_OPS(X, A, ALG_INT8), ALG_PER_OPS(X, A, ALG_INT8), ALG_PER_OPS(X, A, ALG_INT32),                     \
            ALG_PER_OPS(X, A, ALG_INT32), ALG_PER_OPS(X, A, ALG_INT64), ALG_PER_OPS(X, A, ALG_INT64),               \
            ALG_PER_OPS(X, A, ALG_FLOAT16), ALG_PER_OPS(X, A, ALG_FLOAT32), ALG_PER_OPS(X, A, ALG_FLOAT64),         \
            ALG_PER_OPS(X, A, ALG_BFLOAT16), ALG_PER_OPS(X, A, ALG_FLOAT8_E4M3), ALG_PER_OPS(X, A, ALG_FLOAT8_E5M2) \
    }

#ifdef __CUDACC__

/* Registers are for one block. Not told so, the compiler spilled some kernels of 1024 threads to make room for two. */
enum { LAUNCH_BLOCKS_A_MULTIPROCESSOR = 1 };

template <class A, int TYPE, int OPS, int N, bool WHOLE>
__global__ void __launch_bounds__(launch_most_threads<A>(N), LAUNCH_BLOCKS_A_MULTIPROCESSOR)
    alg_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ alg_call_t call)
{
    A::template run<TYPE, OPS, N, WHOLE>(lane_here(), team, call);
}

typedef void (*alg_kernel_t)(alg_team_t, alg_call_t);
typedef alg_kernel_t alg_kernels_t[ALG_TYPE_COUNT][OPS_KINDS][BODY_KINDS];

static inline int launch_cuda(const alg_kernels_t kernels, const alg_team_t *team, const alg_call_t *call, void *stream)
{
    const int kind = launch_body_kind(team, call);
    /* Programmatic dependent launch: blocks may be placed while the stream's last kernel drains, or earlier where
     * that says so (lane_begin, which also waits for its end). Measured on H200: 0.25 us a call
     * (docs/results/tried-h200.csv), and as much again where small grids let theirs in (tried-2-h200.csv). */
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.attrs = &early;
    config.numAttrs = team->dependent_launch ? 1 : 0;
    config.gridDim = dim3(call->blocks);
    config.blockDim = dim3(call->threads);
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernels[call->type][ops_kind(call->op)][kind], *team, *call);
}

static inline int launch_preload(const alg_kernels_t kernels)
{
    for (int type = 0; type < ALG_TYPE_COUNT; type++) {
        if (is_unsigned(type))
            continue; /* they are the signed one's */
        const alg_kernel_t *all = &kernels[type][0][0];
        for (int i = 0; i < OPS_KINDS * BODY_KINDS; i++) {
            cudaFuncAttributes attributes;
            const cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)all[i]);
            if (error != cudaSuccess)
                return (int)error;
        }
    }
    return 0;
}

#define ALG_DEFINE(symbol, title, kind, A)                                                       \
    static const alg_kernels_t symbol##_kernels = ALG_PER_TYPE(alg_kernel, A);                   \
    extern "C" int symbol##_launch(const alg_team_t *team, const alg_call_t *call, void *stream) \
    {                                                                                            \
        return launch_cuda(symbol##_kernels, team, call, stream);                                \
    }                                                                                            \
    extern "C" int symbol##_preload(void)                                                        \
    {                                                                                            \
        return launch_preload(symbol##_kernels);                                                 \
    }

#else

#include <pthread.h>

typedef void (*alg_body_t)(lane_t, const alg_team_t &, const alg_call_t &);
typedef alg_body_t alg_bodies_t[ALG_TYPE_COUNT][OPS_KINDS][BODY_KINDS];

template <class A, int TYPE, int OPS, int N, bool WHOLE>
void alg_body(lane_t lane, const alg_team_t &team, const alg_call_t &call)
{
    A::template run<TYPE, OPS, N, WHOLE>(lane, team, call);
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
static inline int launch_host(const alg_bodies_t bodies, const alg_team_t *team, const alg_call_t *call)
{
    launch_block_t block[LAUNCH_HOST_BLOCKS];
    const uint32_t blocks = call->blocks < LAUNCH_HOST_BLOCKS ? call->blocks : (uint32_t)LAUNCH_HOST_BLOCKS;
    const alg_body_t body = bodies[call->type][ops_kind(call->op)][launch_body_kind(team, call)];
    uint32_t started = 1;
    for (uint32_t i = 0; i < blocks; i++)
        block[i] = {body, team, call, {i, blocks, 0, 1, 0, 0}, 0};
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
    static const alg_bodies_t symbol##_bodies = ALG_PER_TYPE(alg_body, A);                                       \
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

/* One vector a lane; as many blocks as there may be, of as few threads as that takes (64 at least): warps of
 * one block hold each other up, blocks on other multiprocessors do not. */
static inline void launch_shape(uint64_t vectors, uint32_t most_threads, uint32_t *blocks, uint32_t *threads)
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

#endif
