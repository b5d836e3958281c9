/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot.cu - all-reduce, one-shot push (docs/kernels.md).
 *
 * Data path: input -> this rank's slot at every peer -> each rank adds all inputs in rank order -> output. In place is
 * safe: at each position a lane sends before it stores. */
#include "algorithms/device/input.h"
#include "algorithms/device/list.h"

struct oneshot {
    enum { MOST_THREADS = 1024 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        R r = R::make(team, call);
        const uint32_t vectors = r.vectors(), stride = lane.blocks * lane.threads;
        const uint32_t first = lane.block * lane.threads + lane.thread;
        slots<R::MARK, N> s = slots<R::MARK, N>::make(team, 1, vectors, first);

        r.keep(first);
        lane_begin(r.held() | s.held() | turns_held(call.turns), call.early);
        r.begin(call);
        const uint64_t epoch = epoch_read(team);
        vec16_t own = r.load_if(first < vectors, first), x[N - 1];
        /* This rank gave up an earlier call, in which a peer may still be. */
        if (epoch_stopped(epoch))
            return;
        s.move(turns_at(call.turns, epoch));
        if (first < vectors)
            s.put_all(0, own);
        if (N == 2)
            s.keep();
        for (uint32_t k = stride; first + k < vectors; k += stride)
            s.put_all(k, r.load(first + k));
        epoch_leave(lane, team);
        for (uint32_t k = 0; first + k < vectors; k += stride) {
            if (k > 0)
                own = r.load(first + k);
            if (!s.take(lane, team, s.all(), k, x))
                return;
            r.store_kept(first, k, r.combine(x, team.rank, own));
            s.rearm(s.all(), k);
        }
    }

    static uint64_t segment_bytes(const alg_team_t *, const alg_call_t *)
    {
        return UINT64_MAX;
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        const uint64_t vector = slots_bytes(mark_of(type), nranks - 1, 4) / 4;
        return nranks < 2 ? 0 : map->half_bytes / vector / 4 * 4 * VEC;
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        grid_shape(buffer_vectors(bytes), grid_most_threads<oneshot>(nranks), blocks, threads);
    }
};

template <> inline constexpr bool ANY_GRID<oneshot> = true;
template <> inline constexpr bool HAS_PLACES<oneshot> = true;
template <> inline constexpr alg_cost_t COST<oneshot, ALG_ALL_REDUCE> = {ALG_LOAD_TO_EACH, 0, 0.74, 1};

typedef listed<reducer<oneshot>, reducer<oneshot>, alg_list_reduce_launch, alg_list_reduce_preload> oneshots;
ALG_ENTRIES(alg_oneshot, oneshots)
ALG_DESCRIBE(alg_allreduce_oneshot, "oneshot", ALG_ALL_REDUCE, ALG_MEMORY_PEER, alg_oneshot)
