/*
 * oneshot.cu - all-reduce, one-shot push: put everything everywhere, add here.
 *
 * Data path: input -> every peer's slot [own rank] -> each rank adds the slots
 * in rank order -> output. One crossing of the link, (n-1) S bytes out of each
 * rank: time = t0 + (n-1) S / B. It wins while latency rules: up to 256 KiB on
 * four H200, and 512 KiB on two, where it moves no more bytes than two-shot but
 * reads, re-arms and adds twice as many on every rank.
 *
 * Arrival is told by the data (slots.h), so there is no flag and no barrier.
 * In place is free: a lane has put its own value before it writes that vector.
 */
#include "algorithms/device/input.h"
#include "algorithms/device/launch.h"
#include "algorithms/device/slots.h"

template <int TYPE, int OPS, int N> struct oneshot_lane {
    typedef reduction<TYPE, OPS, N> R;

    const R r;
    const slots_t slots;
    const uint32_t stride; /* between a lane's vectors */

    /* B vectors from v on to every peer; their loads are in flight together. */
    template <int B> LANE_FN void put(const alg_team_t &team, uint32_t v, vec16_t own[B]) const
    {
        LANE_UNROLL
        for (uint32_t b = 0; b < B; b++)
            own[b] = r.load(v + b * stride);
        LANE_UNROLL
        for (uint32_t b = 0; b < B; b++) {
            vec16_t x = own[b];
            const uint32_t escape = slots_seal<R::MARK>(x);
            slots_put<R::MARK, N>(slots, team, v + b * stride, x, escape);
        }
    }

    /* The same vectors of all ranks, added. False: the wait was broken. */
    template <int B> LANE_FN bool take(lane_t &lane, const alg_team_t &team, uint32_t v, const vec16_t own[B]) const
    {
        vec16_t x[B][N];
        if (!slots_take<R::MARK, N, B>(lane, team, slots, slots_peers(team), v, stride, x))
            return false;
        LANE_UNROLL
        for (uint32_t b = 0; b < B; b++)
            r.store(v + b * stride, r.combine(x[b], team.rank, own[b]));
        return true;
    }

    /* Own values are loaded again, mostly from L1: registers would not hold them all. */
    template <int B> LANE_FN bool take_again(lane_t &lane, const alg_team_t &team, uint32_t v) const
    {
        vec16_t own[B];
        LANE_UNROLL
        for (uint32_t b = 0; b < B; b++)
            own[b] = r.load(v + b * stride);
        return take<B>(lane, team, v, own);
    }
};

struct oneshot {
    template <int TYPE, int OPS, int N>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        typedef reduction<TYPE, OPS, N> R;
        const uint64_t epoch = epoch_read(team, ALG_EPOCH_OFFSET);
        const R r = R::make(team, call);
        const uint32_t vectors = r.vectors(), stride = lane.blocks * lane.threads;
        const uint32_t first = lane.block * lane.threads + lane.thread;
        const oneshot_lane<TYPE, OPS, N> l = {r, slots_at(epoch_half(team, epoch), team.nranks, vectors), stride};
        bool last;
        if (vectors <= stride) {
            /* Straight through, for what has a lane for every vector: latency is instructions here. */
            vec16_t own[1];
            if (first < vectors)
                l.template put<1>(team, first, own);
            last = epoch_leave(lane, team, ALG_EPOCH_OFFSET);
            if (first < vectors && !l.template take<1>(lane, team, first, own))
                return;
        } else {
            constexpr int B = 8 / N; /* a lane's vectors in flight */
            uint32_t v = first;
            vec16_t own[B];
            for (; v + (B - 1) * stride < vectors; v += B * stride)
                l.template put<B>(team, v, own);
            for (; B > 1 && v < vectors; v += stride)
                l.template put<1>(team, v, own);
            last = epoch_leave(lane, team, ALG_EPOCH_OFFSET);
            for (v = first; v + (B - 1) * stride < vectors; v += B * stride) {
                if (!l.template take_again<B>(lane, team, v))
                    return;
            }
            for (; B > 1 && v < vectors; v += stride) {
                if (!l.template take_again<1>(lane, team, v))
                    return;
            }
        }
        epoch_close(last, team, ALG_EPOCH_OFFSET, epoch, 1);
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
