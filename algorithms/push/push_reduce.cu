/* SPDX-License-Identifier: Apache-2.0 */
/* push_reduce.cu - reduce-scatter and reduce in one step (push.h).
 *
 * Data path: input (reduce-scatter: block o) -> slot at rank o (reduce: at the root) -> added in rank order ->
 * output. */
#include "algorithms/device/input.h"
#include "algorithms/push/push.h"

template <bool ROOTED, bool SHORT> struct push_add : push_limits<push_add<ROOTED, SHORT>> {
    enum { MOST_THREADS = 1024 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        typedef slots<R::MARK, N> slots_t;
        R r = R::make(team, call);
        const uint32_t vectors = r.vectors(), stride = lane.blocks * lane.threads;
        const uint32_t first = lane.block * lane.threads + lane.thread;
        const uint64_t step = route_input_has_blocks(call.collective) ? call.stride : 0;
        slots_t s = slots_t::make(team, 1, vectors, first);
        const push_t p = push_make<ROOTED>(team, call, s.ranks());
        buffer_t in[N]; /* [i]: block for the i-th rank after this one; [0]: for this rank */
        LANE_UNROLL
        for (uint32_t i = 0; i < N; i++) {
            if (i < s.ranks())
                in[i] = buffer_make(r.input.base + ring_next(team, i) * step, r.input.bytes);
        }

        r.keep(first);
        lane_begin(r.held() | s.held() | push_held<ROOTED>(call), call.early);
        r.begin(call);
        series_t turn = push_read<ROOTED>(team);
        constexpr uint32_t ROWS = PUSH_ROWS<N, SHORT>;
        vec16_t x[ROWS][N];
        load(r, s, p, in, first < vectors, first, x[0]);
        if (epoch_stopped(turn.epoch))
            return;
        if (ROOTED)
            series_compare(turn, call.series);
        const uint64_t half = push_at<ROOTED>(team, call, turn);
        s.move(half);
        notices_t notices = p.notices;
        notices.at += half;
        if (ROOTED && p.has_notices)
            notices_send(lane, team, notices);
        put(s, p, first < vectors, 0, x[0]);
        push_leave<ROOTED>(lane, team, turn, call.series);
        const uint32_t ahead = (LANE_AHEAD > ROWS ? LANE_AHEAD : ROWS) * stride;
        for (uint32_t k = stride; k < ahead && first + k < vectors; k += stride) {
            load(r, s, p, in, true, first + k, x[0]);
            put(s, p, true, k, x[0]);
        }
        for (uint32_t k = 0; first + k < vectors; k += ROWS * stride) {
            if (first + k + ahead < vectors)
                put_rows(r, s, p, in, k + ahead, first + k + ahead, stride, vectors, x);
            if (!p.takes)
                continue;
            const uint32_t left = vectors - first - k;
            uint32_t wanted[ROWS];
            vec16_t own[ROWS];
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++) {
                wanted[b] = b == 0 || b * stride < left ? s.all() : 0;
                own[b] = r.load_from_if(wanted[b] != 0, in[0], first + k + b * stride);
            }
            if (!s.take_rows(lane, team, wanted, k, stride, x))
                return;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS && wanted[b] != 0; b++) {
                r.store_kept(first, k + b * stride, r.combine(x[b], team.rank, own[b]));
                s.rearm(s.all(), k + b * stride);
            }
        }
        if (ROOTED && p.has_notices)
            notices_take(lane, team, notices);
    }

    template <uint32_t ROWS, class R, class S, int N>
    LANE_FN static void put_rows(const R &r, const S &s, const push_t &p, const buffer_t (&in)[N], uint32_t k,
                                 uint32_t v, uint32_t stride, uint32_t vectors, vec16_t (&x)[ROWS][N])
    {
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++)
            load(r, s, p, in, b == 0 || v + b * stride < vectors, v + b * stride, x[b]);
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++)
            put(s, p, b == 0 || v + b * stride < vectors, k + b * stride, x[b]);
    }

    template <class R, class S, int N>
    LANE_FN static void load(const R &r, const S &s, const push_t &p, const buffer_t (&in)[N], bool exists, uint32_t v,
                             vec16_t (&x)[N])
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks())
                x[i] = r.load_from_if(exists && (p.sends >> i & 1), in[i], v);
        }
    }

    template <class S, int N>
    LANE_FN static void put(const S &s, const push_t &p, bool exists, uint32_t k, const vec16_t (&x)[N])
    {
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < s.ranks() && exists && (p.sends >> i & 1))
                s.put(i, k, x[i]);
        }
    }

    static uint64_t segment_bytes(const alg_team_t *team, const alg_call_t *call)
    {
        return push_segment(team->half_bytes, team->nranks, mark_of(call->type));
    }
};

struct push_add_all : push_add<false, false> {
};
struct push_add_short : push_add<false, true> {
};
struct push_add_rooted : push_add<true, false> {
};

template <> inline constexpr bool ANY_GRID<push_add_all> = true;
template <> inline constexpr bool ANY_GRID<push_add_rooted> = true;
template <> inline constexpr bool HAS_PLACES<push_add_all> = true;
template <> inline constexpr bool HAS_PLACES<push_add_short> = true;
template <> inline constexpr int ONLY_RANKS<push_add_short> = 2;
template <> inline constexpr uint64_t ONLY_BYTES<push_add_short> = PUSH_SHORT_BYTES;
template <alg_collective_t C> inline constexpr alg_cost_t COST<push_add_all, C> = PUSH_BLOCKS;
template <alg_collective_t C> inline constexpr alg_cost_t COST<push_add_rooted, C> = PUSH_TO_EACH;

ALG_ENTRIES(alg_push_add_short, reducer<push_add_short>)
typedef listed<reducer<push_add_all>, reducer<push_add_short>, alg_list_reduce_launch, alg_list_reduce_preload>
    push_adds;
ALG_ENTRIES(alg_push_add_all, push_adds)
ALG_ENTRIES(alg_push_add_rooted, reducer<push_add_rooted>)
ALG_ENTRIES(alg_push_add_parts, parts_reducer<push_add_rooted>)
ALG_DESCRIBE(alg_reducescatter_push, "push", ALG_REDUCE_SCATTER, ALG_MEMORY_PEER, alg_push_add_all)
ALG_DESCRIBE(alg_reduce_push, "push", ALG_REDUCE, ALG_MEMORY_PEER, alg_push_add_parts)
