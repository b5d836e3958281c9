/*
 * oneshot.cu - all-reduce, one-shot push: put everything everywhere, add here.
 *
 * Data path: input -> every peer's slot [own rank] -> each rank adds the slots
 * in rank order -> output. One crossing of the link, (n-1) S bytes out of each
 * rank: time = t0 + (n-1) S / B. It wins while latency rules, and at two ranks,
 * where no algorithm moves fewer bytes, for as long as the half holds the message.
 *
 * Arrival is told by the data (slots.h), so there is no flag and no barrier.
 * In place is free: a lane has put its own value before it writes that vector.
 */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/device/slots.h"

struct oneshot {
    template <int TYPE, int OPS> LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS> R;
        const R r = R::make(team, call);
        const uint64_t epoch = epoch_read(team, ALG_EPOCH_OFFSET);
        const uint64_t vectors = r.vectors();
        const slots_t slots = slots_at(epoch_half(team, epoch), team.nranks, vectors);
        const uint64_t first = (uint64_t)lane.block * lane.threads + lane.thread;
        const uint64_t stride = (uint64_t)lane.blocks * lane.threads;

        for (uint64_t v = first; v < vectors; v += stride) {
            vec16_t x = r.load(v);
            const uint32_t escape = slots_seal<R::MARK>(x);
            for (uint32_t i = 1; i < team.nranks; i++)
                slots_put<R::MARK>(slots, team.scratch[(team.rank + i) % team.nranks], team.rank, v, x, escape);
        }
        epoch_leave(lane, team, ALG_EPOCH_OFFSET, epoch, 1);

        const uint32_t peers = ((1u << team.nranks) - 1) & ~(1u << team.rank);
        for (uint64_t v = first; v < vectors; v += stride) {
            vec16_t x[ALG_MAX_RANKS];
            const vec16_t own = r.load(v);
            if (!slots_take<R::MARK>(lane, team, slots, peers, v, x))
                return;
            r.store(v, r.combine(x, team.rank, own));
        }
    }

    static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        const uint64_t vector = slots_bytes(mark_of(type), nranks, 4) / 4;
        return map->half_bytes / vector / 4 * 4 * VEC;
    }

    static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        (void)nranks;
        launch_shape(buffer_vectors(bytes), blocks, threads);
    }
};

ALG_DEFINE(alg_allreduce_oneshot, "oneshot", ALG_ALL_REDUCE, oneshot)
