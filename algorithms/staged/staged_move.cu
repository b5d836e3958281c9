/*
 * staged_move.cu - all-gather, all-to-all, broadcast, gather and scatter of any
 * length, through staging (staged.h).
 *
 * All-gather is the second step alone, the others but broadcast the first. A
 * broadcast's root sends each of the others its part, which that one gives to the
 * rest: no link carries more than the message. In place is free: what a rank
 * overwrites it has sent before.
 */
#include "algorithms/staged/staged.h"

struct staged_move {
    enum { MOST_THREADS = 512, BLOCKS = 2 };

    /* What stays the same over the chunks. call.count is in bytes. */
    template <bool WHOLE> struct job {
        route_t route;
        staged_cut_t cut;
        const uint8_t *input;
        uint8_t *output;
        uint64_t in_step, out_step; /* from one rank's block to the next one's; 0: there is one */
        bool two_steps;             /* what arrives in the first goes on in the second */
        bool keeps;                 /* this rank's block goes from its input to its output */

        LANE_FN buffer_t in(uint32_t rank) const
        {
            return staged_part(cut, rank, input + rank * in_step);
        }

        /* The part that `rank` sent, or owned. */
        LANE_FN buffer_t out(uint32_t rank) const
        {
            return staged_part(cut, rank, output + rank * out_step);
        }

        LANE_FN static vec16_t load(const buffer_t &b, uint32_t v)
        {
            return WHOLE ? buffer_load_whole(b, v) : buffer_load<uint8_t>(b, v);
        }

        LANE_FN static void store(const buffer_t &b, uint32_t v, const vec16_t &x)
        {
            if (WHOLE)
                buffer_store_whole(b, v, x);
            else
                buffer_store<uint8_t>(b, v, x);
        }
    };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        job<WHOLE> j;
        const bool message = call.collective == ALG_BROADCAST;
        j.route = route_parts(team, call);
        j.cut = staged_cut(team, j.route, !message, call.root, call.count);
        j.input = (const uint8_t *)call.input;
        j.output = (uint8_t *)call.output;
        j.in_step = EACH ? call.count : 0;
        j.out_step = route_output_blocks(call.collective) ? call.count : 0;
        j.two_steps = message;
        const bool sends = route_has(j.route.senders, team.rank), owns = route_has(j.route.owners, team.rank);
        j.keeps = (message ? sends : owns && (sends || !j.route.senders)) &&
                  j.output + team.rank * j.out_step != j.input + team.rank * j.in_step;
        channel ch = channel_make(lane, team, call, j.cut.vectors);
        const uint32_t warps = lane.blocks * lane.threads / ch.lanes;

        lane_begin((uintptr_t)team.scratch[team.rank], call.early);
        const uint64_t epoch = epoch_read(team), base = epoch_base(epoch);
        epoch_leave(lane, team);
        if (epoch_stopped(epoch))
            return;
        for (; ch.index < ch.plan.channels; ch.index += warps) {
            for (uint32_t c = 0; c < ch.plan.chunks; c++) {
                if (sends)
                    scatter(team, j, ch, c);
                ch.raise(team, STAGED_SCATTER, base + c + 1);
                if (!ch.wait(lane, team, STAGED_SCATTER, base + c + 1))
                    return;
                if (owns)
                    own(team, j, ch, c);
                ch.raise(team, STAGED_GATHER, base + c + 1);
                if (!ch.wait(lane, team, STAGED_GATHER, base + c + 1))
                    return;
                if (route_has(j.route.receivers, team.rank))
                    gather(team, j, ch, c);
            }
        }
    }

    /* Every owner its part; what stays here goes to the output. */
    template <bool WHOLE>
    LANE_FN static void scatter(const alg_team_t &team, const job<WHOLE> &j, const channel &ch, uint32_t c)
    {
        for (uint32_t i = j.two_steps || !j.keeps ? 1 : 0; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            if (!route_has(j.route.owners, owner))
                continue;
            const buffer_t in = j.in(owner);
            const bool stores = i == 0 || (j.two_steps && j.keeps);
            const span_t s = ch.span(buffer_vectors(in.bytes), c);
            uint8_t *to = i == 0 ? NULL : ch.staging(team, owner, STAGED_SCATTER, team.rank);
            copy<WHOLE>(ch, s, in, NULL, to ? 1 : 0, &to, stores, j.out(owner));
        }
    }

    /* What arrived for us, to the output, and in two steps to the receivers. (All-gather: our own.) */
    template <bool WHOLE>
    LANE_FN static void own(const alg_team_t &team, const job<WHOLE> &j, const channel &ch, uint32_t c)
    {
        uint8_t *to[ALG_MAX_RANKS - 1];
        uint32_t receivers = 0;
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t receiver = ring_next(team, i);
            if (route_has(j.route.receivers, receiver))
                to[receivers++] = ch.staging(team, receiver, STAGED_GATHER, team.rank);
        }
        if (!j.route.senders) {
            const buffer_t in = j.in(team.rank);
            copy<WHOLE>(ch, ch.span(buffer_vectors(in.bytes), c), in, NULL, receivers, to, j.keeps, j.out(team.rank));
            return;
        }
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t sender = ring_next(team, i);
            if (!route_has(j.route.senders, sender))
                continue;
            const buffer_t out = j.out(j.two_steps ? team.rank : sender);
            const uint8_t *from = ch.staging(team, team.rank, STAGED_SCATTER, sender);
            copy<WHOLE>(ch, ch.span(buffer_vectors(out.bytes), c), out, from, receivers, to, true, out);
        }
    }

    template <bool WHOLE>
    LANE_FN static void gather(const alg_team_t &team, const job<WHOLE> &j, const channel &ch, uint32_t c)
    {
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            if (!route_has(j.route.owners, owner))
                continue;
            const buffer_t out = j.out(owner);
            const uint8_t *from = ch.staging(team, team.rank, STAGED_GATHER, owner);
            copy<WHOLE>(ch, ch.span(buffer_vectors(out.bytes), c), out, from, 0, NULL, true, out);
        }
    }

    /* A chunk, from staging or (from: NULL) a buffer, to so many stagings and, if it `stores`, to a buffer. */
    template <bool WHOLE>
    LANE_FN static void copy(const channel &ch, const span_t &s, const buffer_t &in, const uint8_t *from,
                             uint32_t copies, uint8_t *const *to, bool stores, const buffer_t &out)
    {
        for (uint32_t k = 0; k < s.rows; k += STAGED_BATCH) {
            vec16_t x[STAGED_BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                if (k + b < s.rows)
                    x[b] = from ? lane_copy_in(from + (k + b) * ch.lanes * VEC)
                                : job<WHOLE>::load(in, s.first + (k + b) * ch.lanes);
            }
            for (uint32_t p = 0; p < copies; p++) {
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        lane_copy_out(to[p] + (k + b) * ch.lanes * VEC, x[b]);
                }
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                if (stores && k + b < s.rows)
                    job<WHOLE>::store(out, s.first + (k + b) * ch.lanes, x[b]);
            }
        }
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
