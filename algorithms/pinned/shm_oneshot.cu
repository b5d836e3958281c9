/* SPDX-License-Identifier: Apache-2.0 */
/* shm_oneshot.cu - all-reduce, reduce-scatter, reduce of short buffers through pinned memory (outbox.h).
 *
 * Data path: input -> outbox (reduce-scatter: block o -> section o) -> each receiver adds in rank order -> output. */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/pinned/outbox.h"

struct shm_oneshot {
    enum { MOST_THREADS = 512 };

    template <class R, int N> struct view {
        R r;
        outbox<N> o;
        uint64_t stride; /* bytes between the input's blocks; 0: one block for all ranks */
        uint32_t vectors, tiles;

        LANE_FN uint32_t section(const alg_team_t &team, uint32_t i) const
        {
            return stride ? ring_next(team, i) : 0;
        }

        LANE_FN void load(uint32_t section, uint32_t tile, triple_t &x) const
        {
            const buffer_t part = buffer_make(r.input.base + section * stride, r.input.bytes);
            LANE_UNROLL
            for (int i = 0; i < OUTBOX_VECTORS; i++)
                x.v[i] = r.load_from_if(o.vector(tile, i) < vectors, part, o.vector(tile, i));
        }

        /* x[0] already holds the data for all ranks, or for the next one. */
        LANE_FN void put(const alg_team_t &team, uint32_t tile, triple_t (&x)[N - 1]) const
        {
            LANE_UNROLL
            for (uint32_t i = 2; i < N; i++) {
                if (stride && i <= o.peers())
                    load(section(team, i), tile, x[i - 1]);
            }
            LANE_UNROLL
            for (uint32_t i = 1; i < N; i++) {
                if (i == 1 || (stride && i <= o.peers()))
                    o.put(section(team, i) * tiles + tile, x[i - 1]);
            }
        }

        LANE_FN void add(const alg_team_t &team, uint32_t tile, const triple_t &own, const triple_t (&x)[N - 1]) const
        {
            LANE_UNROLL
            for (int i = 0; i < OUTBOX_VECTORS; i++) {
                vec16_t others[N - 1];
                LANE_UNROLL
                for (uint32_t j = 0; j < N - 1; j++)
                    others[j] = x[j].v[i];
                if (o.vector(tile, i) < vectors)
                    r.store(o.vector(tile, i), r.combine(others, team.rank, own.v[i]));
            }
        }
    };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        view<R, N> w = {R::make(team, call), outbox<N>::make(lane, team), 0, 0, 0};
        w.stride = route_input_has_blocks(call.collective) ? call.stride : 0;
        w.vectors = w.r.vectors();
        w.tiles = outbox_tiles(w.vectors, w.o.lanes);
        const uint32_t takers = route_of(team, call.collective, call.root).takers, self = 1u << team.rank;
        const bool sends = takers & ~self, takes = takers & self;
        const uint32_t warps = lane.threads / w.o.lanes;
        const uint32_t first = lane.block * warps + lane.thread / w.o.lanes, stride = lane.blocks * warps;

        lane_begin(w.r.held() | w.o.held(), call.early);
        w.r.begin(call);
        const uint64_t epoch = epoch_read(team);
        triple_t own, x[N - 1];
        w.load(w.section(team, 1), first, x[0]);
        if (epoch_stopped(epoch))
            return;
        w.o.begin(team, epoch);
        own = x[0];
        for (uint32_t tile = first; sends && w.o.vector(tile, 0) < w.vectors; tile += stride) {
            if (tile != first)
                w.load(w.section(team, 1), tile, x[0]);
            w.put(team, tile, x);
        }
        if (!sends)
            outbox_notice(lane, team, epoch);
        outbox_clear_one(lane, team, epoch, sends ? (w.stride ? team.nranks : 1) * w.o.bytes(w.tiles) : (uint64_t)VEC);
        epoch_leave(lane, team);
        for (uint32_t tile = first; takes && w.o.vector(tile, 0) < w.vectors; tile += stride) {
            if (w.stride || first + stride < w.tiles)
                w.load(w.stride ? team.rank : 0, tile, own);
            if (!w.o.take(lane, team, w.o.all(), w.stride ? team.rank * w.tiles + tile : tile, 0, x))
                return;
            w.add(team, tile, own, x);
        }
        if (!takes)
            outbox_hear(lane, team, epoch, route_all(team) & ~self);
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
        outbox_shape(collective, bytes, grid_most_threads<shm_oneshot>(nranks), nranks, blocks, threads);
    }
};

ALG_ENTRIES(alg_shm_oneshot, reducer<shm_oneshot>)
ALG_DESCRIBE(alg_allreduce_shm_oneshot, "shm-oneshot", ALG_ALL_REDUCE, ALG_MEMORY_PINNED, alg_shm_oneshot)
ALG_DESCRIBE(alg_reducescatter_shm_oneshot, "shm-oneshot", ALG_REDUCE_SCATTER, ALG_MEMORY_PINNED, alg_shm_oneshot)
ALG_DESCRIBE(alg_reduce_shm_oneshot, "shm-oneshot", ALG_REDUCE, ALG_MEMORY_PINNED, alg_shm_oneshot)
