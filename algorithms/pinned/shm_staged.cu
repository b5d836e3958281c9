/* SPDX-License-Identifier: Apache-2.0 */
/* shm_staged.cu - all-reduce, reduce-scatter, reduce of longer buffers through pinned memory (chunks.h).
 *
 * Data path: chunk of input slice o -> outbox -> flag -> rank o adds in rank order -> output. All-reduce and reduce go
 * on: rank o's outbox -> flag -> output of every peer, or of the root. Step c adds chunk c and fetches the sums of
 * chunk c-1.
 *
 * An outbox holds two chunks of sums, at the same place in all calls, so sums of chunk c replace those of chunk c-2
 * (docs/lab/proofs.md). */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/pinned/chunks.h"

struct shm_staged {
    enum { MOST_THREADS = 512 };

    template <class R, int N> struct view {
        R r;
        shm_channel ch;
        uint64_t stride;  /* bytes between the input's blocks, each a slice; 0: one buffer, cut into slices */
        uint32_t vectors; /* of the buffer, or of a block */
        uint32_t slice;
        bool keeps, gathers; /* the output gets: this rank's sums; the other ranks' sums */

        LANE_FN shm_span_t span(uint32_t owner, uint32_t c) const
        {
            const uint32_t begin = stride ? 0 : owner * slice;
            return ch.span(begin, begin + slice < vectors ? begin + slice : vectors, c);
        }

        LANE_FN buffer_t input(uint32_t owner) const
        {
            return buffer_make(r.input.base + owner * stride, r.input.bytes);
        }

        LANE_FN void scatter(const alg_team_t &team, uint32_t c) const
        {
            for (uint32_t i = 1; i < team.nranks; i++) {
                const uint32_t owner = ring_next(team, i);
                const shm_span_t s = span(owner, c);
                const buffer_t in = input(owner);
                uint8_t *to = ch.outbox(team, team.rank, owner, c);
                for (uint32_t k = 0; k < s.rows; k += SHM_BATCH) {
                    vec16_t x[SHM_BATCH];
                    LANE_UNROLL
                    for (uint32_t b = 0; b < SHM_BATCH; b++) {
                        if (k + b < s.rows)
                            x[b] = r.load_from(in, s.first + (k + b) * ch.lanes);
                    }
                    LANE_UNROLL
                    for (uint32_t b = 0; b < SHM_BATCH; b++) {
                        if (k + b < s.rows)
                            lane_post(to + (uint64_t)(k + b) * ch.lanes * VEC, x[b]);
                    }
                }
            }
        }

        LANE_FN void reduce(const alg_team_t &team, uint32_t c) const
        {
            constexpr int BATCH = N <= 4 ? 8 / N : 1;
            const shm_span_t s = span(team.rank, c);
            const buffer_t in = input(team.rank);
            uint8_t *to = ch.sum(team, team.rank, c);
            const uint8_t *from[N - 1];
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (j + 1 < team.nranks)
                    from[j] = ch.outbox(team, other_rank(team, j), team.rank, c);
            }
            for (uint32_t k = 0; k < s.rows; k += BATCH) {
                vec16_t x[BATCH][N - 1], own[BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < BATCH; b++) {
                    if (k + b >= s.rows)
                        continue;
                    own[b] = r.load_from(in, s.first + (k + b) * ch.lanes);
                    LANE_UNROLL
                    for (uint32_t j = 0; j < N - 1; j++) {
                        if (j + 1 < team.nranks)
                            x[b][j] = lane_fetch(from[j] + (uint64_t)(k + b) * ch.lanes * VEC);
                    }
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < BATCH; b++) {
                    if (k + b >= s.rows)
                        continue;
                    const vec16_t sum = r.combine(x[b], team.rank, own[b]);
                    if (keeps)
                        r.store(s.first + (k + b) * ch.lanes, sum);
                    if (!stride)
                        lane_post(to + (uint64_t)(k + b) * ch.lanes * VEC, sum);
                }
            }
        }

        LANE_FN void gather(const alg_team_t &team, uint32_t c) const
        {
            constexpr int BATCH = N <= 4 ? 8 / N : 1;
            shm_span_t s[N - 1];
            const uint8_t *from[N - 1];
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                s[j] = shm_span_t{0, 0};
                if (j + 1 < team.nranks) {
                    s[j] = span(other_rank(team, j), c);
                    from[j] = ch.sum(team, other_rank(team, j), c);
                }
            }
            for (uint32_t k = 0; k < ch.plan.rows; k += BATCH) {
                vec16_t x[BATCH][N - 1];
                LANE_UNROLL
                for (uint32_t b = 0; b < BATCH; b++) {
                    LANE_UNROLL
                    for (uint32_t j = 0; j < N - 1; j++) {
                        if (k + b < s[j].rows)
                            x[b][j] = lane_fetch(from[j] + (uint64_t)(k + b) * ch.lanes * VEC);
                    }
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < BATCH; b++) {
                    LANE_UNROLL
                    for (uint32_t j = 0; j < N - 1; j++) {
                        if (k + b < s[j].rows)
                            r.store(s[j].first + (k + b) * ch.lanes, x[b][j]);
                    }
                }
            }
        }
    };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        view<R, N> w;
        w.r = R::make(team, call);
        w.stride = route_input_has_blocks(call.collective) ? call.stride : 0;
        w.vectors = w.r.vectors();
        w.slice = w.stride ? w.vectors : (w.vectors + team.nranks - 1) / team.nranks;
        w.keeps = route_has(route_of(team, call.collective, call.root).takers, team.rank);
        w.gathers = w.keeps && !w.stride;
        w.ch = shm_channel::make(lane, team, shm_plan(team, w.slice, team.nranks - 1, call.blocks, lane.threads));

        lane_begin(w.r.held(), call.early);
        const uint64_t epoch = epoch_read(team), base = epoch_base(epoch);
        w.r.begin(call);
        epoch_leave(lane, team);
        if (lane_sync_any(epoch_stopped(epoch)))
            return;
        w.ch.begin(team, epoch);
        outbox_clear_one(lane, team, epoch, 0);

        const uint32_t chunks = w.ch.plan.chunks, steps = chunks + (w.stride ? 0 : 1);
        for (; w.ch.index < w.ch.plan.channels; w.ch.index += lane.blocks) {
            w.scatter(team, 0);
            for (uint32_t c = 0; c < steps; c++) {
                w.ch.raise(lane, team, base + c + 1);
                if (c + 1 < chunks)
                    w.scatter(team, c + 1);
                if (!w.ch.wait(lane, team, base + c + 1))
                    return;
                if (c > 0 && w.gathers)
                    w.gather(team, c - 1);
                if (c < chunks)
                    w.reduce(team, c);
            }
        }
    }

    static uint64_t segment_bytes(const alg_team_t *, const alg_call_t *)
    {
        return SHM_SEGMENT;
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return shm_most_bytes(map, nranks);
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        shm_shape((buffer_vectors(bytes) + nranks - 1) / nranks, grid_most_threads<shm_staged>(nranks), blocks,
                  threads);
    }
};

ALG_ENTRIES(alg_shm_staged, reducer<shm_staged>)
ALG_DESCRIBE(alg_allreduce_shm_staged, "shm-staged", ALG_ALL_REDUCE, ALG_MEMORY_PINNED, alg_shm_staged)
ALG_DESCRIBE(alg_reducescatter_shm_staged, "shm-staged", ALG_REDUCE_SCATTER, ALG_MEMORY_PINNED, alg_shm_staged)
ALG_DESCRIBE(alg_reduce_shm_staged, "shm-staged", ALG_REDUCE, ALG_MEMORY_PINNED, alg_shm_staged)
