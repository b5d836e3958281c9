/* SPDX-License-Identifier: Apache-2.0 */
/* shm_twoshot.cu - all-reduce through pinned memory in two steps (outbox.h).
 *
 * Data path: input slice o -> section o of this rank's outbox -> rank o adds in rank order -> output, and section o of
 * rank o's outbox -> output of every peer. */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/pinned/outbox.h"

struct shm_twoshot {
    enum { MOST_THREADS = 512 };

    LANE_HOST_FN static uint32_t slice_vectors(uint32_t vectors, uint32_t nranks)
    {
        return (vectors + nranks - 1) / nranks;
    }

    template <class R, int N> struct view {
        R r;
        outbox<N> o;
        uint32_t vectors, slice, tiles; /* vectors of the buffer, of a slice; tiles of a slice */

        LANE_FN void load(uint32_t owner, uint32_t tile, triple_t &x) const
        {
            LANE_UNROLL
            for (int i = 0; i < OUTBOX_VECTORS; i++)
                x.v[i] = r.load_if(has(owner, tile, i), owner * slice + o.vector(tile, i));
        }

        LANE_FN bool has(uint32_t owner, uint32_t tile, uint32_t i) const
        {
            const uint32_t v = o.vector(tile, i);
            return v < slice && owner * slice + v < vectors;
        }

        LANE_FN void scatter(const alg_team_t &team, uint32_t tile) const
        {
            triple_t x[N];
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i <= o.peers())
                    load(ring_next(team, i), tile, x[i]);
            }
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i <= o.peers())
                    o.put(ring_next(team, i) * tiles + tile, x[i]);
            }
        }

        LANE_FN bool reduce(lane_t &lane, const alg_team_t &team, uint32_t tile) const
        {
            triple_t own, x[N - 1];
            load(team.rank, tile, own);
            if (!o.take(lane, team, o.all(), team.rank * tiles + tile, 0, x))
                return false;
            LANE_UNROLL
            for (int i = 0; i < OUTBOX_VECTORS; i++) {
                vec16_t others[N - 1];
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++)
                    others[j] = x[j].v[i];
                own.v[i] = r.combine(others, team.rank, own.v[i]);
            }
            o.put(team.rank * tiles + tile, own);
            LANE_UNROLL
            for (int i = 0; i < OUTBOX_VECTORS; i++) {
                if (has(team.rank, tile, i))
                    r.store(team.rank * slice + o.vector(tile, i), own.v[i]);
            }
            return true;
        }

        LANE_FN bool gather(lane_t &lane, const alg_team_t &team, uint32_t tile) const
        {
            triple_t x[N - 1];
            if (!o.take(lane, team, o.all(), tile, tiles, x))
                return false;
            LANE_UNROLL
            for (uint32_t j = 0; j < N - 1; j++) {
                const uint32_t owner = other_rank(team, j);
                LANE_UNROLL
                for (int i = 0; i < OUTBOX_VECTORS; i++) {
                    if (j < o.peers() && has(owner, tile, i))
                        r.store(owner * slice + o.vector(tile, i), x[j].v[i]);
                }
            }
            return true;
        }
    };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        view<R, N> w = {R::make(team, call), outbox<N>::make(lane, team), 0, 0, 0};
        w.vectors = w.r.vectors();
        w.slice = slice_vectors(w.vectors, team.nranks);
        w.tiles = outbox_tiles(w.slice, w.o.lanes);
        const uint32_t warps = lane.threads / w.o.lanes;
        const uint32_t first = lane.block * warps + lane.thread / w.o.lanes, stride = lane.blocks * warps;

        lane_begin(w.r.held() | w.o.held(), call.early);
        w.r.begin(call);
        const uint64_t epoch = epoch_read(team);
        if (epoch_stopped(epoch))
            return;
        w.o.begin(team, epoch);
        for (uint32_t tile = first; w.o.vector(tile, 0) < w.slice; tile += stride)
            w.scatter(team, tile);
        outbox_clear_one(lane, team, epoch, team.nranks * w.tiles * outbox_tile_bytes(w.o.lanes));
        epoch_leave(lane, team);
        for (uint32_t tile = first; w.o.vector(tile, 0) < w.slice; tile += stride) {
            if (!w.reduce(lane, team, tile))
                return;
        }
        for (uint32_t tile = first; w.o.vector(tile, 0) < w.slice; tile += stride) {
            if (!w.gather(lane, team, tile))
                return;
        }
    }

    static uint64_t segment_bytes(const alg_team_t *, const alg_call_t *)
    {
        return UINT64_MAX;
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks < 2 ? 0 : outbox_room(map->half_bytes / nranks) * nranks * VEC;
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        grid_shape(outbox_tiles(slice_vectors(buffer_vectors(bytes), nranks), 32) * 32,
                   grid_most_threads<shm_twoshot>(nranks), blocks, threads);
    }
};

ALG_ENTRIES(alg_shm_twoshot, reducer<shm_twoshot>)
ALG_DESCRIBE(alg_allreduce_shm_twoshot, "shm-twoshot", ALG_ALL_REDUCE, ALG_MEMORY_PINNED, alg_shm_twoshot)
