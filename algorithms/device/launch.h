/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - from an algorithm's `run` to its kernels and descriptors.
 *
 * An algorithm is a struct. Its `run(lane, team, call)` is a kernel's code for one lane: run<TYPE, OPS, N, WHOLE>
 * reduces, run<N, WHOLE, EACH> moves data, with counts in bytes.
 *   TYPE, OPS   an alg_type_t; an ops_kind
 *   N           the ranks; above EXACT_RANKS their upper bound
 *   WHOLE       kernel_call_is_whole
 *   EACH        the input has a block per rank
 * Other members: MOST_THREADS of a block; segment_bytes(team, call), the most bytes of a rank's block in one kernel;
 * max_bytes and shape, as in alg_algorithm_t with the collective as first argument. */
#ifndef SHUNT_LAUNCH_H
#define SHUNT_LAUNCH_H

#include "algorithms/device/buffers.h"
#include "algorithms/device/dispatch.h"
#include "algorithms/device/peers.h"
#include "algorithms/device/places.h"
#include "algorithms/device/series.h"

#ifdef __CUDACC__
#include "transport/transport.h"

/* Enqueues the kernel. Returns a cudaError_t. Dependent launch: blocks start while the previous kernel drains, or once
 * it allows that (lane_begin). Priority: blocks get the next free multiprocessors beside matrix products. */
template <class P>
static int launch_grid(kernel_t<P> kernel, const alg_team_t *team, const P &what, uint32_t blocks, uint32_t threads,
                       size_t shared_bytes, void *stream)
{
    net_launch_t launch = {};
    launch.blocks = blocks;
    launch.threads = threads;
    launch.shared_bytes = shared_bytes;
    launch.stream = stream;
    launch.dependent = team->dependent_launch;
    launch.priority = team->priority;
    launch.kernel = (const void *)kernel;
    const void *const arguments[] = {team, &what};
    return net_kernel_launch(&launch, arguments);
}

template <class P>
static int launch_collective(kernel_t<P> kernel, const alg_team_t *team, const P &what, const kernel_call_t &grid,
                             uint32_t calls, void *stream)
{
    (void)calls;
    return launch_grid(kernel, team, what, grid.grid_blocks, grid.threads, 0, stream);
}

template <class P> static int launch_preload(kernel_t<P> kernel)
{
    cudaFuncAttributes attributes;
    return (int)cudaFuncGetAttributes(&attributes, (const void *)kernel);
}

#else
#include "algorithms/device/launch_cpu.h"
#endif

static inline kernel_call_t kernel_call_make(const alg_call_t &call)
{
    kernel_call_t k = {};
    k.collective = call.collective;
    k.root = call.root;
    k.input = call.input;
    k.output = call.output;
    k.count = call.count;
    k.type = call.type;
    k.op = call.op;
    k.scalar_pointer = call.scalar_pointer;
    k.scalar_bits = call.scalar_bits;
    k.blocks = call.blocks;
    k.threads = LANE_MOST_THREADS > 1 ? call.threads : 1;
    k.stride = call.count * alg_type_bytes(call.type);
    k.all_bytes = UINT64_MAX;
    k.grid_blocks = grid_blocks(&call);
    k.sure_blocks = call.sure_blocks > 0 ? call.sure_blocks : k.grid_blocks;
    k.early = call.early;
    return k;
}

static inline kernel_call_t kernel_call_make_bytes(const alg_call_t &call)
{
    kernel_call_t k = kernel_call_make(call);
    k.count = k.stride;
    k.type = ALG_UINT8;
    return k;
}

/* Bytes of a segment: whole pages, or `most`; the last may be shorter. */
static inline uint64_t segments_bytes(uint64_t bytes, uint64_t most)
{
    const uint64_t page = 4096, segments = (bytes - 1) / most + 1;
    uint64_t segment = (bytes + segments - 1) / segments;
    segment = segments > 1 ? (segment + page - 1) / page * page : bytes;
    return segment < most ? segment : most;
}

/* The kernel serves roots first..last of a series, if its collective has series. Slots of broadcasts then have `most`
 * bytes. */
static inline void kernel_call_set_series(kernel_call_t &call, uint32_t first, uint32_t last, uint64_t most)
{
    call.series = series_of(call.collective, first, last);
    if (call.series && call.collective == ALG_BROADCAST)
        call.slot_vectors = (uint32_t)(most / VEC);
}

/* most: bytes of a rank's block that a segment may have. */
template <class F> static int segments_launch(const kernel_call_t &whole, uint64_t most, F launch)
{
    const uint64_t width = alg_type_bytes(whole.type), bytes = whole.count * width;
    const uint64_t step = segments_bytes(bytes, most);
    int error = 0;
    for (uint64_t at = 0; at < bytes && error == 0; at += step) {
        const uint64_t left = bytes - at, length = left < step ? left : step;
        kernel_call_t segment = whole;
        segment.input = whole.input ? (const uint8_t *)whole.input + at : NULL;
        segment.output = whole.output ? (uint8_t *)whole.output + at : NULL;
        segment.count = length / width;
        segment.all_bytes = whole.all_bytes - at;
        segment.slot_vectors = buffer_vectors(length);
        if (length == bytes)
            kernel_call_set_series(segment, whole.root, whole.root, most);
        error = launch(segment);
    }
    return error;
}

/* Runs alone(call) or, if the call has parts, alone(part) for each. */
template <class F> static int launch_apart(const alg_call_t *call, F alone)
{
    if (call->part_count == 0)
        return alone(call);
    int error = 0;
    for (uint32_t i = 0; i < call->part_count && error == 0; i++) {
        alg_call_t one = *call;
        one.root = call->parts[i].root;
        one.input = call->parts[i].input;
        one.output = call->parts[i].output;
        one.count = call->parts[i].count;
        one.part_count = 0;
        error = alone(&one);
    }
    return error;
}

/* Fields of alg_algorithm_t. */
template <class A> constexpr uint32_t UNALIGNED_BLOCKS = 0;
template <class A> constexpr bool ANY_GRID = false;
template <class A> constexpr bool SPARE_BLOCKS = false;
template <class A> constexpr bool HAS_PLACES = false; /* else call.turns is 0: move by epoch_half */
template <class A> constexpr bool BULK_MESSAGES = false;
template <class A> constexpr bool FILLS_MULTIPROCESSOR = false;
template <class A> constexpr uint32_t PIECE = ALG_PIECE_HALVES;
template <class A, alg_collective_t COLLECTIVE> constexpr alg_cost_t COST = {};
typedef uint64_t (*part_bytes_t)(const alg_team_t *, const alg_call_t *);

/* The namespace keeps the versions for CUDA and the CPU device apart. */
namespace
{

template <class A> struct reducer {
    typedef A algorithm;
    typedef kernel_call_t argument;
    static constexpr part_bytes_t PART_BYTES = NULL;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        kernel_call_t whole = kernel_call_make(*call);
        if (HAS_PLACES<A>)
            whole.turns = places_or_halves(team, call);
        return segments_launch(whole, A::segment_bytes(team, call), [team, stream](const kernel_call_t &segment) {
            const kernel_t<kernel_call_t> kernel = reduce_kernel_of<A, kernel_call_t>(
                segment.type, ops_kind(segment.op), team->nranks, kernel_call_is_whole(segment));
            return launch_collective(kernel, team, segment, segment, 1, stream);
        });
    }

    static int preload(uint32_t nranks)
    {
        return reduce_kernels_each<A, kernel_call_t>(nranks, launch_preload<kernel_call_t>);
    }
};

template <class A> struct mover {
    typedef A algorithm;
    static constexpr part_bytes_t PART_BYTES = NULL;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        kernel_call_t whole = kernel_call_make_bytes(*call);
        if (HAS_PLACES<A>)
            whole.turns = places_or_halves(team, call);
        return segments_launch(whole, A::segment_bytes(team, call), [team, stream](const kernel_call_t &segment) {
            return launch_collective(kernel_of(team, segment), team, segment, segment, 1, stream);
        });
    }

    static kernel_t<kernel_call_t> kernel_of(const alg_team_t *team, const kernel_call_t &call)
    {
        const bool whole = kernel_call_is_whole(call);
        return route_input_has_blocks(call.collective) ? move_kernel_of<A, kernel_call_t, true>(team->nranks, whole)
                                                       : move_kernel_of<A, kernel_call_t, false>(team->nranks, whole);
    }

    static int preload(uint32_t nranks)
    {
        const int error = move_kernels_each<A, kernel_call_t, false>(nranks, launch_preload<kernel_call_t>);
        return error != 0 ? error : move_kernels_each<A, kernel_call_t, true>(nranks, launch_preload<kernel_call_t>);
    }
};

/* K (reducer or mover) serves single calls. S serves short calls of ONLY_RANKS ranks, or is K. */
template <class K, class S, int (*LAUNCH)(const alg_team_t *, const alg_call_t *, void *), int (*PRELOAD)(uint32_t)>
struct listed : K {
    static uint64_t most_bytes(const alg_team_t *team, const alg_call_t *)
    {
        return places_room(team);
    }
    static constexpr part_bytes_t PART_BYTES = most_bytes;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
#ifdef __CUDACC__
        if (call->part_count > 0)
            return LAUNCH(team, call, stream);
#endif
        /* On the CPU device a launch is cheap. */
        return launch_apart(call, [team, stream](const alg_call_t *one) {
            typedef typename S::algorithm A;
            const bool is_short = team->nranks == (uint32_t)ONLY_RANKS<A> && places_serve(team, one) &&
                                  one->count * alg_type_bytes(one->type) <= ONLY_BYTES<A>;
            return is_short ? S::launch(team, one, stream) : K::launch(team, one, stream);
        });
    }

    static int preload(uint32_t nranks)
    {
        int error = K::preload(nranks);
        if (error == 0)
            error = S::preload(nranks);
        return error != 0 ? error : PRELOAD(nranks);
    }
};

} // namespace

#ifdef __CUDACC__

#ifdef ALG_ONE_TYPE
#define ALG_ENTRIES(name, K) \
    template kernel_t<K::argument> reduce_kernel_of_type<K::algorithm, K::argument, ALG_ONE_TYPE>(int, uint32_t, bool);
#else
#define ALG_ENTRIES(name, K)                                                                   \
    extern "C" int name##_launch(const alg_team_t *team, const alg_call_t *call, void *stream) \
    {                                                                                          \
        return K::launch(team, call, stream);                                                  \
    }                                                                                          \
    extern "C" int name##_preload(uint32_t nranks)                                             \
    {                                                                                          \
        return K::preload(nranks);                                                             \
    }
#endif

#define ALG_DESCRIBE(symbol, title, collective, memory, name)

#else

#define ALG_ENTRIES(name, K)                                                                    \
    typedef K name##_entries;                                                                   \
    extern "C" int name##_launch(const alg_team_t *team, const alg_call_t *call, void *stream); \
    extern "C" int name##_preload(uint32_t nranks);

template <class K> static int describe_cpu(const alg_team_t *team, const alg_call_t *call)
{
    return K::launch(team, call, NULL);
}

template <class A, alg_collective_t COLLECTIVE>
static uint64_t describe_max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t type)
{
    return A::max_bytes(COLLECTIVE, map, nranks, type);
}

template <class A, alg_collective_t COLLECTIVE>
static void describe_shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
{
    A::shape(COLLECTIVE, bytes, nranks, blocks, threads);
}

template <class A> static uint32_t describe_block_room(uint32_t nranks, uint32_t threads)
{
    return FILLS_MULTIPROCESSOR<A> ? (uint32_t)ALG_ROOM : grid_block_room<A>(nranks, threads);
}

template <class K, alg_collective_t COLLECTIVE>
constexpr alg_algorithm_t describe(const char *name, alg_memory_t memory,
                                   int (*launch)(const alg_team_t *, const alg_call_t *, void *),
                                   int (*preload)(uint32_t nranks))
{
    typedef typename K::algorithm A;
    return {name,
            COLLECTIVE,
            describe_max_bytes<A, COLLECTIVE>,
            describe_shape<A, COLLECTIVE>,
            SHUNT_HAS_CUDA ? launch : NULL,
            describe_cpu<K>,
            SHUNT_HAS_CUDA ? preload : NULL,
            memory,
            K::PART_BYTES,
            UNALIGNED_BLOCKS<A>,
            ANY_GRID<A>,
            SPARE_BLOCKS<A>,
            BULK_MESSAGES<A>,
            describe_block_room<A>,
            PIECE<A>,
            COST<A, COLLECTIVE>};
}

#define ALG_DESCRIBE(symbol, title, collective, memory, name)                                                          \
    extern "C" {                                                                                                       \
    extern const alg_algorithm_t symbol;                                                                               \
    const alg_algorithm_t symbol = describe<name##_entries, collective>(title, memory, name##_launch, name##_preload); \
    }

#endif

#endif
