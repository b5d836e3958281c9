/* SPDX-License-Identifier: Apache-2.0 */
/* parts.h - several broadcasts, or reduces, in one kernel. Each is a part of the call (alg_call_t.parts), which `run`
 * serves with blocks of its own. Other ranks may make these calls one by one (series.h).
 *
 * A file with ALG_ENTRIES of a parts_reducer also needs ALG_ENTRIES of reducer<A>, for calls without parts. */
#ifndef SHUNT_PARTS_H
#define SHUNT_PARTS_H

#include "algorithms/device/launch.h"

typedef struct parts {
    kernel_call_t call;
    uint32_t count;
    uint32_t end[ALG_MAX_RANKS]; /* the block after each part's last */
    alg_part_t part[ALG_MAX_RANKS];
} parts_t;

LANE_HOST_FN kernel_call_t parts_one(const kernel_call_t &common, const alg_part_t &part)
{
    kernel_call_t call = common;
    call.root = part.root;
    call.input = part.input;
    call.output = part.output;
    call.count = part.count;
    return call;
}

/* Returns this block's part, and restricts the lane to the part's blocks. */
LANE_FN kernel_call_t kernel_call_of(const parts_t &p, lane_t &lane)
{
    uint32_t i = 0;
    while (lane.grid_block >= p.end[i])
        i++;
    lane_part(lane, i, i > 0 ? p.end[i - 1] : 0, p.end[i]);
    return parts_one(p.call, p.part[i]);
}

template <class A> inline constexpr int REDUCE_EXACT_RANKS<A, parts_t> = 2;

/* Each part gets one block, and a share of the others by its length. common: the call in the kernel's units.
 * most_bytes: alg_algorithm_t.part_bytes. */
static inline parts_t parts_make(const alg_call_t *call, const kernel_call_t &common, uint32_t most_threads,
                                 uint64_t most_bytes)
{
    parts_t p = {common, call->part_count, {0}, {}};
    const uint64_t unit = alg_type_bytes(call->type) / alg_type_bytes(common.type);
    const uint32_t others = common.grid_blocks - p.count;
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
    p.call.threads = common.threads < most_threads ? common.threads : most_threads;
    p.call.stride = 0;
    kernel_call_set_series(p.call, p.part[0].root, p.part[p.count - 1].root, most_bytes);
    return p;
}

static inline bool parts_are_whole(const kernel_call_t &common, const alg_part_t *part, uint32_t count)
{
    bool whole = true;
    for (uint32_t i = 0; i < count; i++)
        whole = whole && kernel_call_is_whole(parts_one(common, part[i]));
    return whole;
}

static inline int parts_launch(kernel_t<parts_t> kernel, const alg_team_t *team, const parts_t &p, void *stream)
{
    /* All parts' time limits start at once, but another rank may make the calls one by one. */
    alg_team_t patient = *team;
    patient.limit = lane_limit_times(patient.limit, p.count);
    return launch_collective(kernel, &patient, p, p.call, p.count, stream);
}

static inline bool parts_fit_one_kernel(const alg_call_t *call)
{
    return call->part_count > 0 && call->part_count <= grid_blocks(call);
}

namespace
{

template <class A> struct parts_reducer {
    typedef A algorithm;
    typedef parts_t argument;
    static constexpr part_bytes_t PART_BYTES = A::segment_bytes;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        if (!parts_fit_one_kernel(call))
            return launch_apart(
                call, [team, stream](const alg_call_t *one) { return reducer<A>::launch(team, one, stream); });
        const uint32_t most_threads = grid_most_threads<A>(reduce_kernel_ranks<A, parts_t>(team->nranks));
        const parts_t p = parts_make(call, kernel_call_make(*call), most_threads, A::segment_bytes(team, call));
        const kernel_t<parts_t> kernel = reduce_kernel_of<A, parts_t>(p.call.type, ops_kind(p.call.op), team->nranks,
                                                                      parts_are_whole(p.call, p.part, p.count));
        return parts_launch(kernel, team, p, stream);
    }

    static int preload(uint32_t nranks)
    {
        const int error = reducer<A>::preload(nranks);
        return error != 0 ? error : reduce_kernels_each<A, parts_t>(nranks, launch_preload<parts_t>);
    }
};

template <class A> struct parts_mover {
    typedef A algorithm;
    static constexpr part_bytes_t PART_BYTES = A::segment_bytes;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        if (!parts_fit_one_kernel(call))
            return launch_apart(call,
                                [team, stream](const alg_call_t *one) { return mover<A>::launch(team, one, stream); });
        const uint32_t most_threads = grid_most_threads<A>(team->nranks);
        const parts_t p = parts_make(call, kernel_call_make_bytes(*call), most_threads, A::segment_bytes(team, call));
        const bool whole = parts_are_whole(p.call, p.part, p.count);
        return parts_launch(move_kernel_of<A, parts_t, false>(team->nranks, whole), team, p, stream);
    }

    static int preload(uint32_t nranks)
    {
        const int error = mover<A>::preload(nranks);
        return error != 0 ? error : move_kernels_each<A, parts_t, false>(nranks, launch_preload<parts_t>);
    }
};

} // namespace

#endif
