/* SPDX-License-Identifier: Apache-2.0 */
/* push.h - collectives in one step: each sender stores into its slot at every receiver, which polls it (slots.h). In
 * place is safe: at each position a lane sends before it stores.
 *
 * SHORT: less code for short calls of two ranks without a root; a lane moves one vector at a time. */
#ifndef SHUNT_PUSH_H
#define SHUNT_PUSH_H

#include "algorithms/device/list.h"
#include "algorithms/device/notice.h"
#include "algorithms/device/parts.h"
#include "algorithms/device/slots.h"

typedef struct push {
    uint32_t sends; /* bit i: this rank sends to the i-th rank after it */
    uint32_t takes; /* bit j: this rank receives from other_rank(j) */
    bool both;      /* this rank sends and receives: its own block belongs in its output */
    notices_t notices;
    bool has_notices;
} push_t;

/* Notices lie at the end of a half, a set per root, since calls of a series share the half (series.h). */
LANE_HOST_FN uint64_t push_notice_bytes(uint32_t nranks)
{
    return nranks * notice_bytes(nranks);
}

/* Without a root all send to all. Constants shorten the code (docs/lab/results/push-route-4-h200.csv). */
template <bool ROOTED> LANE_FN push_t push_make(const alg_team_t &team, const kernel_call_t &call, uint32_t nranks)
{
    if (!ROOTED)
        return push_t{(2u << (nranks - 1)) - 2, (1u << (nranks - 1)) - 1, true, {0, 0, 0}, false};
    const route_t route = route_of(team, call.collective, call.root);
    const bool sends = route_has(route.senders, team.rank), takes = route_has(route.takers, team.rank);
    push_t p = {0, 0, sends && takes, {0, 0, 0}, (route.senders & route.takers) != route_all(team)};
    for (uint32_t i = 1; i < team.nranks; i++) {
        if (sends && route_has(route.takers, ring_next(team, i)))
            p.sends |= 1u << i;
        if (takes && route_has(route.senders, other_rank(team, i - 1)))
            p.takes |= 1u << (i - 1);
    }
    if (p.has_notices) {
        const uint64_t at = team.half_offset + team.half_bytes - push_notice_bytes(team.nranks);
        p.notices = notices_make(team, at + call.root * notice_bytes(team.nranks), sends ? route.takers : 0,
                                 takes ? route.senders : 0);
    }
    return p;
}

template <bool ROOTED> LANE_FN series_t push_read(const alg_team_t &team)
{
    return ROOTED ? series_read(team) : series_t{epoch_read(team), 0, false};
}

template <bool ROOTED>
LANE_FN void push_leave(const lane_t &lane, const alg_team_t &team, const series_t &turn, uint32_t series)
{
    if (ROOTED)
        series_leave(lane, team, turn, series);
    else
        epoch_leave(lane, team);
}

/* Largest block for SHORT: longer ones gain nothing (docs/lab/results/short-kernels-2-h100.csv). */
enum { PUSH_SHORT_BYTES = 16 << 10 };

inline constexpr alg_cost_t PUSH_BLOCKS = {ALG_LOAD_BLOCKS, 0, 0.74, 1};
inline constexpr alg_cost_t PUSH_TO_EACH = {ALG_LOAD_TO_EACH, 0, 0.74, 1};

template <int N, bool SHORT> constexpr uint32_t PUSH_ROWS = SHORT ? 1 : SLOTS_ROWS<N>;

template <bool ROOTED> LANE_FN uint64_t push_at(const alg_team_t &team, const kernel_call_t &call, const series_t &turn)
{
    return ROOTED ? series_half(team, turn) : turns_at(call.turns, turn.epoch);
}

template <bool ROOTED> LANE_FN uint64_t push_held(const kernel_call_t &call)
{
    return ROOTED ? 0 : turns_held(call.turns);
}

/* Most bytes of a rank's block that fit a half. */
static inline uint64_t push_segment(uint64_t half_bytes, uint32_t nranks, mark_t mark)
{
    const uint64_t vector = slots_bytes(mark, nranks - 1, 4) / 4;
    return (half_bytes - push_notice_bytes(nranks)) / vector / 4 * 4 * VEC;
}

/* Vectors are counted in 32 bits. */
static inline uint64_t push_most_bytes(uint32_t nranks)
{
    return nranks < 2 ? 0 : (uint64_t)32 << 30;
}

template <class A> struct push_limits {
    static uint64_t max_bytes(alg_collective_t, const alg_map_t *, uint32_t nranks, alg_type_t)
    {
        return push_most_bytes(nranks);
    }

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        const uint64_t block_bytes = bytes / alg_collective_blocks(collective, nranks);
        grid_shape(buffer_vectors(block_bytes), grid_most_threads<A>(nranks), blocks, threads);
    }
};

#endif
