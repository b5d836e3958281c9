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

template <int TYPE, int OPS, int N> struct twoshot_lane {
    typedef reduction<TYPE, OPS, N> R;

    const R r;
    const slots_t scatter, gather;
    const uint32_t vectors, slice;

    /* Vector v of every other slice to its owner. */
    LANE_FN void put(const alg_team_t &team, uint32_t v) const
    {
        vec16_t x[N];
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            const uint32_t at = ring_next(team, i) * slice + v;
            if (i < team.nranks && at < vectors)
                x[i] = r.load(at);
        }
        LANE_UNROLL
        for (uint32_t i = 1; i < N; i++) {
            const uint32_t owner = ring_next(team, i);
            if (i >= team.nranks || owner * slice + v >= vectors)
                continue;
            const uint32_t escape = slots_seal<R::MARK>(x[i]);
            slots_put_one<R::MARK>(scatter, team, owner, v, x[i], escape);
        }
    }

    /* Vector v of the own slice, of all ranks, added; the result to everybody. */
    LANE_FN bool reduce(lane_t &lane, const alg_team_t &team, uint32_t v) const
    {
        vec16_t x[1][N];
        const uint32_t at = team.rank * slice + v;
        if (at >= vectors)
            return true;
        const vec16_t own = r.load(at);
        if (!slots_take<R::MARK, N, 1>(lane, team, scatter, slots_peers(team), v, 0, x))
            return false;
        vec16_t result = r.combine(x[0], team.rank, own);
        r.store(at, result);
        const uint32_t escape = slots_seal<R::MARK>(result);
        slots_put<R::MARK, N>(gather, team, v, result, escape);
        return true;
    }

    /* Vector v of every other slice, from its owner. */
    LANE_FN bool take(lane_t &lane, const alg_team_t &team, uint32_t v) const
    {
        vec16_t x[1][N];
        uint32_t wanted = slots_peers(team);
        LANE_UNROLL
        for (uint32_t o = 0; o < N; o++) {
            if (o * slice + v >= vectors)
                wanted &= ~(1u << o);
        }
        if (!slots_take<R::MARK, N, 1>(lane, team, gather, wanted, v, 0, x))
            return false;
        LANE_UNROLL
        for (uint32_t o = 0; o < N; o++) {
            if (wanted >> o & 1)
                r.store(o * slice + v, x[0][o]);
        }
        return true;
    }
};

struct twoshot {
    LANE_HOST_FN static uint32_t slice_vectors(uint32_t vectors, uint32_t nranks)
    {
        return (vectors + nranks - 1) / nranks;
    }

    template <int TYPE, int OPS, int N>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS, N> R;
        const uint64_t epoch = epoch_read(team, ALG_EPOCH_OFFSET);
        const R r = R::make(team, call);
        const uint32_t slice = slice_vectors(r.vectors(), team.nranks);
        const uint64_t half = epoch_half(team, epoch);
        const twoshot_lane<TYPE, OPS, N> l = {
            r, slots_at(half, team.nranks, slice),
            slots_at(half + slots_bytes(R::MARK, team.nranks, slice), team.nranks, slice), r.vectors(), slice};
        const uint32_t first = lane.block * lane.threads + lane.thread, stride = lane.blocks * lane.threads;

        for (uint32_t v = first; v < slice; v += stride)
            l.put(team, v);
        const bool last = epoch_leave(lane, team, ALG_EPOCH_OFFSET);
        for (uint32_t v = first; v < slice; v += stride) {
            if (!l.reduce(lane, team, v))
                return;
        }
        for (uint32_t v = first; v < slice; v += stride) {
            if (!l.take(lane, team, v))
                return;
        }
        epoch_close(last, team, ALG_EPOCH_OFFSET, epoch, 1);
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
