/*
 * staged_reduce.cu - all-reduce, reduce-scatter and reduce of any length, through
 * staging (staged.h).
 *
 * All-reduce sends 2 (n-1)/n S bytes out of each rank; reduce-scatter is its first
 * step alone, reduce sends each part's sum to the root alone. In place is free: a
 * rank writes a chunk of the output after every rank has sent it what it had of
 * that chunk, and its own input chunk has been read.
 */
#include "algorithms/device/input.h"
#include "algorithms/staged/staged.h"

struct staged_reduce {
    enum { MOST_THREADS = 512, BLOCKS = 1 };

    /* What stays the same over the chunks. */
    template <class R> struct job {
        R r;
        route_t route;
        staged_cut_t cut;
        uint64_t step; /* from one rank's block of the input to the next one's; 0: the message is one */

        LANE_FN buffer_t in(uint32_t owner) const
        {
            return staged_part(cut, owner, r.input.base + owner * step);
        }

        LANE_FN buffer_t out(uint32_t owner) const
        {
            return staged_part(cut, owner, r.output.base);
        }
    };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        job<R> j;
        j.r = R::make(team, call);
        j.route = route_parts(team, call);
        j.cut = staged_cut(team, j.route, call.collective == ALG_REDUCE_SCATTER, call.root, j.r.input.bytes);
        j.step = route_input_blocks(call.collective) ? j.r.input.bytes : 0;
        channel ch = channel_make(lane, team, call, j.cut.vectors);
        const uint32_t warps = lane.blocks * lane.threads / ch.lanes;

        lane_begin(j.r.held(), call.early);
        const uint64_t epoch = epoch_read(team), base = epoch_base(epoch);
        j.r.begin(call);
        epoch_leave(lane, team);
        if (epoch_stopped(epoch))
            return;
        for (; ch.index < ch.plan.channels; ch.index += warps) {
            const bool whole =
                j.route.receivers ? two_steps<R, N>(lane, team, j, ch, base) : one_step<R, N>(lane, team, j, ch, base);
            if (!whole)
                return;
        }
    }

    template <class R, int N>
    LANE_FN static bool one_step(lane_t &lane, const alg_team_t &team, const job<R> &j, const channel &ch,
                                 uint64_t base)
    {
        return staged_direct(
            lane, team, ch, base, [&](uint32_t c, int half) { scatter(team, j, ch, c, half); },
            [&](uint32_t c, int half) { reduce<R, N>(team, j, ch, c, half); });
    }

    template <class R, int N>
    LANE_FN static bool two_steps(lane_t &lane, const alg_team_t &team, const job<R> &j, const channel &ch,
                                  uint64_t base)
    {
        for (uint32_t c = 0; c < ch.plan.chunks; c++) {
            scatter(team, j, ch, c, STAGED_SCATTER);
            ch.raise(team, STAGED_SCATTER, base + c + 1);
            if (!ch.wait(lane, team, STAGED_SCATTER, base + c + 1))
                return false;
            reduce<R, N>(team, j, ch, c, STAGED_SCATTER);
            ch.raise(team, STAGED_GATHER, base + c + 1);
            if (!ch.wait(lane, team, STAGED_GATHER, base + c + 1))
                return false;
            if (route_has(j.route.receivers, team.rank))
                gather(team, j, ch, c);
        }
        return true;
    }

    template <class R>
    LANE_FN static void scatter(const alg_team_t &team, const job<R> &j, const channel &ch, uint32_t c, int half)
    {
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            if (!route_has(j.route.owners, owner))
                continue;
            const buffer_t in = j.in(owner);
            const span_t s = ch.span(buffer_vectors(in.bytes), c);
            uint8_t *to = ch.staging(team, owner, half, team.rank);
            for (uint32_t k = 0; k < s.rows; k += STAGED_BATCH) {
                vec16_t x[STAGED_BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        x[b] = j.r.load_from(in, s.first + (k + b) * ch.lanes);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        lane_copy_out(to + (k + b) * ch.lanes * VEC, x[b]);
                }
            }
        }
    }

    template <class R, int N>
    LANE_FN static void reduce(const alg_team_t &team, const job<R> &j, const channel &ch, uint32_t c, int half)
    {
        constexpr int BATCH = N <= 4 ? 8 / N : 1;
        if (!route_has(j.route.owners, team.rank))
            return;
        const buffer_t in = j.in(team.rank), out = j.out(team.rank);
        const span_t s = ch.span(buffer_vectors(in.bytes), c);
        const bool keeps = !j.route.receivers || route_has(j.route.receivers, team.rank);
        const uint8_t *from[N - 1];
        uint8_t *to[N - 1];
        uint32_t sends = 0; /* bit p: to the rank p + 1 places after us */
        LANE_UNROLL
        for (uint32_t p = 0; p < N - 1; p++) {
            if (p + 1 < team.nranks) {
                const uint32_t receiver = ring_next(team, p + 1);
                from[p] = ch.staging(team, team.rank, half, other_rank(team, p));
                to[p] = ch.staging(team, receiver, STAGED_GATHER, team.rank);
                sends |= route_has(j.route.receivers, receiver) ? 1u << p : 0;
            }
        }
        for (uint32_t k = 0; k < s.rows; k += BATCH) {
            vec16_t x[BATCH][N - 1], own[BATCH];
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= s.rows)
                    continue;
                own[b] = j.r.load_from(in, s.first + (k + b) * ch.lanes);
                LANE_UNROLL
                for (uint32_t p = 0; p < N - 1; p++) {
                    if (p + 1 < team.nranks)
                        x[b][p] = lane_copy_in(from[p] + (k + b) * ch.lanes * VEC);
                }
            }
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                if (k + b >= s.rows)
                    continue;
                const vec16_t result = j.r.combine(x[b], team.rank, own[b]);
                if (keeps)
                    j.r.store_to(out, s.first + (k + b) * ch.lanes, result);
                LANE_UNROLL
                for (uint32_t p = 0; p < N - 1; p++) {
                    if (sends >> p & 1)
                        lane_copy_out(to[p] + (k + b) * ch.lanes * VEC, result);
                }
            }
        }
    }

    template <class R>
    LANE_FN static void gather(const alg_team_t &team, const job<R> &j, const channel &ch, uint32_t c)
    {
        for (uint32_t i = 1; i < team.nranks; i++) {
            const uint32_t owner = ring_next(team, i);
            if (!route_has(j.route.owners, owner))
                continue;
            const buffer_t out = j.out(owner);
            const span_t s = ch.span(buffer_vectors(out.bytes), c);
            const uint8_t *from = ch.staging(team, team.rank, STAGED_GATHER, owner);
            for (uint32_t k = 0; k < s.rows; k += STAGED_BATCH) {
                vec16_t x[STAGED_BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        x[b] = lane_copy_in(from + (k + b) * ch.lanes * VEC);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < STAGED_BATCH; b++) {
                    if (k + b < s.rows)
                        j.r.store_to(out, s.first + (k + b) * ch.lanes, x[b]);
                }
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
        staged_shape((bytes + nranks - 1) / nranks, launch_most_threads<staged_reduce>(nranks), blocks, threads);
    }
};

ALG_REDUCER(alg_staged_reduce, staged_reduce)
ALG_DESCRIBE(alg_allreduce_staged, "staged", ALG_ALL_REDUCE, alg_staged_reduce, staged_reduce)
ALG_DESCRIBE(alg_reducescatter_staged, "staged", ALG_REDUCE_SCATTER, alg_staged_reduce, staged_reduce)
ALG_DESCRIBE(alg_reduce_staged, "staged", ALG_REDUCE, alg_staged_reduce, staged_reduce)
