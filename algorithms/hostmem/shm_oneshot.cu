/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_oneshot.cu - all-reduce through the host's memory in one crossing: each
 * rank puts its input into its outbox, reads all others', and adds.
 *
 * Data path: input -> own outbox -> each peer adds in rank order -> output.
 * 4/3 S written, 4/3 (n-1) S read over each GPU's PCIe link. It wins while the
 * crossing is what takes the time.
 *
 * In place is free: a lane has put its own vectors before it stores there.
 */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/hostmem/outbox.h"

struct shm_oneshot {
    enum { MOST_THREADS = 512 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        R r = R::make(team, call);
        outbox<N> o = outbox<N>::make(lane, team);
        const uint32_t vectors = r.vectors(), warps = lane.threads / o.lanes;
        const uint32_t first = lane.block * warps + lane.thread / o.lanes, stride = lane.blocks * warps;

        lane_begin(r.held() | o.held(), call.early);
        r.begin(call);
        const uint64_t epoch = epoch_read(team);
        triple_t own, x[N - 1];
        load(r, o, vectors, first, own);
        if (epoch_stopped(epoch))
            return;
        o.begin(team, epoch);
        for (uint32_t tile = first; o.vector(tile, 0) < vectors; tile += stride) {
            if (tile != first)
                load(r, o, vectors, tile, own);
            o.put(tile, own);
        }
        outbox_clear_one(lane, team, epoch, outbox_tiles(vectors, o.lanes) * outbox_tile_bytes(o.lanes));
        epoch_leave(lane, team);
        for (uint32_t tile = first; o.vector(tile, 0) < vectors; tile += stride) {
            if (first + stride < outbox_tiles(vectors, o.lanes))
                load(r, o, vectors, tile, own);
            if (!o.take(lane, team, tile, 0, x))
                return;
            add<R, N>(team, r, o, vectors, tile, own, x);
        }
    }

    template <class R, class O>
    LANE_FN static void load(const R &r, const O &o, uint32_t vectors, uint32_t tile, triple_t &own)
    {
        LANE_UNROLL
        for (int i = 0; i < OUTBOX_VECTORS; i++)
            own.v[i] = r.load_if(o.vector(tile, i) < vectors, o.vector(tile, i));
    }

    template <class R, int N, class O>
    LANE_FN static void add(const alg_team_t &team, const R &r, const O &o, uint32_t vectors, uint32_t tile,
                            const triple_t &own, const triple_t (&x)[N - 1])
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

    static uint64_t segment(const alg_team_t *, const alg_call_t *)
    {
        return UINT64_MAX;
    }

    template <int COLLECTIVE> static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks < 2 ? 0 : outbox_room(map->half_bytes) * VEC;
    }

    template <int COLLECTIVE> static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        launch_shape(outbox_tiles(buffer_vectors(bytes), 32) * 32, launch_most_threads<shm_oneshot>(nranks), blocks,
                     threads);
    }
};

ALG_REDUCER(alg_shm_oneshot, shm_oneshot)
ALG_DESCRIBE_FOR(ALG_MEMORY_HOST, alg_allreduce_shm_oneshot, "shm-oneshot", ALG_ALL_REDUCE, alg_shm_oneshot,
                 shm_oneshot)
