/* SPDX-License-Identifier: Apache-2.0 */
/* shm_move.cu - all-gather, all-to-all, broadcast, gather, scatter of short buffers through pinned memory (outbox.h).
 *
 * Data path: input -> outbox (block o: section o) -> the receivers' outputs. */
#include "algorithms/device/buffers.h"
#include "algorithms/device/launch.h"
#include "algorithms/pinned/outbox.h"

struct shm_move {
    enum { MOST_THREADS = 512 };

    template <int N, bool WHOLE, bool EACH> struct view {
        outbox<N> o;
        const uint8_t *input;
        uint8_t *output;
        const uint8_t *readable;
        uint64_t in_step, out_step;
        uint64_t bytes; /* of a block */
        uint32_t vectors, tiles;

        LANE_FN uint32_t section(const alg_team_t &team, uint32_t i) const
        {
            return EACH ? ring_next(team, i) : 0;
        }

        LANE_FN void load(bool wanted, uint32_t section, uint32_t tile, triple_t &x) const
        {
            const uint8_t *part = input + section * in_step;
            LANE_UNROLL
            for (int i = 0; i < OUTBOX_VECTORS; i++) {
                const uint32_t v = o.vector(tile, i);
                if (WHOLE)
                    x.v[i] = lane_load_if(wanted && v < vectors, part + (uint64_t)v * VEC, readable);
                else if (wanted && v < vectors)
                    x.v[i] = buffer_load<uint8_t>(buffer_make(part, bytes), v);
            }
        }

        LANE_FN void store(uint32_t rank, uint32_t tile, const triple_t &x) const
        {
            uint8_t *part = output + rank * out_step;
            LANE_UNROLL
            for (int i = 0; i < OUTBOX_VECTORS; i++) {
                const uint32_t v = o.vector(tile, i);
                if (v >= vectors)
                    continue;
                if (WHOLE)
                    lane_store(part + (uint64_t)v * VEC, x.v[i]);
                else
                    buffer_store<uint8_t>(buffer_make(part, bytes), v, x.v[i]);
            }
        }

        /* x[0] already holds the data for all ranks; EACH: for the next one. */
        LANE_FN void put(const alg_team_t &team, uint32_t tile, triple_t (&x)[N - 1]) const
        {
            LANE_UNROLL
            for (uint32_t i = 2; i < (EACH ? N : 2); i++)
                load(i <= o.peers(), section(team, i), tile, x[i - 1]);
            LANE_UNROLL
            for (uint32_t i = 1; i < (EACH ? N : 2); i++) {
                if (i <= o.peers())
                    o.put(section(team, i) * tiles + tile, x[i - 1]);
            }
        }
    };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        view<N, WHOLE, EACH> w;
        w.o = outbox<N>::make(lane, team);
        w.input = (const uint8_t *)call.input;
        w.output = (uint8_t *)call.output;
        w.readable = team.own;
        w.in_step = EACH ? call.stride : 0;
        w.out_step = route_output_has_blocks(call.collective) ? call.stride : 0;
        w.bytes = call.count;
        w.vectors = buffer_vectors(call.count);
        w.tiles = outbox_tiles(w.vectors, w.o.lanes);
        const route_t route = route_of(team, call.collective, call.root);
        const uint32_t self = 1u << team.rank, from = route.takers & self ? route.senders & ~self : 0;
        const bool sends = (route.senders & self) && (route.takers & ~self);
        const uint32_t own = EACH ? team.rank : 0;
        const bool keeps =
            (route.senders & route.takers & self) && w.input + own * w.in_step != w.output + team.rank * w.out_step;
        const uint32_t warps = lane.threads / w.o.lanes;
        const uint32_t first = lane.block * warps + lane.thread / w.o.lanes, stride = lane.blocks * warps;

        lane_begin(w.o.held(), call.early);
        const uint64_t epoch = epoch_read(team);
        triple_t x[N - 1];
        w.load(sends, w.section(team, 1), first, x[0]);
        if (epoch_stopped(epoch))
            return;
        w.o.begin(team, epoch);
        for (uint32_t tile = first; sends && w.o.vector(tile, 0) < w.vectors; tile += stride) {
            if (tile != first)
                w.load(true, w.section(team, 1), tile, x[0]);
            w.put(team, tile, x);
            if (!EACH && keeps)
                w.store(team.rank, tile, x[0]);
        }
        if (!sends)
            outbox_notice(lane, team, epoch);
        outbox_clear_one(lane, team, epoch, sends ? (EACH ? team.nranks : 1) * w.o.bytes(w.tiles) : (uint64_t)VEC);
        epoch_leave(lane, team);
        for (uint32_t tile = first; keeps && (EACH || !sends) && w.o.vector(tile, 0) < w.vectors; tile += stride) {
            w.load(true, own, tile, x[0]);
            w.store(team.rank, tile, x[0]);
        }
        uint32_t places = 0;
        LANE_UNROLL
        for (uint32_t j = 0; j < N - 1; j++)
            places |= j < w.o.peers() && route_has(from, other_rank(team, j)) ? 1u << j : 0;
        for (uint32_t tile = first; places && w.o.vector(tile, 0) < w.vectors; tile += stride) {
            if (!w.o.take(lane, team, places, own * w.tiles + tile, 0, x))
                return;
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                if (places >> j & 1)
                    w.store(other_rank(team, j), tile, x[j]);
            }
        }
        outbox_hear(lane, team, epoch, route_all(team) & ~self & ~from);
    }

    static uint64_t segment_bytes(const alg_team_t *, const alg_call_t *)
    {
        return UINT64_MAX;
    }

    static uint64_t max_bytes(alg_collective_t collective, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return outbox_most_bytes(collective, map, nranks);
    }

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        outbox_shape(collective, bytes, grid_most_threads<shm_move>(nranks), nranks, blocks, threads);
    }
};

ALG_ENTRIES(alg_shm_move, mover<shm_move>)
ALG_DESCRIBE(alg_allgather_shm_oneshot, "shm-oneshot", ALG_ALL_GATHER, ALG_MEMORY_PINNED, alg_shm_move)
ALG_DESCRIBE(alg_alltoall_shm_oneshot, "shm-oneshot", ALG_ALL_TO_ALL, ALG_MEMORY_PINNED, alg_shm_move)
ALG_DESCRIBE(alg_broadcast_shm_oneshot, "shm-oneshot", ALG_BROADCAST, ALG_MEMORY_PINNED, alg_shm_move)
ALG_DESCRIBE(alg_gather_shm_oneshot, "shm-oneshot", ALG_GATHER, ALG_MEMORY_PINNED, alg_shm_move)
ALG_DESCRIBE(alg_scatter_shm_oneshot, "shm-oneshot", ALG_SCATTER, ALG_MEMORY_PINNED, alg_shm_move)
