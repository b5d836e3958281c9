/*
 * twoshot.cu - all-reduce, two-shot push: scatter to owners, owners add and put
 * the result everywhere.
 *
 * Data path: input slice o -> rank o's scatter slot [own rank] -> rank o adds in
 * rank order -> output slice o, and every peer's gather slot [o] -> output. Two
 * crossings, 2 (n-1)/n S bytes out of each rank:
 * time = t0 + one crossing + 2 (n-1)/n S / B. It wins in the middle, from where
 * n/2 times fewer bytes pay for the second crossing to where the half is full.
 *
 * There is no barrier: arrival is told by the data (slots.h). A result's arrival
 * also proves that its owner has read this rank's contribution, so in place is
 * free: output slices are written after the same lanes have put the input.
 * The rule of the halves (algorithm.h) holds for the shortest message too: slice
 * 0 is never empty, its owner hears from every rank, and every rank from it.
 */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/device/slots.h"

struct twoshot {
    LANE_HOST_FN static uint64_t slice_vectors(uint64_t vectors, uint32_t nranks)
    {
        return (vectors + nranks - 1) / nranks;
    }

    template <int TYPE, int OPS> LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS> R;
        const R r = R::make(team, call);
        const uint64_t epoch = epoch_read(team, ALG_EPOCH_OFFSET);
        const uint32_t me = team.rank, n = team.nranks;
        const uint64_t vectors = r.vectors(), slice = slice_vectors(vectors, n);
        const uint64_t half = epoch_half(team, epoch);
        const slots_t scatter = slots_at(half, n, slice);
        const slots_t gather = slots_at(half + slots_bytes(R::MARK, n, slice), n, slice);
        const uint64_t first = (uint64_t)lane.block * lane.threads + lane.thread;
        const uint64_t stride = (uint64_t)lane.blocks * lane.threads;

        for (uint64_t v = first; v < slice; v += stride) {
            for (uint32_t i = 1; i < n; i++) {
                const uint32_t owner = (me + i) % n;
                if (owner * slice + v >= vectors)
                    continue;
                vec16_t x = r.load(owner * slice + v);
                const uint32_t escape = slots_seal<R::MARK>(x);
                slots_put<R::MARK>(scatter, team.scratch[owner], me, v, x, escape);
            }
        }
        epoch_leave(lane, team, ALG_EPOCH_OFFSET, epoch, 1);

        const uint32_t peers = ((1u << n) - 1) & ~(1u << me);
        for (uint64_t v = first; v < slice && me * slice + v < vectors; v += stride) {
            vec16_t x[ALG_MAX_RANKS];
            const vec16_t own = r.load(me * slice + v);
            if (!slots_take<R::MARK>(lane, team, scatter, peers, v, x))
                return;
            vec16_t result = r.combine(x, me, own);
            r.store(me * slice + v, result);
            const uint32_t escape = slots_seal<R::MARK>(result);
            for (uint32_t i = 1; i < n; i++)
                slots_put<R::MARK>(gather, team.scratch[(me + i) % n], me, v, result, escape);
        }

        for (uint64_t v = first; v < slice; v += stride) {
            vec16_t x[ALG_MAX_RANKS];
            uint32_t wanted = peers;
            for (uint32_t o = 0; o < n; o++) {
                if (o * slice + v >= vectors)
                    wanted &= ~(1u << o);
            }
            if (!slots_take<R::MARK>(lane, team, gather, wanted, v, x))
                return;
            LANE_UNROLL
            for (uint32_t o = 0; o < ALG_MAX_RANKS; o++) {
                if (wanted >> o & 1)
                    r.store(o * slice + v, x[o]);
            }
        }
    }

    static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        const uint64_t vector =
            2 * slots_bytes(mark_of(type), nranks, 4) / 4; /* scatter and gather, a slice's vector */
        return map->half_bytes / vector / 4 * 4 * VEC * nranks;
    }

    static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        launch_shape(slice_vectors(buffer_vectors(bytes), nranks), blocks, threads);
    }
};

ALG_DEFINE(alg_allreduce_twoshot, "twoshot", ALG_ALL_REDUCE, twoshot)
