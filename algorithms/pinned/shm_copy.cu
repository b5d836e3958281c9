/* SPDX-License-Identifier: Apache-2.0 */
/* shm_copy.cu - all-gather, all-to-all, broadcast, gather, scatter of longer buffers through pinned memory (chunks.h).
 *
 * Data path: input chunk -> outbox (block o: section o) -> flag -> the receivers' outputs. */
#include "algorithms/device/buffers.h"
#include "algorithms/device/launch.h"
#include "algorithms/pinned/chunks.h"

struct shm_copy {
    enum { MOST_THREADS = 512 };

    template <int N, bool WHOLE, bool EACH> struct view {
        shm_channel ch;
        const uint8_t *input;
        uint8_t *output;
        uint64_t in_step, out_step;
        uint64_t bytes; /* of a block */
        uint32_t vectors;
        uint32_t from; /* ranks (bits) that send to this one */

        LANE_FN vec16_t load(uint32_t rank, uint32_t v) const
        {
            const uint8_t *part = input + rank * in_step;
            return WHOLE ? lane_load(part + (uint64_t)v * VEC) : buffer_load<uint8_t>(buffer_make(part, bytes), v);
        }

        LANE_FN void store(uint32_t rank, uint32_t v, const vec16_t &x) const
        {
            uint8_t *part = output + rank * out_step;
            if (WHOLE)
                lane_store(part + (uint64_t)v * VEC, x);
            else
                buffer_store<uint8_t>(buffer_make(part, bytes), v, x);
        }

        /* Posts chunk c of block `owner` at `to`, unless it is NULL. keeps: also copies it to this rank's output. */
        LANE_FN void copy(const alg_team_t &team, uint32_t owner, uint8_t *to, bool keeps, uint32_t c) const
        {
            const shm_span_t s = ch.span(0, vectors, c);
            for (uint32_t k = 0; k < s.rows; k += SHM_BATCH) {
                vec16_t x[SHM_BATCH];
                LANE_UNROLL
                for (uint32_t b = 0; b < SHM_BATCH; b++) {
                    if (k + b < s.rows)
                        x[b] = load(owner, s.first + (k + b) * ch.lanes);
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < SHM_BATCH; b++) {
                    if (to && k + b < s.rows)
                        lane_post(to + (uint64_t)(k + b) * ch.lanes * VEC, x[b]);
                    if (keeps && k + b < s.rows)
                        store(team.rank, s.first + (k + b) * ch.lanes, x[b]);
                }
            }
        }

        LANE_FN void put(const alg_team_t &team, bool sends, bool keeps, uint32_t c) const
        {
            if (!EACH && (sends || keeps))
                copy(team, 0, sends ? ch.outbox(team, team.rank, 0, c) : NULL, keeps, c);
            for (uint32_t i = 1; EACH && sends && i < team.nranks; i++)
                copy(team, ring_next(team, i), ch.outbox(team, team.rank, ring_next(team, i), c), false, c);
            if (EACH && keeps)
                copy(team, team.rank, NULL, true, c);
        }

        LANE_FN void take(const alg_team_t &team, uint32_t c) const
        {
            constexpr int BATCH = N <= 4 ? 8 / N : 1;
            const shm_span_t s = ch.span(0, vectors, c);
            const uint8_t *box[N - 1];
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (route_has(from, other_rank(team, j)))
                    box[j] = ch.outbox(team, other_rank(team, j), team.rank, c);
            }
            for (uint32_t k = 0; k < s.rows; k += BATCH) {
                vec16_t x[BATCH][N - 1];
                LANE_UNROLL
                for (uint32_t b = 0; b < BATCH; b++) {
                    LANE_UNROLL
                    for (uint32_t j = 0; j < N - 1; j++) {
                        if (k + b < s.rows && route_has(from, other_rank(team, j)))
                            x[b][j] = lane_fetch(box[j] + (uint64_t)(k + b) * ch.lanes * VEC);
                    }
                }
                LANE_UNROLL
                for (uint32_t b = 0; b < BATCH; b++) {
                    LANE_UNROLL
                    for (uint32_t j = 0; j < N - 1; j++) {
                        if (k + b < s.rows && route_has(from, other_rank(team, j)))
                            store(other_rank(team, j), s.first + (k + b) * ch.lanes, x[b][j]);
                    }
                }
            }
        }
    };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        view<N, WHOLE, EACH> w;
        w.input = (const uint8_t *)call.input;
        w.output = (uint8_t *)call.output;
        w.in_step = EACH ? call.stride : 0;
        w.out_step = route_output_has_blocks(call.collective) ? call.stride : 0;
        w.bytes = call.count;
        w.vectors = buffer_vectors(call.count);
        const route_t route = route_of(team, call.collective, call.root);
        const uint32_t self = 1u << team.rank;
        w.from = route.takers & self ? route.senders & ~self : 0;
        const bool sends = (route.senders & self) && (route.takers & ~self);
        const bool keeps = (route.senders & route.takers & self) &&
                           w.input + team.rank * w.in_step != w.output + team.rank * w.out_step;
        const uint32_t sections = EACH ? team.nranks - 1 : 1;
        w.ch = shm_channel::make(lane, team, shm_plan(team, w.vectors, sections, call.blocks, lane.threads));

        lane_begin((uintptr_t)w.input | (uintptr_t)w.output, call.early);
        const uint64_t epoch = epoch_read(team), base = epoch_base(epoch);
        epoch_leave(lane, team);
        if (lane_sync_any(epoch_stopped(epoch)))
            return;
        w.ch.begin(team, epoch);
        outbox_clear_one(lane, team, epoch, 0);

        const uint32_t chunks = w.ch.plan.chunks;
        for (; w.ch.index < w.ch.plan.channels; w.ch.index += lane.blocks) {
            w.put(team, sends, keeps, 0);
            for (uint32_t c = 0; c < chunks; c++) {
                w.ch.raise(lane, team, base + c + 1);
                if (c + 1 < chunks)
                    w.put(team, sends, keeps, c + 1);
                if (!w.ch.wait(lane, team, base + c + 1))
                    return;
                if (w.from)
                    w.take(team, c);
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

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        shm_shape(buffer_vectors(bytes / alg_collective_blocks(collective, nranks)),
                  grid_most_threads<shm_copy>(nranks), blocks, threads);
    }
};

ALG_ENTRIES(alg_shm_copy, mover<shm_copy>)
ALG_DESCRIBE(alg_allgather_shm_staged, "shm-staged", ALG_ALL_GATHER, ALG_MEMORY_PINNED, alg_shm_copy)
ALG_DESCRIBE(alg_alltoall_shm_staged, "shm-staged", ALG_ALL_TO_ALL, ALG_MEMORY_PINNED, alg_shm_copy)
ALG_DESCRIBE(alg_broadcast_shm_staged, "shm-staged", ALG_BROADCAST, ALG_MEMORY_PINNED, alg_shm_copy)
ALG_DESCRIBE(alg_gather_shm_staged, "shm-staged", ALG_GATHER, ALG_MEMORY_PINNED, alg_shm_copy)
ALG_DESCRIBE(alg_scatter_shm_staged, "shm-staged", ALG_SCATTER, ALG_MEMORY_PINNED, alg_shm_copy)
