/* SPDX-License-Identifier: Apache-2.0 */
/* twoshot.cu - all-reduce, two-shot push (docs/kernels.md).
 *
 * Data path: input slice o -> this rank's scatter slot at rank o -> rank o adds in rank order -> output, and rank o's
 * gather slot at every peer -> output. In place is safe: at each position a lane sends before it stores.
 *
 * Slice 0 is never empty, so even with the shortest buffer every rank hears from all, if only through rank 0
 * (algorithm.h). */
#include "algorithms/allreduce/twoshot.h"
#include "algorithms/device/launch.h"

struct twoshot {
    enum { MOST_THREADS = 1024 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        const uint32_t stride = lane.blocks * lane.threads;
        const uint32_t first = lane.block * lane.threads + lane.thread;
        auto l = twoshot_lane<TYPE, OPS, N, WHOLE>::make(team, call, first);

        lane_begin(l.held(), call.early);
        l.r.begin(call);
        const uint64_t epoch = epoch_read(team);
        constexpr uint32_t ROWS = SLOTS_ROWS<N>;
        vec16_t x[ROWS][N];
        l.load(first < l.slice, 0, x[0]);
        if (epoch_stopped(epoch))
            return;
        l.s.move(epoch_half(team, epoch));
        if (first < l.slice)
            l.put(0, x[0]);
        for (uint32_t k = stride; first + k < l.slice; k += ROWS * stride) {
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS; b++)
                l.load(first + k + b * stride < l.slice, k + b * stride, x[b]);
            LANE_UNROLL
            for (uint32_t b = 0; b < ROWS && first + k + b * stride < l.slice; b++)
                l.put(k + b * stride, x[b]);
        }
        epoch_leave(lane, team);
        for (uint32_t k = 0; first + k < l.slice; k += ROWS * stride) {
            if (!l.template reduce<ROWS>(lane, team, k, stride))
                return;
        }
        for (uint32_t k = 0; first + k < l.slice; k += ROWS * stride) {
            if (!l.template take<ROWS>(lane, team, k, stride))
                return;
        }
    }

    static uint64_t segment_bytes(const alg_team_t *team, const alg_call_t *call)
    {
        return twoshot_room(team->half_bytes, team->nranks, call->type);
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        return 4 * twoshot_room(map->half_bytes, nranks, type);
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        grid_shape(twoshot_slice(buffer_vectors(bytes), nranks), grid_most_threads<twoshot>(nranks), blocks, threads);
    }
};

template <> inline constexpr bool ANY_GRID<twoshot> = true;
template <> inline constexpr alg_cost_t COST<twoshot, ALG_ALL_REDUCE> = {ALG_LOAD_TWICE, 0.9, 0.79, 2};

ALG_ENTRIES(alg_twoshot, reducer<twoshot>)
ALG_DESCRIBE(alg_allreduce_twoshot, "twoshot", ALG_ALL_REDUCE, ALG_MEMORY_PEER, alg_twoshot)
