/* SPDX-License-Identifier: Apache-2.0 */
/* push_move.cu - all-gather, all-to-all, broadcast, gather, scatter in one step (push.h).
 *
 * Data path: input -> this rank's slot at the peer -> the peer's output. */
#include "algorithms/device/buffers.h"
#include "algorithms/push/push.h"

template <bool ROOTED, bool SHORT> struct push_copy : push_limits<push_copy<ROOTED, SHORT>> {
    enum { MOST_THREADS = 1024 };

    template <int N, bool WHOLE, bool EACH> struct view {
        /* KEPT: registers hold the blocks' addresses, advanced to the lane's first vector, and with 3 or 4 ranks the
         * polled slots' address. Kernels of more ranks lack registers. */
        static constexpr bool KEPT = WHOLE && N <= EXACT_RANKS && !ROOTED;
        push_t p;
        slots<MARK_ESCAPE, N> s;
        uint8_t *in[N]; /* EACH: [i]: block for the i-th rank after this one, [0]: for this rank; else [0]: for all */
        const uint8_t *readable;
        uint8_t *own_out;
        bool keeps;     /* this rank's block must be copied to its output */
        uint64_t bytes; /* of a block */
        uint32_t vectors, first;

        /* Offset of vector v from a block's address. */
        LANE_FN uint64_t place(uint32_t v) const
        {
            return (uint64_t)(KEPT ? v - first : v) * VEC;
        }

        LANE_FN void load(bool exists, uint32_t v, vec16_t (&x)[N]) const
        {
            LANE_UNROLL
            for (uint32_t i = 0; i < (EACH ? N : 1); i++) {
                const bool wanted = exists && (!EACH || (i == 0 ? keeps : i < s.ranks() && (p.sends >> i & 1)));
                if (WHOLE)
                    x[i] = lane_load_if(wanted, in[i < s.ranks() ? i : 0] + place(v), readable);
                else if (wanted)
                    x[i] = buffer_load<uint8_t>(buffer_make(in[i], bytes), v);
            }
        }

        LANE_FN void store(uint8_t *block, uint32_t v, const vec16_t &x) const
        {
            if (WHOLE)
                lane_store(block + place(v), x);
            else
                buffer_store<uint8_t>(buffer_make(block, bytes), v, x);
        }

        /* Needs v < vectors. The rows after v may be beyond the end. */
        template <uint32_t ROWS>
        LANE_FN void put_rows(uint32_t k, uint32_t v, uint32_t stride, vec16_t (&x)[ROWS][N]) const
        {
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                load(b == 0 || v + b * stride < vectors, v + b * stride, x[b]);
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++) {
                if (b == 0 || v + b * stride < vectors)
                    put(k + b * stride, v + b * stride, x[b]);
            }
        }

        LANE_FN void put(uint32_t k, uint32_t v, vec16_t (&x)[N]) const
        {
            vec16_t clean = x[0];
            const uint32_t escape = EACH ? 0 : mark_clean<MARK_ESCAPE>(clean);
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i >= s.ranks() || !(p.sends >> i & 1))
                    continue;
                if (EACH)
                    s.put(i, k, x[i]);
                else
                    s.put_clean(i, k, clean, escape);
            }
            if (keeps)
                store(own_out, v, x[0]);
        }
    };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        const uint32_t stride = lane.blocks * lane.threads, first = lane.block * lane.threads + lane.thread;
        const uint64_t bytes = call.count, step = route_output_has_blocks(call.collective) ? call.stride : 0;
        view<N, WHOLE, EACH> w;
        const uint64_t skip = w.KEPT ? (uint64_t)first * VEC : 0;
        uint8_t *output = (uint8_t *)call.output + skip, *other = output + other_rank(team, 0) * step;
        w.bytes = bytes;
        w.vectors = buffer_vectors(bytes);
        w.first = first;
        w.s = slots<MARK_ESCAPE, N>::make(team, 1, call.slot_vectors, first);
        w.p = push_make<ROOTED>(team, call, w.s.ranks());
        LANE_UNROLL
        for (uint32_t i = 0; i < N; i++) {
            if (i < w.s.ranks())
                w.in[i] = (uint8_t *)call.input + skip + (EACH ? ring_next(team, i) * call.stride : 0);
        }
        w.readable = team.own;
        w.own_out = output + team.rank * step;
        w.keeps = w.p.both && w.own_out != w.in[0];
        const bool reads = w.p.sends || w.keeps;
        if (w.KEPT) {
            lane_keep(w.in[EACH ? 1 : 0]);
            lane_keep(other);
        }

        lane_begin(w.s.held() | push_held<ROOTED>(call), call.early);
        series_t turn = push_read<ROOTED>(team);
        constexpr uint32_t ROWS = PUSH_ROWS<N, SHORT>;
        vec16_t x[ROWS][N];
        w.load(reads && first < w.vectors, first, x[0]);
        if (epoch_stopped(turn.epoch))
            return;
        if (ROOTED)
            series_compare(turn, call.series);
        const uint64_t half = push_at<ROOTED>(team, call, turn);
        w.s.move(half);
        if (w.KEPT && N > 2)
            w.s.keep();
        w.p.notices.at += half;
        if (ROOTED && w.p.has_notices)
            notices_send(lane, team, w.p.notices);
        if (reads && first < w.vectors)
            w.put(0, first, x[0]);
        push_leave<ROOTED>(lane, team, turn, call.series);
        /* Sends run ahead, so data is in flight while a lane polls. */
        const uint32_t ahead = (LANE_AHEAD > ROWS ? LANE_AHEAD : ROWS) * stride;
        for (uint32_t k = stride; reads && k < ahead && first + k < w.vectors; k += stride) {
            w.load(true, first + k, x[0]);
            w.put(k, first + k, x[0]);
        }
        for (uint32_t k = 0; first + k < w.vectors; k += ROWS * stride) {
            if (reads && first + k + ahead < w.vectors)
                w.put_rows(k + ahead, first + k + ahead, stride, x);
            if (!w.p.takes)
                continue;
            const uint32_t left = w.vectors - first - k;
            uint32_t wanted[ROWS];
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                wanted[b] = b == 0 || b * stride < left ? w.p.takes : 0;
            if (!w.s.take_rows(lane, team, wanted, k, stride, x))
                return;
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS && wanted[b] != 0; b++) {
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++) {
                    if (w.p.takes >> j & 1)
                        w.store(j == 0 ? other : output + other_rank(team, j) * step, first + k + b * stride, x[b][j]);
                }
                w.s.rearm(w.p.takes, k + b * stride);
            }
        }
        if (ROOTED && w.p.has_notices)
            notices_take(lane, team, w.p.notices);
    }

    static uint64_t segment_bytes(const alg_team_t *team, const alg_call_t *)
    {
        return push_segment(team->half_bytes, team->nranks, MARK_ESCAPE);
    }
};

struct push_copy_all : push_copy<false, false> {
};
struct push_copy_short : push_copy<false, true> {
};
struct push_copy_rooted : push_copy<true, false> {
};

template <> inline constexpr bool ANY_GRID<push_copy_all> = true;
template <> inline constexpr bool ANY_GRID<push_copy_rooted> = true;
template <> inline constexpr bool HAS_PLACES<push_copy_all> = true;
template <> inline constexpr bool HAS_PLACES<push_copy_short> = true;
template <> inline constexpr int ONLY_RANKS<push_copy_short> = 2;
template <> inline constexpr uint64_t ONLY_BYTES<push_copy_short> = PUSH_SHORT_BYTES;
template <alg_collective_t C> inline constexpr alg_cost_t COST<push_copy_all, C> = PUSH_BLOCKS;
template <alg_collective_t C> inline constexpr alg_cost_t COST<push_copy_rooted, C> = PUSH_BLOCKS;
template <> inline constexpr alg_cost_t COST<push_copy_rooted, ALG_BROADCAST> = PUSH_TO_EACH;

typedef listed<mover<push_copy_all>, mover<push_copy_short>, alg_list_move_launch, alg_list_move_preload> push_copies;
ALG_ENTRIES(alg_push_copy_all, push_copies)
ALG_ENTRIES(alg_push_copy_rooted, mover<push_copy_rooted>)
ALG_ENTRIES(alg_push_copy_parts, parts_mover<push_copy_rooted>)
ALG_DESCRIBE(alg_allgather_push, "push", ALG_ALL_GATHER, ALG_MEMORY_PEER, alg_push_copy_all)
ALG_DESCRIBE(alg_alltoall_push, "push", ALG_ALL_TO_ALL, ALG_MEMORY_PEER, alg_push_copy_all)
ALG_DESCRIBE(alg_broadcast_push, "push", ALG_BROADCAST, ALG_MEMORY_PEER, alg_push_copy_parts)
ALG_DESCRIBE(alg_gather_push, "push", ALG_GATHER, ALG_MEMORY_PEER, alg_push_copy_rooted)
ALG_DESCRIBE(alg_scatter_push, "push", ALG_SCATTER, ALG_MEMORY_PEER, alg_push_copy_rooted)
