/* SPDX-License-Identifier: Apache-2.0 */
/*
 * twoshot.cu - all-reduce, two-shot push: scatter to owners, owners add and put
 * the result everywhere.
 *
 * Data path: input slice o -> this rank's scatter slot at rank o -> rank o adds
 * in rank order -> output slice o, and rank o's gather slot at every peer ->
 * output. Two crossings, 2 (n-1)/n S bytes out of each rank:
 * time = t0 + one crossing + 2 (n-1)/n S / B. It wins in the middle, from where
 * n/2 times fewer bytes pay for the second crossing to where the half is full.
 *
 * There is no barrier: arrival is told by the data (slots.h). A result's arrival
 * also proves that its owner has read this rank's contribution, so in place is
 * free: output slices are written after the same lanes have put the input.
 * The rule of the halves (algorithm.h) holds for the shortest message too: slice
 * 0 is never empty, its owner hears from every rank, and every rank from it.
 */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/device/slots.h"

template <int TYPE, int OPS, int N, bool WHOLE> struct twoshot_lane {
    typedef reduction<TYPE, OPS, N, WHOLE> R;
    typedef slots<R::MARK, N> slots_t;

    R r;
    slots_t s; /* the first set for scatter, the second for gather */
    uint32_t vectors, slice;
    uint32_t at[N]; /* the lane's first vector in the slice of the rank i places after us */

    LANE_FN static twoshot_lane make(const alg_team_t &team, const alg_call_t &call, uint32_t first);

    LANE_FN uint64_t held()
    {
        uint64_t all = r.held() | s.held();
        LANE_UNROLL
        for (uint32_t i = 0; i < N; i++)
            all |= i < s.ranks() ? at[i] : 0;
        return all;
    }

    /* Of every other slice, if this lane has any of it. All are in flight at once. */
    LANE_FN void load(bool any, uint32_t k, vec16_t x[N]) const
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks())
                x[i] = r.load_if(any && at[i] + k < vectors, at[i] + k);
        }
    }

    /* Each to its owner. */
    LANE_FN void put(uint32_t k, const vec16_t x[N]) const
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks() && at[i] + k < vectors)
                s.put(i, k, x[i]);
        }
    }

    /* Of the own slice, of all ranks, added; the result to everybody. */
    LANE_FN bool reduce(lane_t &lane, const alg_team_t &team, uint32_t k) const
    {
        if (at[0] + k >= vectors)
            return true;
        const vec16_t own = r.load(at[0] + k);
        vec16_t x[N - 1];
        if (!s.take(lane, team, s.all(), k, x))
            return false;
        const vec16_t result = r.combine(x, team.rank, own);
        s.put_all(s.second_set() + k, result);
        r.store(at[0] + k, result);
        s.rearm(s.all(), k);
        return true;
    }

    /* Of every other slice, from its owner. */
    LANE_FN bool take(lane_t &lane, const alg_team_t &team, uint32_t k) const
    {
        const uint32_t first = at[0] - team.rank * slice;
        uint32_t wanted = 0;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (j + 1 < s.ranks() && other_rank(team, j) * slice + first + k < vectors)
                wanted |= 1u << j;
        }
        vec16_t x[N - 1];
        if (!s.take(lane, team, wanted, s.second_set() + k, x))
            return false;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (wanted >> j & 1)
                r.store(other_rank(team, j) * slice + first + k, x[j]);
        }
        s.rearm(wanted, s.second_set() + k);
        return true;
    }
};

struct twoshot {
    enum { MOST_THREADS = 1024 };

    LANE_HOST_FN static uint32_t slice_vectors(uint32_t vectors, uint32_t nranks)
    {
        return (vectors + nranks - 1) / nranks;
    }

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        const uint32_t stride = lane.blocks * lane.threads;
        const uint32_t first = lane.block * lane.threads + lane.thread;
        auto l = twoshot_lane<TYPE, OPS, N, WHOLE>::make(team, call, first);

        lane_begin(l.held(), call.early);
        l.r.begin(call);
        const uint64_t epoch = epoch_read(team);
        vec16_t x[N];
        l.load(first < l.slice, 0, x);
        if (epoch_stopped(epoch))
            return;
        l.s.move(epoch_half(team, epoch));
        if (first < l.slice)
            l.put(0, x);
        for (uint32_t k = stride; first + k < l.slice; k += stride) {
            l.load(true, k, x);
            l.put(k, x);
        }
        epoch_leave(lane, team);
        for (uint32_t k = 0; first + k < l.slice; k += stride) {
            if (!l.reduce(lane, team, k))
                return;
        }
        for (uint32_t k = 0; first + k < l.slice; k += stride) {
            if (!l.take(lane, team, k))
                return;
        }
    }

    static uint64_t segment(const alg_team_t *, const alg_call_t *)
    {
        return UINT64_MAX;
    }

    template <int COLLECTIVE> static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        const uint64_t vector = slots_bytes(mark_of(type), 2 * (nranks - 1), 4) / 4; /* of a slice */
        return nranks < 2 ? 0 : map->half_bytes / vector / 4 * 4 * VEC * nranks;
    }

    template <int COLLECTIVE> static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        launch_shape(slice_vectors(buffer_vectors(bytes), nranks), launch_most_threads<twoshot>(nranks), blocks,
                     threads);
    }
};

template <int TYPE, int OPS, int N, bool WHOLE>
LANE_FN twoshot_lane<TYPE, OPS, N, WHOLE>
twoshot_lane<TYPE, OPS, N, WHOLE>::make(const alg_team_t &team, const alg_call_t &call, uint32_t first)
{
    twoshot_lane l;
    l.r = R::make(team, call);
    l.vectors = l.r.vectors();
    l.slice = twoshot::slice_vectors(l.vectors, N <= EXACT_RANKS ? N : team.nranks);
    l.s = slots_t::make(team, 2, l.slice, first);
    LANE_UNROLL
    for (uint32_t i = 0; i < N; i++) {
        if (i < l.s.ranks())
            l.at[i] = ring_next(team, i) * l.slice + first;
    }
    return l;
}

ALG_REDUCER(alg_twoshot, twoshot)
ALG_DESCRIBE(alg_allreduce_twoshot, "twoshot", ALG_ALL_REDUCE, alg_twoshot, twoshot)
