/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - from an algorithm's `run` to its descriptors: the kernels, and how
 * they are launched on each device.
 *
 * An algorithm that reduces is a struct with
 *   template <int TYPE, int OPS, int N, bool WHOLE> static void run(lane_t, const alg_team_t &, const alg_call_t &)
 * and has kernels for every type and kind of operator; one that moves data has
 *   template <int N, bool WHOLE, bool EACH> static void run(...)
 * and is given the count in bytes (EACH: every rank has a block of its own in the
 * input). Both have
 *   static uint64_t segment(const alg_team_t *, const alg_call_t *), the bytes of a block that one kernel takes
 *   template <int COLLECTIVE> static uint64_t max_bytes(const alg_map_t *, uint32_t nranks, alg_type_t)
 *   template <int COLLECTIVE> static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
 *   MOST_THREADS, of a block
 * (N: for 2, 3, 4 or up to 8 ranks; WHOLE: of reduction, input.h.) A file ends with
 * ALG_REDUCER or ALG_MOVER, which make its kernels, and an ALG_DESCRIBE (in the
 * host's memory: an ALG_DESCRIBE_FOR) for each collective that they serve. On CUDA the
 * first gives `<family>_launch` and `<family>_preload`; compiled for the host the
 * second gives the descriptors, which refer to those two when the build has CUDA.
 */
#ifndef SHUNT_LAUNCH_H
#define SHUNT_LAUNCH_H

#include "algorithms/device/epoch.h"
#include "algorithms/device/gate.h"
#include "algorithms/device/lane.h"
#include "algorithms/device/reduce.h"
#include "algorithms/device/route.h"
#include "algorithms/device/series.h"

/* Kernels are unrolled for exactly 2, 3 or 4 ranks, or serve any number: a short message's latency includes fetching
 * the code. The host device has one kernel of each sort, which is enough to test all. Each has a variant for buffers
 * that are not whole (input.h). */
#ifdef __CUDACC__
#define ALG_PER_RANKS(X, A, T, O, W) X<A, T, O, 8, W>, X<A, T, O, 2, W>, X<A, T, O, 3, W>, X<A, T, O, 4, W>
enum { BODY_RANKS = 4, BODY_LEAST_EXACT = 2 };
#else
#define ALG_PER_RANKS(X, A, T, O, W) X<A, T, O, 8, W>, X<A, T, O, 4, W>
enum { BODY_RANKS = 2, BODY_LEAST_EXACT = 4 };
#endif
enum { BODY_KINDS = 2 * BODY_RANKS }; /* variants for buffers that are not whole come first */

/* Ranks may differ in wholeness: it does not change what crosses the link. */
static inline int launch_body_kind(const alg_team_t *team, const alg_call_t *call)
{
    const uint64_t bytes = call->count * alg_type_bytes(call->type);
    const bool whole = ((uintptr_t)call->input | (uintptr_t)call->output | bytes | call->stride) % VEC == 0;
    const bool exact = team->nranks >= BODY_LEAST_EXACT && team->nranks <= EXACT_RANKS;
    return (whole ? BODY_RANKS : 0) + (exact ? (int)team->nranks - BODY_LEAST_EXACT + 1 : 0);
}

/* Fewer blocks than the call's where this rank's share has no room for all at once: ranks' grids may differ. */
static inline uint32_t launch_blocks(const alg_call_t *call)
{
    return call->most_blocks > 0 && call->most_blocks < call->blocks ? call->most_blocks : call->blocks;
}

/* Values of more ranks need more registers than a block of 1024 threads has. */
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

/* The same for kernels without type and operator: [EACH][kind]. */
#define ALG_PER_BLOCKS(X, A)                                                     \
    {                                                                            \
        {ALG_MOVE_RANKS(X, A, false, false), ALG_MOVE_RANKS(X, A, true, false)}, \
        {                                                                        \
            ALG_MOVE_RANKS(X, A, false, true), ALG_MOVE_RANKS(X, A, true, true)  \
        }                                                                        \
    }
#ifdef __CUDACC__
#define ALG_MOVE_RANKS(X, A, W, E) X<A, 8, W, E>, X<A, 2, W, E>, X<A, 3, W, E>, X<A, 4, W, E>
#else
#define ALG_MOVE_RANKS(X, A, W, E) X<A, 8, W, E>, X<A, 4, W, E>
#endif

static inline alg_call_t launch_in_bytes(const alg_call_t *call)
{
    alg_call_t moved = *call;
    moved.count *= alg_type_bytes(call->type);
    moved.type = ALG_UINT8;
    return moved;
}

/* Bytes of a kernel's segment, except the call's last, which may be shorter: whole pages, up to `most`. */
static inline uint64_t launch_segment(uint64_t bytes, uint64_t most)
{
    const uint64_t page = 4096, segments = (bytes - 1) / most + 1;
    uint64_t segment = (bytes + segments - 1) / segments;
    segment = segments > 1 ? (segment + page - 1) / page * page : bytes;
    return segment < most ? segment : most;
}

/* most: bytes of a block that one kernel takes; 0: the call takes several kernels, and so no part in a series. */
static inline void launch_slots(alg_call_t *call, uint64_t most)
{
    const uint64_t bytes = call->count * alg_type_bytes(call->type);
    call->series = most > 0 ? series_of(call->collective, call->root, call->root) : 0;
    call->slot_vectors = (uint32_t)((call->series && call->collective == ALG_BROADCAST ? most : bytes + VEC - 1) / VEC);
}

/* The call of one kernel: a segment of every block. Callbacks return 0, or an error that ends the call. */
template <class F> static int launch_segments(const alg_call_t *call, uint64_t most, F launch)
{
    const uint64_t width = alg_type_bytes(call->type), bytes = call->count * width;
    const uint64_t segment_bytes = launch_segment(bytes, most);
    int error = 0;
    for (uint64_t at = 0; at < bytes && error == 0; at += segment_bytes) {
        alg_call_t segment = *call;
        segment.stride = bytes;
        segment.input = call->input ? (const uint8_t *)call->input + at : NULL;
        segment.output = call->output ? (uint8_t *)call->output + at : NULL;
        segment.count = (bytes - at < segment_bytes ? bytes - at : segment_bytes) / width;
        launch_slots(&segment, bytes <= most ? most : 0);
        error = launch(segment);
    }
    return error;
}

#ifdef __CUDACC__

/* Registers are for one block. Without this the compiler spilled some kernels of 1024 threads to make room for two. */
enum { LAUNCH_BLOCKS_A_MULTIPROCESSOR = 1 };
/* An algorithm may specialise this for N ranks. */
template <class A, int N> constexpr int LAUNCH_BLOCKS_OF = LAUNCH_BLOCKS_A_MULTIPROCESSOR;

template <class A, int TYPE, int OPS, int N, bool WHOLE>
__global__ void __launch_bounds__(launch_most_threads<A>(N), LAUNCH_BLOCKS_OF<A, N>)
    alg_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ alg_call_t call)
{
    A::template run<TYPE, OPS, N, WHOLE>(lane_here(), team, call);
}

template <class A, int N, bool WHOLE, bool EACH>
__global__ void __launch_bounds__(launch_most_threads<A>(N), LAUNCH_BLOCKS_OF<A, N>)
    alg_move_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ alg_call_t call)
{
    A::template run<N, WHOLE, EACH>(lane_here(), team, call);
}

typedef void (*alg_kernel_t)(alg_team_t, alg_call_t);
typedef alg_kernel_t alg_kernels_t[OPS_KINDS][BODY_KINDS]; /* of one type */
typedef alg_kernel_t alg_move_kernels_t[2][BODY_KINDS];

template <class P>
static int launch_grid(void (*kernel)(alg_team_t, P), const alg_team_t *team, const P &what, uint32_t blocks,
                       uint32_t threads, size_t shared_bytes, void *stream)
{
    cudaLaunchAttribute attribute[2] = {};
    unsigned count = 0;
    /* Programmatic dependent launch: blocks may be placed while the stream's last kernel drains, or earlier where that
     * one allows it (lane_begin, which also waits for its end). Measured on H200: saves 0.25 us a call
     * (docs/notebook/kernels.md), and as much again where grids trigger it early. */
    if (team->dependent_launch) {
        attribute[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    /* Beside matrix products our blocks take the next free place. */
    if (team->priority) {
        attribute[count].id = cudaLaunchAttributePriority;
        attribute[count++].val.priority = team->priority;
    }
    cudaLaunchConfig_t config = {};
    config.attrs = attribute;
    config.numAttrs = count;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)stream;
    return (int)cudaLaunchKernelEx(&config, kernel, *team, what);
}

static inline int launch_cuda(alg_kernel_t kernel, const alg_team_t *team, const alg_call_t *call, void *stream)
{
    return launch_grid(kernel, team, *call, launch_blocks(call), call->threads, 0, stream);
}

static __global__ void alg_gate_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ uint32_t)
{
    gate_wait(lane_here(), team);
}

/* Whether long calls of an algorithm have a gate. */
template <class A> constexpr bool LAUNCH_GATED = false;

/* Before the first kernel of a call. */
template <class A> static int launch_gate(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    const uint64_t bytes = call->count * alg_type_bytes(call->type);
    const uint64_t sent = call->collective == ALG_ALL_REDUCE ? bytes / team->nranks : bytes;
    if (!LAUNCH_GATED<A> || sent < GATE_LEAST_BYTES)
        return 0;
    return launch_grid(alg_gate_kernel, team, (uint32_t)0, 1, 32, 0, stream);
}

template <class P> static int launch_preload(void (*kernel)(alg_team_t, P))
{
    cudaFuncAttributes attributes;
    return (int)cudaFuncGetAttributes(&attributes, (const void *)kernel);
}

/* Of all types; an unsigned integer has the signed one's. */
template <class K> static int launch_preload_types(const K *const (&kernels)[ALG_TYPE_COUNT])
{
    int error = 0;
    for (int type = 0; type < ALG_TYPE_COUNT; type++) {
        for (int i = 0; i < OPS_KINDS * BODY_KINDS && error == 0 && !is_unsigned(type); i++)
            error = launch_preload((*kernels[type])[i / BODY_KINDS][i % BODY_KINDS]);
    }
    return error;
}

/* A file that reduces is compiled once for each type, with ALG_ONE_TYPE, and once without, to join them: one
 * compilation of all would take minutes. */
#define ALG_TYPE_ROW(family, type) family##_kernels_##type
#ifdef ALG_ONE_TYPE
#define ALG_REDUCER_OF(family, A, type)                                                \
    extern "C" {                                                                       \
    extern const alg_kernels_t ALG_TYPE_ROW(family, type);                             \
    const alg_kernels_t ALG_TYPE_ROW(family, type) = ALG_PER_OPS(alg_kernel, A, type); \
    }
#define ALG_REDUCER_ONE(family, A, type) ALG_REDUCER_OF(family, A, type)
#define ALG_REDUCER(family, A) ALG_REDUCER_ONE(family, A, ALG_ONE_TYPE)
#else
#define ALG_TYPE_DECLARE(kernels_t, family, type) extern "C" const kernels_t ALG_TYPE_ROW(family, type);
/* By alg_type_t; an unsigned integer takes the signed one's. */
#define ALG_TYPE_TABLE(kernels_t, family)                                            \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_INT8)                                    \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_INT32)                                   \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_INT64)                                   \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_FLOAT16)                                 \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_FLOAT32)                                 \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_FLOAT64)                                 \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_BFLOAT16)                                \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_FLOAT8_E4M3)                             \
    ALG_TYPE_DECLARE(kernels_t, family, ALG_FLOAT8_E5M2)                             \
    static const kernels_t *const family##_kernels[ALG_TYPE_COUNT] = {               \
        &ALG_TYPE_ROW(family, ALG_INT8),        &ALG_TYPE_ROW(family, ALG_INT8),     \
        &ALG_TYPE_ROW(family, ALG_INT32),       &ALG_TYPE_ROW(family, ALG_INT32),    \
        &ALG_TYPE_ROW(family, ALG_INT64),       &ALG_TYPE_ROW(family, ALG_INT64),    \
        &ALG_TYPE_ROW(family, ALG_FLOAT16),     &ALG_TYPE_ROW(family, ALG_FLOAT32),  \
        &ALG_TYPE_ROW(family, ALG_FLOAT64),     &ALG_TYPE_ROW(family, ALG_BFLOAT16), \
        &ALG_TYPE_ROW(family, ALG_FLOAT8_E4M3), &ALG_TYPE_ROW(family, ALG_FLOAT8_E5M2)};
#define ALG_REDUCER(family, A)                                                                                    \
    ALG_TYPE_TABLE(alg_kernels_t, family)                                                                         \
    extern "C" int family##_launch(const alg_team_t *team, const alg_call_t *call, void *stream)                  \
    {                                                                                                             \
        const int error = launch_gate<A>(team, call, stream);                                                     \
        return error ? error                                                                                      \
                     : launch_segments(call, A::segment(team, call), [team, stream](const alg_call_t &segment) {  \
                           const alg_kernel_t *kernels = (*family##_kernels[segment.type])[ops_kind(segment.op)]; \
                           return launch_cuda(kernels[launch_body_kind(team, &segment)], team, &segment, stream); \
                       });                                                                                        \
    }                                                                                                             \
    extern "C" int family##_preload(void)                                                                         \
    {                                                                                                             \
        return launch_preload_types(family##_kernels);                                                            \
    }
#endif

#define ALG_MOVER(family, A)                                                                                         \
    static const alg_move_kernels_t family##_kernels = ALG_PER_BLOCKS(alg_move_kernel, A);                           \
    extern "C" int family##_launch(const alg_team_t *team, const alg_call_t *call, void *stream)                     \
    {                                                                                                                \
        const alg_call_t moved = launch_in_bytes(call);                                                              \
        const int error = launch_gate<A>(team, call, stream);                                                        \
        return error ? error                                                                                         \
                     : launch_segments(&moved, A::segment(team, &moved), [team, stream](const alg_call_t &segment) { \
                           const alg_kernel_t *kernels = family##_kernels[route_input_blocks(segment.collective)];   \
                           return launch_cuda(kernels[launch_body_kind(team, &segment)], team, &segment, stream);    \
                       });                                                                                           \
    }                                                                                                                \
    extern "C" int family##_preload(void)                                                                            \
    {                                                                                                                \
        int error = 0;                                                                                               \
        for (int i = 0; i < 2 * BODY_KINDS && error == 0; i++)                                                       \
            error = launch_preload((&family##_kernels[0][0])[i]);                                                    \
        return error;                                                                                                \
    }

#define ALG_DESCRIBE_WITH(memory, symbol, title, kind, family, A, part_bytes)

#else

#include <pthread.h>

typedef void (*alg_body_t)(lane_t, const alg_team_t &, const alg_call_t &);
typedef alg_body_t alg_bodies_t[ALG_TYPE_COUNT][OPS_KINDS][BODY_KINDS];
typedef alg_body_t alg_move_bodies_t[2][BODY_KINDS];

template <class A, int TYPE, int OPS, int N, bool WHOLE>
void alg_body(lane_t lane, const alg_team_t &team, const alg_call_t &call)
{
    A::template run<TYPE, OPS, N, WHOLE>(lane, team, call);
}

template <class A, int N, bool WHOLE, bool EACH>
void alg_move_body(lane_t lane, const alg_team_t &team, const alg_call_t &call)
{
    A::template run<N, WHOLE, EACH>(lane, team, call);
}

template <class P> struct launch_block {
    void (*body)(lane_t, const alg_team_t &, const P &);
    const alg_team_t *team;
    const P *what;
    lane_t lane;
    pthread_t thread;
};

template <class P> static void *launch_block_main(void *argument)
{
    const launch_block<P> *b = (const launch_block<P> *)argument;
    b->body(b->lane, *b->team, *b->what);
    lane_fence(); /* as the end of a kernel does */
    return NULL;
}

enum { LAUNCH_HOST_BLOCKS = 16 };

/* Blocks 1.. run in threads of their own, block 0 here. A block without a thread would leave the peers' block waiting,
 * so then the team is given up. A block has one thread, whatever the row says. */
template <class P>
static int launch_threads(void (*body)(lane_t, const alg_team_t &, const P &), const alg_team_t *team, const P &what,
                          uint32_t wanted, bool counted, uint64_t call)
{
    launch_block<P> block[LAUNCH_HOST_BLOCKS];
    const uint32_t blocks = wanted < LAUNCH_HOST_BLOCKS ? wanted : (uint32_t)LAUNCH_HOST_BLOCKS;
    uint32_t started = 1;
    for (uint32_t i = 0; i < blocks; i++)
        block[i] = {body, team, &what, {i, blocks, 0, 1, 0, 0, ~0u, 0, counted, call, i, blocks}, 0};
    for (; started < blocks; started++) {
        if (pthread_create(&block[started].thread, NULL, launch_block_main<P>, &block[started]) != 0) {
            __atomic_store_n(&team->control->abort, 1u, __ATOMIC_RELEASE);
            break;
        }
    }
    launch_block_main<P>(&block[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(block[i].thread, NULL);
    if (!__atomic_load_n(&team->control->abort, __ATOMIC_ACQUIRE))
        return ALG_STATUS_OK;
    const uint32_t status = __atomic_load_n(&team->control->status, __ATOMIC_ACQUIRE);
    return status == ALG_STATUS_OK ? ALG_STATUS_ABORTED : (int)status;
}

/* A kernel that makes `calls` calls. */
template <class P>
static int launch_counted(void (*body)(lane_t, const alg_team_t &, const P &), const alg_team_t *team, const P &what,
                          uint32_t blocks, uint32_t calls)
{
    uint64_t *const count = (uint64_t *)(team->own + ALG_CALLS_OFFSET);
    const uint64_t before = lane_read_own(count);
    const int status = launch_threads(body, team, what, blocks, true, before);
    if (status != ALG_STATUS_OK)
        return status;
    lane_write_own(count, before + calls);
    lane_raise(team->scratch[team->rank] + ALG_ENDED_OFFSET, before + calls);
    return status;
}

static inline int launch_host(alg_body_t body, const alg_team_t *team, const alg_call_t *whole_call)
{
    alg_call_t call = *whole_call;
    call.threads = 1;
    return launch_counted(body, team, call, launch_blocks(&call), 1);
}

#if SHUNT_HAS_CUDA
#define ALG_CUDA_DECLARE(family)                                                                  \
    extern "C" int family##_launch(const alg_team_t *team, const alg_call_t *call, void *stream); \
    extern "C" int family##_preload(void);
#define ALG_CUDA(family, what) family##_##what
#else
#define ALG_CUDA_DECLARE(family)
#define ALG_CUDA(family, what) NULL
#endif

#define ALG_REDUCER(family, A)                                                                   \
    static const alg_bodies_t family##_bodies = ALG_PER_TYPE(alg_body, A);                       \
    static int family##_host(const alg_team_t *team, const alg_call_t *call)                     \
    {                                                                                            \
        return launch_segments(call, A::segment(team, call), [team](const alg_call_t &segment) { \
            const alg_body_t *bodies = family##_bodies[segment.type][ops_kind(segment.op)];      \
            return launch_host(bodies[launch_body_kind(team, &segment)], team, &segment);        \
        });                                                                                      \
    }                                                                                            \
    ALG_CUDA_DECLARE(family)

#define ALG_MOVER(family, A)                                                                         \
    static const alg_move_bodies_t family##_bodies = ALG_PER_BLOCKS(alg_move_body, A);               \
    static int family##_host(const alg_team_t *team, const alg_call_t *call)                         \
    {                                                                                                \
        const alg_call_t moved = launch_in_bytes(call);                                              \
        return launch_segments(&moved, A::segment(team, &moved), [team](const alg_call_t &segment) { \
            const alg_body_t *bodies = family##_bodies[route_input_blocks(segment.collective)];      \
            return launch_host(bodies[launch_body_kind(team, &segment)], team, &segment);            \
        });                                                                                          \
    }                                                                                                \
    ALG_CUDA_DECLARE(family)

#define ALG_DESCRIBE_WITH(memory, symbol, title, kind, family, A, part_bytes) \
    extern "C" {                                                              \
    extern const alg_algorithm_t symbol;                                      \
    const alg_algorithm_t symbol = {                                          \
        title,                                                                \
        kind,                                                                 \
        A::max_bytes<kind>,                                                   \
        A::shape<kind>,                                                       \
        ALG_CUDA(family, launch),                                             \
        family##_host,                                                        \
        ALG_CUDA(family, preload),                                            \
        memory,                                                               \
        part_bytes,                                                           \
    };                                                                        \
    }

#endif

#define ALG_DESCRIBE_FOR(memory, symbol, title, kind, family, A) \
    ALG_DESCRIBE_WITH(memory, symbol, title, kind, family, A, NULL)
#define ALG_DESCRIBE(symbol, title, kind, family, A) ALG_DESCRIBE_FOR(ALG_MEMORY_PEER, symbol, title, kind, family, A)

/* One vector a lane; as many blocks as allowed, of as few threads as that takes (64 at least): warps of one block delay
 * each other, blocks on other multiprocessors do not. */
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
