/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.cu - reduce in two steps (rooted.h).
 *
 * Data path: slice o of every rank's input -> that rank's slot at rank o -> added there in rank order -> rank o's slot
 * at the root -> output. In place is safe: at each position a lane sends before it stores. */
#include "algorithms/device/input.h"
#include "algorithms/rooted/rooted.h"

template <int TYPE, int OPS, int N, bool WHOLE> struct reduce_lane {
    typedef reduction<TYPE, OPS, N, WHOLE> R;
    typedef slots<R::MARK, N> slots_t;

    R r;
    slices_t p;
    slots_t s;
    uint32_t first;

    LANE_FN static reduce_lane make(const alg_team_t &team, const kernel_call_t &call, uint32_t first)
    {
        reduce_lane l;
        l.r = R::make(team, call);
        l.p = slices_make(team, call, l.r.vectors());
        l.s = slots_t::make(team, 1, l.p.each, first);
        l.first = first;
        return l;
    }

    LANE_FN void load(const alg_team_t &team, bool exists, uint32_t k, vec16_t (&x)[N]) const
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i >= s.ranks())
                break;
            const uint32_t owner = ring_next(team, i);
            x[i] = r.load_if(exists && slices_has(p, owner, first + k), slices_at(p, owner, first + k));
        }
    }

    LANE_FN void put(const alg_team_t &team, uint32_t k, const vec16_t (&x)[N]) const
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks() && slices_has(p, ring_next(team, i), first + k))
                s.put(i, k, x[i]);
        }
    }

    LANE_FN bool reduce(lane_t &lane, const alg_team_t &team, uint32_t k) const
    {
        if (!slices_has(p, team.rank, first + k))
            return true;
        const vec16_t own = r.load(slices_at(p, team.rank, first + k));
        vec16_t x[N - 1];
        if (!s.take(lane, team, s.all(), k, x))
            return false;
        const vec16_t result = r.combine(x, team.rank, own);
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks() && ring_next(team, i) == p.root)
                s.put(i, k, result);
        }
        s.rearm(s.all(), k);
        return true;
    }

    LANE_FN bool take(lane_t &lane, const alg_team_t &team, uint32_t k) const
    {
        uint32_t wanted = 0;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (j + 1 < s.ranks() && j * p.each + first + k < p.vectors)
                wanted |= 1u << j;
        }
        vec16_t x[N - 1];
        if (!s.take(lane, team, wanted, k, x))
            return false;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++) {
            if (wanted >> j & 1)
                r.store(j * p.each + first + k, x[j]);
        }
        s.rearm(wanted, k);
        return true;
    }
};

struct rooted_reduce {
    enum { MOST_THREADS = 1024 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduce_lane<TYPE, OPS, N, WHOLE> L;
        const uint32_t stride = lane.blocks * lane.threads;
        const uint32_t first = lane.block * lane.threads + lane.thread;
        L l = L::make(team, call, first);
        notices_t notices = slices_notices(team, l.p, L::R::MARK);

        lane_begin(l.r.held() | l.s.held(), call.early);
        l.r.begin(call);
        const uint64_t epoch = epoch_read(team);
        vec16_t x[N];
        l.load(team, first < l.p.each, 0, x);
        if (epoch_stopped(epoch))
            return;
        const uint64_t half = epoch_half(team, epoch);
        l.s.move(half);
        notices.at += half;
        notices_send(lane, team, notices);
        if (first < l.p.each)
            l.put(team, 0, x);
        epoch_leave(lane, team);
        const uint32_t ahead = LANE_AHEAD * stride;
        for (uint32_t k = stride; k < ahead && first + k < l.p.each; k += stride) {
            l.load(team, true, k, x);
            l.put(team, k, x);
        }
        for (uint32_t k = 0; first + k < l.p.each; k += stride) {
            if (first + k + ahead < l.p.each) {
                l.load(team, true, k + ahead, x);
                l.put(team, k + ahead, x);
            }
            if (team.rank == call.root ? !l.take(lane, team, k) : !l.reduce(lane, team, k))
                return;
        }
        notices_take(lane, team, notices);
    }

    static uint64_t segment_bytes(const alg_team_t *team, const alg_call_t *call)
    {
        return rooted_segment(team->half_bytes, team->nranks, mark_of(call->type));
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *, uint32_t nranks, alg_type_t)
    {
        return push_most_bytes(nranks);
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        rooted_shape(bytes, nranks, grid_most_threads<rooted_reduce>(nranks), blocks, threads);
    }
};

template <> inline constexpr bool ANY_GRID<rooted_reduce> = true;
template <> inline constexpr alg_cost_t COST<rooted_reduce, ALG_REDUCE> = {ALG_LOAD_WHOLE, 0.9, 0.74, 2};

ALG_ENTRIES(alg_rooted_reduce, reducer<rooted_reduce>)
ALG_DESCRIBE(alg_reduce_twoshot, "twoshot", ALG_REDUCE, ALG_MEMORY_PEER, alg_rooted_reduce)
