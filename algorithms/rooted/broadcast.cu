/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast.cu - broadcast in two steps (rooted.h).
 *
 * Data path: slice o of the root's input -> the root's slot at rank o -> output, and rank o's slot at every other rank
 * but the root -> output there. */
#include "algorithms/device/buffers.h"
#include "algorithms/rooted/rooted.h"

struct rooted_broadcast {
    enum { MOST_THREADS = 1024 };

    template <int N, bool WHOLE> struct view {
        slices_t p;
        slots<MARK_ESCAPE, N> s;
        buffer_t in, out;
        const uint8_t *scratch; /* this rank's */
        uint32_t first;
        bool keeps; /* the root must copy its input to its output */

        LANE_FN void store(uint32_t v, const vec16_t &x) const
        {
            if (WHOLE)
                buffer_store_whole(out, v, x);
            else
                buffer_store<uint8_t>(out, v, x);
        }

        LANE_FN void load(const alg_team_t &team, bool exists, uint32_t k, vec16_t (&x)[N]) const
        {
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i >= s.ranks())
                    break;
                const uint32_t owner = ring_next(team, i), v = slices_at(p, owner, first + k);
                const bool wanted = exists && slices_has(p, owner, first + k);
                if (WHOLE)
                    x[i] = buffer_load_whole_if(wanted, in, v, scratch);
                else if (wanted)
                    x[i] = buffer_load<uint8_t>(in, v);
            }
        }

        LANE_FN void send(const alg_team_t &team, uint32_t k, const vec16_t (&x)[N]) const
        {
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                const uint32_t owner = ring_next(team, i);
                if (i >= s.ranks() || !slices_has(p, owner, first + k))
                    continue;
                s.put(i, k, x[i]);
                if (keeps)
                    store(slices_at(p, owner, first + k), x[i]);
            }
        }

        LANE_FN bool relay(lane_t &lane, const alg_team_t &team, uint32_t k) const
        {
            if (!slices_has(p, team.rank, first + k))
                return true;
            const uint32_t slot = other_place(p.root, team.rank);
            vec16_t x;
            if (!s.take_one(lane, team, slot, k, x))
                return false;
            vec16_t clean = x;
            const uint32_t escape = mark_clean<MARK_ESCAPE>(clean);
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i < s.ranks() && ring_next(team, i) != p.root)
                    s.put_clean(i, k, clean, escape);
            }
            store(slices_at(p, team.rank, first + k), x);
            s.rearm(1u << slot, k);
            return true;
        }

        LANE_FN bool take(lane_t &lane, const alg_team_t &team, uint32_t k) const
        {
            uint32_t wanted = 0;
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (j + 1 < s.ranks() && slices_has(p, other_rank(team, j), first + k))
                    wanted |= 1u << j;
            }
            vec16_t x[N - 1];
            if (!s.take(lane, team, wanted, k, x))
                return false;
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (wanted >> j & 1)
                    store(slices_at(p, other_rank(team, j), first + k), x[j]);
            }
            s.rearm(wanted, k);
            return true;
        }
    };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        if (EACH)
            return;
        const uint32_t stride = lane.blocks * lane.threads;
        const bool root = team.rank == call.root;
        view<N, WHOLE> w;
        w.first = lane.block * lane.threads + lane.thread;
        w.p = slices_make(team, call, buffer_vectors(call.count));
        w.s = slots<MARK_ESCAPE, N>::make(team, 1, w.p.each, w.first);
        w.in = buffer_make(call.input, call.count);
        w.out = buffer_make(call.output, call.count);
        w.scratch = team.scratch[team.rank];
        w.keeps = call.output != call.input;
        notices_t notices = slices_notices(team, w.p, MARK_ESCAPE);

        lane_begin(w.s.held(), call.early);
        const uint64_t epoch = epoch_read(team);
        vec16_t x[N];
        w.load(team, root && w.first < w.p.each, 0, x);
        if (epoch_stopped(epoch))
            return;
        const uint64_t half = epoch_half(team, epoch);
        w.s.move(half);
        notices.at += half;
        notices_send(lane, team, notices);
        if (root && w.first < w.p.each)
            w.send(team, 0, x);
        epoch_leave(lane, team);
        for (uint32_t k = stride; root && w.first + k < w.p.each; k += stride) {
            w.load(team, true, k, x);
            w.send(team, k, x);
        }
        const uint32_t ahead = LANE_AHEAD * stride;
        for (uint32_t k = 0; !root && w.first + k < w.p.each + ahead; k += stride) {
            if (w.first + k < w.p.each && !w.relay(lane, team, k))
                return;
            if (k >= ahead && !w.take(lane, team, k - ahead))
                return;
        }
        notices_take(lane, team, notices);
    }

    static uint64_t segment_bytes(const alg_team_t *team, const alg_call_t *)
    {
        return rooted_segment(team->half_bytes, team->nranks, MARK_ESCAPE);
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *, uint32_t nranks, alg_type_t)
    {
        return push_most_bytes(nranks);
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        rooted_shape(bytes, nranks, grid_most_threads<rooted_broadcast>(nranks), blocks, threads);
    }
};

template <> inline constexpr bool ANY_GRID<rooted_broadcast> = true;
template <> inline constexpr alg_cost_t COST<rooted_broadcast, ALG_BROADCAST> = {ALG_LOAD_WHOLE, 0.9, 0.74, 2};

ALG_ENTRIES(alg_rooted_broadcast, mover<rooted_broadcast>)
ALG_DESCRIBE(alg_broadcast_twoshot, "twoshot", ALG_BROADCAST, ALG_MEMORY_PEER, alg_rooted_broadcast)
