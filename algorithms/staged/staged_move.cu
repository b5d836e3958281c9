/*
 * staged_move.cu - all-gather, all-to-all, broadcast, gather and scatter of any
 * length, through staging (staged.h).
 *
 * A broadcast takes two steps: its root sends each of the others its part, which
 * that one gives to the rest, so no link carries more than the message. The others
 * take one. In place is free: what a rank overwrites it has sent before.
 */
#include "algorithms/staged/staged.h"

struct staged_move {
    enum { MOST_THREADS = 512, BLOCKS = 2 };

    /* What stays the same over the chunks. call.count is in bytes. */
    template <int N, bool WHOLE> struct job {
        route_t route;
        staged_cut_t cut;
        const uint8_t *input;
        uint8_t *output;
        uint64_t in_step, out_step; /* from one rank's block to the next one's; 0: there is one */
        bool keeps;                 /* this rank's block, or message, goes from its input to its output */

        LANE_FN buffer_t in(uint32_t rank) const
        {
            return staged_part(cut, rank, input + rank * in_step);
        }

        /* The part that `rank` sent, or owned. */
        LANE_FN buffer_t out(uint32_t rank) const
        {
            return staged_part(cut, rank, output + rank * out_step);
        }
    };

    /* Where a chunk goes: stagings, and a buffer of ours. */
    template <int N> struct targets {
        uint8_t *staging[N];
        uint32_t set; /* bit i: staging[i] is one */
        bool stores;
        buffer_t out;
    };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        job<N, WHOLE> j;
        const bool message = call.collective == ALG_BROADCAST;
        j.route = route_parts(team, call);
        j.cut = staged_cut(team, j.route, !message, call.root, call.count);
        j.input = (const uint8_t *)call.input;
        j.output = (uint8_t *)call.output;
        j.in_step = EACH ? call.count : 0;
        j.out_step = route_output_blocks(call.collective) ? call.count : 0;
        const bool sends = route_has(j.route.senders, team.rank);
        j.keeps = sends && (message || route_has(j.route.owners, team.rank)) &&
                  j.output + team.rank * j.out_step != j.input + team.rank * j.in_step;
        channel ch = channel_make(lane, team, call, j.cut.vectors);
        const uint32_t warps = lane.blocks * lane.threads / ch.lanes;

        lane_begin((uintptr_t)team.scratch[team.rank], call.early);
        const uint64_t epoch = epoch_read(team), base = epoch_base(epoch);
        epoch_leave(lane, team);
        if (epoch_stopped(epoch))
            return;
        for (; ch.index < ch.plan.channels; ch.index += warps) {
            const bool whole = message ? broadcast(lane, team, j, ch, base) : one_step<EACH>(lane, team, j, ch, base);
            if (!whole)
                return;
        }
    }

    template <bool EACH, int N, bool WHOLE>
    LANE_FN static bool one_step(lane_t &lane, const alg_team_t &team, const job<N, WHOLE> &j, const channel &ch,
                                 uint64_t base)
    {
        return staged_direct(
            lane, team, ch, base,
            [&](uint32_t c, int half) {
                if (route_has(j.route.senders, team.rank))
                    send<EACH>(team, j, ch, c, half);
            },
            [&](uint32_t c, int half) {
                if (route_has(j.route.owners, team.rank))
                    take(team, j, ch, c, half, j.route.senders);
            });
    }

    template <int N, bool WHOLE>
    LANE_FN static bool broadcast(lane_t &lane, const alg_team_t &team, const job<N, WHOLE> &j, const channel &ch,
                                  uint64_t base)
    {
        const bool sends = route_has(j.route.senders, team.rank);
        for (uint32_t c = 0; c < ch.plan.chunks; c++) {
            if (sends)
                send<true>(team, j, ch, c, STAGED_SCATTER);
            ch.raise(team, STAGED_SCATTER, base + c + 1);
            if (!ch.wait(lane, team, STAGED_SCATTER, base + c + 1))
                return false;
            if (!sends)
                pass_on(team, j, ch, c);
            ch.raise(team, STAGED_GATHER, base + c + 1);
            if (!ch.wait(lane, team, STAGED_GATHER, base + c + 1))
                return false;
            if (!sends)
                take(team, j, ch, c, STAGED_GATHER, j.route.owners);
        }
        return true;
    }

    /* EACH: every owner its part; else the same to all. What stays here goes to the output. */
    template <bool EACH, int N, bool WHOLE>
    LANE_FN static void send(const alg_team_t &team, const job<N, WHOLE> &j, const channel &ch, uint32_t c, int half)
    {
        targets<N> t = {{NULL}, 0, j.keeps, j.out(team.rank)};
        if (!EACH) {
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i < team.nranks && route_has(j.route.owners, ring_next(team, i))) {
                    t.staging[i] = ch.staging(team, ring_next(team, i), half, team.rank);
                    t.set |= 1u << i;
                }
            }
            const buffer_t in = j.in(team.rank);
            copy(j, ch, ch.span(buffer_vectors(in.bytes), c), in, NULL, t);
            return;
        }
        const bool all_stay = !route_has(j.route.owners, team.rank); /* a broadcast's root keeps all parts */
        for (uint32_t i = 0; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            if (!route_has(j.route.owners, owner))
                continue;
            const buffer_t in = j.in(owner);
            t.staging[0] = ch.staging(team, owner, half, team.rank);
            t.set = i > 0;
            t.stores = j.keeps && (i == 0 || all_stay);
            t.out = j.out(owner);
            if (t.set || t.stores)
                copy(j, ch, ch.span(buffer_vectors(in.bytes), c), in, NULL, t);
        }
    }

    /* What came from these ranks, to the output. */
    template <int N, bool WHOLE>
    LANE_FN static void take(const alg_team_t &team, const job<N, WHOLE> &j, const channel &ch, uint32_t c, int half,
                             uint32_t from)
    {
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t r = ring_next(team, i);
            if (!route_has(from, r))
                continue;
            const targets<N> t = {{NULL}, 0, true, j.out(r)};
            copy(j, ch, ch.span(buffer_vectors(t.out.bytes), c), t.out, ch.staging(team, team.rank, half, r), t);
        }
    }

    /* Our part of a broadcast: to the output and to the other receivers. */
    template <int N, bool WHOLE>
    LANE_FN static void pass_on(const alg_team_t &team, const job<N, WHOLE> &j, const channel &ch, uint32_t c)
    {
        targets<N> t = {{NULL}, 0, true, j.out(team.rank)};
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            if (i < team.nranks && route_has(j.route.receivers, ring_next(team, i))) {
                t.staging[i] = ch.staging(team, ring_next(team, i), STAGED_GATHER, team.rank);
                t.set |= 1u << i;
            }
        }
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t root = ring_next(team, i);
            if (route_has(j.route.senders, root))
                copy(j, ch, ch.span(buffer_vectors(t.out.bytes), c), t.out,
                     ch.staging(team, team.rank, STAGED_SCATTER, root), t);
        }
    }

    /* A chunk, from a staging or (from: NULL) from a buffer. */
    template <int N, bool WHOLE>
    LANE_FN static void copy(const job<N, WHOLE> &, const channel &ch, const span_t &s, const buffer_t &in,
                             const uint8_t *from, const targets<N> &t)
    {
        for (uint32_t k = 0; k < s.rows; k += STAGED_BATCH) {
            vec16_t x[STAGED_BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                if (k + b < s.rows)
                    x[b] = from ? lane_copy_in(from + (k + b) * ch.lanes * VEC)
                                : load<WHOLE>(in, s.first + (k + b) * ch.lanes);
            }
            LANE_UNROLL
            for (uint32_t i = 0; i < N; i++) {
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if ((t.set >> i & 1) && k + b < s.rows)
                        lane_copy_out(t.staging[i] + (k + b) * ch.lanes * VEC, x[b]);
                }
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                if (t.stores && k + b < s.rows)
                    store<WHOLE>(t.out, s.first + (k + b) * ch.lanes, x[b]);
            }
        }
    }

    template <bool WHOLE> LANE_FN static vec16_t load(const buffer_t &b, uint32_t v)
    {
        return WHOLE ? buffer_load_whole(b, v) : buffer_load<uint8_t>(b, v);
    }

    template <bool WHOLE> LANE_FN static void store(const buffer_t &b, uint32_t v, const vec16_t &x)
    {
        if (WHOLE)
            buffer_store_whole(b, v, x);
        else
            buffer_store<uint8_t>(b, v, x);
    }

    template <int COLLECTIVE> static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        (void)type;
        return staged_most_bytes(map, nranks);
    }

    template <int COLLECTIVE> static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        staged_shape((bytes + nranks - 1) / nranks, launch_most_threads<staged_move>(nranks), blocks, threads);
    }
};

ALG_MOVER(alg_staged_move, staged_move)
ALG_DESCRIBE(alg_allgather_staged, "staged", ALG_ALL_GATHER, alg_staged_move, staged_move)
ALG_DESCRIBE(alg_alltoall_staged, "staged", ALG_ALL_TO_ALL, alg_staged_move, staged_move)
ALG_DESCRIBE(alg_broadcast_staged, "staged", ALG_BROADCAST, alg_staged_move, staged_move)
ALG_DESCRIBE(alg_gather_staged, "staged", ALG_GATHER, alg_staged_move, staged_move)
ALG_DESCRIBE(alg_scatter_staged, "staged", ALG_SCATTER, alg_staged_move, staged_move)
