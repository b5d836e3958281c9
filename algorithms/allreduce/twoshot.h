/* SPDX-License-Identifier: Apache-2.0 */
/* twoshot.h - a lane's part of a two-shot all-reduce: it sends slices to their owners, and takes results from them.
 * nodes/exchange.cu exchanges with other nodes in between. */
#ifndef SHUNT_TWOSHOT_H
#define SHUNT_TWOSHOT_H

#include "algorithms/device/input.h"
#include "algorithms/device/slots.h"

LANE_HOST_FN uint32_t twoshot_slice(uint32_t vectors, uint32_t nranks)
{
    return (vectors + nranks - 1) / nranks;
}

/* Most bytes of a buffer that fit a half. */
static inline uint64_t twoshot_room(uint64_t half_bytes, uint32_t nranks, alg_type_t type)
{
    const uint64_t vector = slots_bytes(mark_of(type), 2 * (nranks - 1), 4) / 4;
    return nranks < 2 ? 0 : half_bytes / vector / 4 * 4 * VEC * nranks;
}

/* k is an offset in vectors from the lane's first vector in a slice. reduce and take handle ROWS vectors, `stride`
 * apart, and need first + k < slice. */
template <int TYPE, int OPS, int N, bool WHOLE> struct twoshot_lane {
    typedef reduction<TYPE, OPS, N, WHOLE> R;
    typedef slots<R::MARK, N> slots_t;

    R r;
    slots_t s; /* two sets: scatter, gather */
    uint32_t vectors, slice, first;
    uint32_t at[N]; /* [i]: the lane's first vector in the slice of the i-th rank after this one */

    LANE_FN static twoshot_lane make(const alg_team_t &team, const kernel_call_t &call, uint32_t first)
    {
        twoshot_lane l;
        l.first = first;
        l.r = R::make(team, call);
        l.vectors = l.r.vectors();
        l.slice = twoshot_slice(l.vectors, N <= EXACT_RANKS ? N : team.nranks);
        l.s = slots_t::make(team, 2, l.slice, first);
        LANE_UNROLL
        for (uint32_t i = 0; i < N; i++) {
            if (i < l.s.ranks())
                l.at[i] = ring_next(team, i) * l.slice + first;
        }
        return l;
    }

    LANE_FN uint64_t held()
    {
        uint64_t all = r.held() | s.held();
        LANE_UNROLL
        for (uint32_t i = 0; i < N; i++)
            all |= i < s.ranks() ? at[i] : 0;
        return all;
    }

    LANE_FN void load(bool exists, uint32_t k, vec16_t x[N]) const
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks())
                x[i] = r.load_if(exists && at[i] + k < vectors, at[i] + k);
        }
    }

    LANE_FN void put(uint32_t k, const vec16_t x[N]) const
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks() && at[i] + k < vectors)
                s.put(i, k, x[i]);
        }
    }

    template <uint32_t ROWS>
    LANE_FN bool reduce(lane_t &lane, const alg_team_t &team, uint32_t k, uint32_t stride) const
    {
        if (at[0] + k >= vectors)
            return true;
        uint32_t wanted[ROWS] = {s.all()};
        vec16_t own[ROWS] = {r.load(at[0] + k)}, x[ROWS][N - 1];
        LANE_UNROLL
        for (uint32_t b = 1; b < ROWS; b++) {
            wanted[b] = first + k + b * stride < slice && at[0] + k + b * stride < vectors ? s.all() : 0;
            own[b] = r.load_if(wanted[b] != 0, at[0] + k + b * stride);
        }
        if (!s.take_rows(lane, team, wanted, k, stride, x))
            return false;
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS && wanted[b] != 0; b++) {
            const uint32_t row = k + b * stride;
            const vec16_t result = r.combine(x[b], team.rank, own[b]);
            s.put_all(s.second_set() + row, result);
            r.store(at[0] + row, result);
            s.rearm(s.all(), row);
        }
        return true;
    }

    template <uint32_t ROWS> LANE_FN bool take(lane_t &lane, const alg_team_t &team, uint32_t k, uint32_t stride) const
    {
        uint32_t wanted[ROWS];
        vec16_t x[ROWS][N - 1];
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++) {
            wanted[b] = 0;
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (j + 1 < s.ranks() && (b == 0 || first + k + b * stride < slice) &&
                    other_rank(team, j) * slice + first + k + b * stride < vectors)
                    wanted[b] |= 1u << j;
            }
        }
        if (!s.take_rows(lane, team, wanted, s.second_set() + k, stride, x))
            return false;
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++) {
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (wanted[b] >> j & 1)
                    r.store(other_rank(team, j) * slice + first + k + b * stride, x[b][j]);
            }
            s.rearm(wanted[b], s.second_set() + k + b * stride);
        }
        return true;
    }
};

#endif
