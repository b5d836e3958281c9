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

#include "algorithms/device/dispatch.h"
#include "algorithms/device/places.h"
#include "algorithms/device/route.h"
#include "algorithms/device/segments.h"

/* Fields of alg_algorithm_t. */
template <class A> constexpr uint32_t UNALIGNED_BLOCKS = 0;
template <class A> constexpr bool ANY_GRID = false;
template <class A> constexpr bool SPARE_BLOCKS = false;
template <class A> constexpr bool HAS_PLACES = false;
template <class A> constexpr bool BULK_MESSAGES = false;
template <class A> constexpr bool FILLS_MULTIPROCESSOR = false;
template <class A> constexpr uint32_t PIECE = ALG_PIECE_HALVES;
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
            PIECE<A>};
}

#define ALG_DESCRIBE(symbol, title, collective, memory, name)                                                          \
    extern "C" {                                                                                                       \
    extern const alg_algorithm_t symbol;                                                                               \
    const alg_algorithm_t symbol = describe<name##_entries, collective>(title, memory, name##_launch, name##_preload); \
    }

#endif

#endif
