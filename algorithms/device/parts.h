/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts.h - several broadcasts, or reduces, in one kernel: each is a part of the
 * call (alg_call_t.parts) and has some of the blocks, in which the algorithm's `run`
 * serves it like a call of its own. Why that is right on ranks that make them one by
 * one: series.h.
 *
 * A file that has an ALG_MOVER or ALG_REDUCER adds an ALG_MOVER_OF_PARTS or
 * ALG_REDUCER_OF_PARTS, which makes a family of its own with the same `run`. Each
 * ALG_DESCRIBE_PARTS refers to that.
 */
#ifndef SHUNT_PARTS_H
#define SHUNT_PARTS_H

#include "algorithms/device/launch.h"

typedef struct parts {
    alg_call_t call; /* what they have in common */
    uint32_t count;
    uint32_t end[ALG_MAX_RANKS]; /* the block behind each part's */
    alg_part_t part[ALG_MAX_RANKS];
} parts_t;

/* A part as a call. */
LANE_HOST_FN alg_call_t parts_one(alg_call_t call, const alg_part_t &part)
{
    call.root = part.root;
    call.input = part.input;
    call.output = part.output;
    call.count = part.count;
    call.part_count = 0;
    return call;
}

/* This block's part. */
LANE_FN alg_call_t parts_take(const parts_t &p, lane_t &lane)
{
    uint32_t i = 0;
    while (lane.grid_block >= p.end[i])
        i++;
    lane_part(lane, i, i > 0 ? p.end[i - 1] : 0, p.end[i]);
    return parts_one(p.call, p.part[i]);
}

static inline uint32_t parts_blocks(const alg_call_t *call)
{
    const uint32_t blocks = launch_blocks(call);
#ifdef __CUDACC__
    return blocks;
#else
    return blocks < LAUNCH_HOST_BLOCKS ? blocks : (uint32_t)LAUNCH_HOST_BLOCKS;
#endif
}

/* `call` in the units of `as` (launch_in_bytes). Each part has a block, and of the others as many as its length is
 * worth. most: alg_algorithm_t.part_bytes. */
static inline parts_t parts_make(const alg_call_t *call, const alg_call_t *as, uint64_t most)
{
    parts_t p = {*as, call->part_count, {0}, {}};
    const uint64_t unit = alg_type_bytes(call->type) / alg_type_bytes(as->type);
    const uint32_t others = parts_blocks(call) - p.count;
    uint64_t all = 0, before = 0;
    for (uint32_t i = 0; i < p.count; i++) {
        p.part[i] = call->parts[i];
        p.part[i].count *= unit;
        all += p.part[i].count;
    }
    for (uint32_t i = 0; i < p.count; i++) {
        before += p.part[i].count;
        p.end[i] = i + 1 + (uint32_t)(others * before / all);
    }
    launch_slots(&p.call, most);
    p.call.series = series_of(call->collective, p.part[0].root, p.part[p.count - 1].root);
    p.call.stride = 0;
    return p;
}

/* For all of them: a part's first wait begins with the first part's, while another rank may make the calls one by one.
 */
static inline alg_team_t parts_team(const alg_team_t *team, const parts_t &p)
{
    alg_team_t patient = *team;
    patient.timeout_ns *= p.count;
    return patient;
}

/* Of a kernel for all of them: whole only if all are. */
static inline int parts_body_kind(const alg_team_t *team, const parts_t *p)
{
    int least = BODY_KINDS;
    for (uint32_t i = 0; i < p->count; i++) {
        const alg_call_t call = parts_one(p->call, p->part[i]);
        const int kind = launch_body_kind(team, &call);
        least = kind < least ? kind : least;
    }
    return least;
}

/* alone(call) for a call without parts, and for each part where there are fewer blocks than parts; else
 * together(parts). The rest is parts_make's. */
template <class F, class G>
static int parts_launch(const alg_call_t *call, const alg_call_t *as, uint64_t most, F alone, G together)
{
    if (call->part_count == 0)
        return alone(call);
    if (call->part_count <= parts_blocks(call))
        return together(parts_make(call, as, most));
    int error = 0;
    for (uint32_t i = 0; i < call->part_count && error == 0; i++) {
        const alg_call_t one = parts_one(*call, call->parts[i]);
        error = alone(&one);
    }
    return error;
}

/* Reductions for three ranks and more have one kernel: a type has many, and compiling them takes long. */
template <int N> constexpr int PARTS_RANKS = N == 2 ? 2 : ALG_MAX_RANKS;

#ifdef __CUDACC__

typedef void (*parts_kernel_t)(alg_team_t, parts_t);
typedef parts_kernel_t parts_kernels_t[OPS_KINDS][BODY_KINDS]; /* of one type */
typedef parts_kernel_t parts_move_kernels_t[BODY_KINDS];

template <class A, int TYPE, int OPS, int N, bool WHOLE>
__global__ void __launch_bounds__(launch_most_threads<A>(N), LAUNCH_BLOCKS_OF<A, N>)
    parts_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ parts_t parts)
{
    lane_t lane = lane_here();
    const alg_call_t call = parts_take(parts, lane);
    A::template run<TYPE, OPS, N, WHOLE>(lane, team, call);
}

template <class A, int N, bool WHOLE>
__global__ void __launch_bounds__(launch_most_threads<A>(N), LAUNCH_BLOCKS_OF<A, N>)
    parts_move_kernel(const __grid_constant__ alg_team_t team, const __grid_constant__ parts_t parts)
{
    lane_t lane = lane_here();
    const alg_call_t call = parts_take(parts, lane);
    A::template run<N, WHOLE, false>(lane, team, call);
}

template <class A, int TYPE, int OPS, int N, bool WHOLE>
constexpr parts_kernel_t parts_kernel_of = parts_kernel<A, TYPE, OPS, PARTS_RANKS<N>, WHOLE>;

#define PARTS_MOVE(A, W) \
    parts_move_kernel<A, 8, W>, parts_move_kernel<A, 2, W>, parts_move_kernel<A, 3, W>, parts_move_kernel<A, 4, W>

static inline int parts_grid(parts_kernel_t kernel, const alg_team_t *team, const parts_t &p, uint32_t most_threads,
                             void *stream)
{
    const uint32_t threads = p.call.threads < most_threads ? p.call.threads : most_threads;
    const alg_team_t patient = parts_team(team, p);
    return launch_grid(kernel, &patient, p, parts_blocks(&p.call), threads, 0, stream);
}

#ifdef ALG_ONE_TYPE
#define ALG_REDUCER_OF_PARTS_OF(family, A, type)                                              \
    extern "C" {                                                                              \
    extern const parts_kernels_t ALG_TYPE_ROW(family, type);                                  \
    const parts_kernels_t ALG_TYPE_ROW(family, type) = ALG_PER_OPS(parts_kernel_of, A, type); \
    }
#define ALG_REDUCER_OF_PARTS_ONE(family, A, type) ALG_REDUCER_OF_PARTS_OF(family, A, type)
#define ALG_REDUCER_OF_PARTS(family, alone, A) ALG_REDUCER_OF_PARTS_ONE(family, A, ALG_ONE_TYPE)
#else
#define ALG_REDUCER_OF_PARTS(family, alone, A)                                                            \
    ALG_TYPE_TABLE(parts_kernels_t, family)                                                               \
    extern "C" int family##_launch(const alg_team_t *team, const alg_call_t *call, void *stream)          \
    {                                                                                                     \
        return parts_launch(                                                                              \
            call, call, A::segment(team, call),                                                           \
            [team, stream](const alg_call_t *one) { return alone##_launch(team, one, stream); },          \
            [team, stream](const parts_t &p) {                                                            \
                const parts_kernel_t *kernels = (*family##_kernels[p.call.type])[ops_kind(p.call.op)];    \
                return parts_grid(kernels[parts_body_kind(team, &p)], team, p,                            \
                                  launch_most_threads<A>(team->nranks == 2 ? 2 : ALG_MAX_RANKS), stream); \
            });                                                                                           \
    }                                                                                                     \
    extern "C" int family##_preload(void)                                                                 \
    {                                                                                                     \
        const int error = alone##_preload();                                                              \
        return error ? error : launch_preload_types(family##_kernels);                                    \
    }
#endif

#define ALG_MOVER_OF_PARTS(family, alone, A)                                                          \
    static const parts_move_kernels_t family##_kernels = {PARTS_MOVE(A, false), PARTS_MOVE(A, true)}; \
    extern "C" int family##_launch(const alg_team_t *team, const alg_call_t *call, void *stream)      \
    {                                                                                                 \
        const alg_call_t moved = launch_in_bytes(call);                                               \
        return parts_launch(                                                                          \
            call, &moved, A::segment(team, &moved),                                                   \
            [team, stream](const alg_call_t *one) { return alone##_launch(team, one, stream); },      \
            [team, stream](const parts_t &p) {                                                        \
                return parts_grid(family##_kernels[parts_body_kind(team, &p)], team, p,               \
                                  launch_most_threads<A>(team->nranks), stream);                      \
            });                                                                                       \
    }                                                                                                 \
    extern "C" int family##_preload(void)                                                             \
    {                                                                                                 \
        int error = alone##_preload();                                                                \
        for (int i = 0; i < BODY_KINDS && error == 0; i++)                                            \
            error = launch_preload(family##_kernels[i]);                                              \
        return error;                                                                                 \
    }

#else

typedef void (*parts_body_t)(lane_t, const alg_team_t &, const parts_t &);
typedef parts_body_t parts_bodies_t[ALG_TYPE_COUNT][OPS_KINDS][BODY_KINDS];
typedef parts_body_t parts_move_bodies_t[BODY_KINDS];

template <class A, int TYPE, int OPS, int N, bool WHOLE>
void parts_run(lane_t lane, const alg_team_t &team, const parts_t &parts)
{
    const alg_call_t call = parts_take(parts, lane);
    A::template run<TYPE, OPS, N, WHOLE>(lane, team, call);
}

template <class A, int TYPE, int OPS, int N, bool WHOLE>
constexpr parts_body_t parts_body = parts_run<A, TYPE, OPS, PARTS_RANKS<N>, WHOLE>;

template <class A, int N, bool WHOLE> void parts_move(lane_t lane, const alg_team_t &team, const parts_t &parts)
{
    const alg_call_t call = parts_take(parts, lane);
    A::template run<N, WHOLE, false>(lane, team, call);
}

static inline int parts_host(parts_body_t body, const alg_team_t *team, parts_t p)
{
    const alg_team_t patient = parts_team(team, p);
    p.call.threads = 1;
    return launch_counted(body, &patient, p, parts_blocks(&p.call), p.count);
}

#define ALG_REDUCER_OF_PARTS(family, alone, A)                                                                     \
    static const parts_bodies_t family##_bodies = ALG_PER_TYPE(parts_body, A);                                     \
    static int family##_host(const alg_team_t *team, const alg_call_t *call)                                       \
    {                                                                                                              \
        return parts_launch(                                                                                       \
            call, call, A::segment(team, call), [team](const alg_call_t *one) { return alone##_host(team, one); }, \
            [team](const parts_t &p) {                                                                             \
                const parts_body_t *bodies = family##_bodies[p.call.type][ops_kind(p.call.op)];                    \
                return parts_host(bodies[parts_body_kind(team, &p)], team, p);                                     \
            });                                                                                                    \
    }                                                                                                              \
    ALG_CUDA_DECLARE(family)

#define ALG_MOVER_OF_PARTS(family, alone, A)                                                                           \
    static const parts_move_bodies_t family##_bodies = {parts_move<A, 8, false>, parts_move<A, 4, false>,              \
                                                        parts_move<A, 8, true>, parts_move<A, 4, true>};               \
    static int family##_host(const alg_team_t *team, const alg_call_t *call)                                           \
    {                                                                                                                  \
        const alg_call_t moved = launch_in_bytes(call);                                                                \
        return parts_launch(                                                                                           \
            call, &moved, A::segment(team, &moved), [team](const alg_call_t *one) { return alone##_host(team, one); }, \
            [team](const parts_t &p) { return parts_host(family##_bodies[parts_body_kind(team, &p)], team, p); });     \
    }                                                                                                                  \
    ALG_CUDA_DECLARE(family)

#endif

#define ALG_DESCRIBE_PARTS(symbol, title, kind, family, A) \
    ALG_DESCRIBE_WITH(ALG_MEMORY_PEER, symbol, title, kind, family, A, A::segment)

#endif
