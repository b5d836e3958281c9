/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.cu - all-reduce between nodes, in one kernel: input slice o -> rank o of this node adds in rank order ->
 * relay (relay.h) -> rank o of each other node adds the nodes' sums in node order -> output, and its peers' gather
 * slots -> output.
 *
 * Values that travel are rounded to the type. To average floats, a node sends its average, since its sum may be out of
 * range. In place is safe: a lane posts or sends its input at a position before it stores there. */
#include "algorithms/allreduce/twoshot.h"
#include "algorithms/device/launch.h"
#include "algorithms/nodes/relay.h"

enum { STEP_VECTORS = RELAY_STEP_BYTES / VEC };

template <int TYPE, int OPS, int N, bool WHOLE> struct exchange_lane {
    typedef twoshot_lane<TYPE, OPS, N, WHOLE> local_t;
    typedef reduction<TYPE, OPS, N, WHOLE> one_node_t;
    typedef reduction<TYPE, OPS, ALG_MAX_RANKS, WHOLE> nodes_t;
    static constexpr bool AVERAGES = local_t::R::MARK != MARK_ESCAPE; /* nodes send averages of floats */

    local_t t;
    one_node_t rank_sum;
    nodes_t node_sum;
    uint32_t own;           /* vectors of this rank's slice */
    uint32_t first, stride; /* within a step */
    uint32_t steps;
    uint64_t number; /* of the call */
    uint8_t *partial;

    LANE_FN static exchange_lane make(const lane_t &lane, const alg_team_t &team, const kernel_call_t &call)
    {
        exchange_lane l;
        l.first = lane.block * lane.threads + lane.thread;
        l.stride = lane.blocks * lane.threads;
        l.t = local_t::make(team, call, l.first);
        l.node_sum = nodes_t::make(team, call);
        l.node_sum.nranks = team.nodes;
        const uint32_t begin = team.rank * l.t.slice, left = begin < l.t.vectors ? l.t.vectors - begin : 0;
        l.own = left < l.t.slice ? left : l.t.slice;
        l.steps = (l.t.slice + STEP_VECTORS - 1) / STEP_VECTORS; /* equal on all ranks */
        l.partial = team.scratch[team.rank] + team.staging_offset + (uint64_t)l.first * VEC;
        return l;
    }

    LANE_FN void begin(const alg_team_t &team, const kernel_call_t &call, uint64_t epoch)
    {
        t.r.begin(call);
        node_sum.begin(call);
        rank_sum = t.r;
        if (OPS == OPS_SUM && !AVERAGES)
            rank_sum.op = ALG_SUM; /* integers are averaged at the end, over all ranks */
        t.s.move(epoch_half(team, epoch));
        number = epoch_base(epoch) / EPOCH_UNIT;
    }

    LANE_FN bool alone() const
    {
        return t.s.ranks() == 1;
    }

    LANE_FN uint64_t tag(uint32_t c) const
    {
        return RELAY_TAG(number, c);
    }

    LANE_FN uint32_t slot(uint32_t c) const
    {
        return RELAY_SLOT(number, c);
    }

    LANE_FN uint32_t step_vectors(uint32_t c) const
    {
        const uint32_t begin = c * STEP_VECTORS, left = begin < own ? own - begin : 0;
        return left < STEP_VECTORS ? left : (uint32_t)STEP_VECTORS;
    }

    LANE_FN uint64_t place(uint32_t c, uint32_t k) const
    {
        return (uint64_t)slot(c) * RELAY_STEP_BYTES + (uint64_t)(first + k) * VEC;
    }

    /* Posts step c, summed over this node. After a broken wait no word announces the step. */
    LANE_FN bool lay(lane_t &lane, const alg_team_t &team, uint32_t c) const
    {
        const uint32_t count = step_vectors(c);
        bool broken = false;
        for (uint32_t k = 0; first + k < count; k += stride) {
            const uint32_t at = c * STEP_VECTORS + k;
            vec16_t x = t.r.load(t.at[0] + at);
            if (!alone()) {
                vec16_t others[N - 1];
                broken = !t.s.take(lane, team, t.s.all(), at, others);
                if (broken)
                    break;
                x = rank_sum.combine(others, team.rank, x);
                t.s.rearm(t.s.all(), at);
                lane_copy_out(partial + (uint64_t)at * VEC, x);
            }
            lane_post(team.relay + RELAY_OUTBOX + place(c, k), x);
        }
        if (lane_sync_any(broken))
            return false;
        if (lane.thread == 0) {
            const uint64_t now = tag(c);
            const uint32_t last = c + 1 == steps ? (uint32_t)RELAY_LAST : 0;
            lane_fence();
            lane_post(team.relay + RELAY_WORDS + (slot(c) * RELAY_BLOCKS + lane.block) * RELAY_WORD_BYTES,
                      vec16_t{{count * VEC, lane.blocks | last, (uint32_t)now, (uint32_t)(now >> 32)}});
        }
        return true;
    }

    LANE_FN bool wait(lane_t &lane, const alg_team_t &team, uint32_t c) const
    {
        const uint64_t wanted = tag(c);
        bool broken = false;
        lane_wait_begins(lane);
        for (uint32_t h = lane.thread; h < team.nodes && !broken; h += lane.threads) {
            uint64_t seen = wanted;
            while (h != team.node && !broken && (seen = lane_flag(team.relay + RELAY_FLAGS + 8 * h)) < wanted)
                broken = lane_stop(lane, team);
            if (seen == RELAY_LOST && !broken) {
                lane_lose(team);
                broken = true;
            }
        }
        return !lane_sync_any(broken);
    }

    LANE_FN void add(const alg_team_t &team, uint32_t c) const
    {
        const uint32_t count = step_vectors(c), shares = AVERAGES ? team.nodes : team.nodes * t.s.ranks();
        for (uint32_t k = 0; first + k < count; k += stride) {
            const uint32_t at = c * STEP_VECTORS + k;
            const uint8_t *inbox = team.relay + RELAY_INBOX + place(c, k);
            vec16_t x[ALG_MAX_RANKS - 1] = {};
            LANE_UNROLL
            for (uint32_t j = 0; j < ALG_MAX_RANKS - 1; j++) {
                if (j + 1 < team.nodes)
                    x[j] = lane_fetch(inbox + (uint64_t)(j + (j >= team.node)) * RELAY_WINDOW_BYTES);
            }
            const vec16_t mine = alone() ? t.r.load(t.at[0] + at) : lane_copy_in(partial + (uint64_t)at * VEC);
            const vec16_t result = node_sum.combine_of(x, team.node, mine, shares);
            if (!alone())
                t.s.put_all(t.s.second_set() + at, result);
            t.r.store(t.at[0] + at, result);
        }
    }
};

struct exchange {
    enum { MOST_THREADS = 512 };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        auto l = exchange_lane<TYPE, OPS, N, WHOLE>::make(lane, team, call);

        lane_begin(l.t.held() | (uintptr_t)l.partial, call.early);
        const uint64_t epoch = epoch_read(team);
        l.begin(team, call, epoch);
        epoch_leave(lane, team);
        if (lane_sync_any(epoch_stopped(epoch)))
            return;
        for (uint32_t k = 0; !l.alone() && l.first + k < l.t.slice; k += l.stride) {
            vec16_t x[N];
            l.t.load(true, k, x);
            l.t.put(k, x);
        }
        for (uint32_t c = 0; c < RELAY_AHEAD && c < l.steps; c++) {
            if (!l.lay(lane, team, c))
                return;
        }
        for (uint32_t c = 0; c < l.steps; c++) {
            if (!l.wait(lane, team, c))
                return;
            l.add(team, c);
            if (c + RELAY_AHEAD < l.steps && !l.lay(lane, team, c + RELAY_AHEAD))
                return;
        }
        for (uint32_t k = 0; !l.alone() && l.first + k < l.t.slice; k += l.stride) {
            if (!l.t.template take<1>(lane, team, k, 0))
                return;
        }
    }

    /* Most bytes of a kernel: slices must fit RELAY_STEPS steps and staging; slots must fit a half. */
    static uint64_t room(uint64_t half_bytes, uint64_t staging_bytes, uint32_t nranks, alg_type_t type)
    {
        const uint64_t steps = (uint64_t)RELAY_STEPS * RELAY_STEP_BYTES;
        if (nranks < 2)
            return steps;
        const uint64_t slice = (steps < staging_bytes ? steps : staging_bytes) / VEC * VEC;
        const uint64_t slots = twoshot_room(half_bytes, nranks, type);
        return slots < slice * nranks ? slots : slice * nranks;
    }

    static uint64_t segment_bytes(const alg_team_t *team, const alg_call_t *call)
    {
        return room(team->half_bytes, team->staging_bytes, team->nranks, call->type);
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t type)
    {
        return room(map->half_bytes, map->staging_bytes, nranks, type) >= VEC * nranks ? UINT64_MAX : 0;
    }

    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        const uint32_t slice = twoshot_slice(buffer_vectors(bytes), nranks);
        grid_shape(slice < (uint32_t)STEP_VECTORS || nranks > 1 ? slice : (uint32_t)STEP_VECTORS,
                   grid_most_threads<exchange>(nranks), blocks, threads);
        *blocks = *blocks < RELAY_BLOCKS ? *blocks : (uint32_t)RELAY_BLOCKS;
    }
};

#ifndef __CUDACC__
extern "C" uint64_t alg_exchange_kernels(const alg_team_t *team, const alg_call_t *call)
{
    const uint64_t bytes = call->count * alg_type_bytes(call->type);
    const uint64_t segment = segments_bytes(bytes, exchange::segment_bytes(team, call));
    return (bytes + segment - 1) / segment;
}
#endif

ALG_ENTRIES(alg_exchange, reducer<exchange>)
ALG_DESCRIBE(alg_nodes_exchange, "exchange", ALG_ALL_REDUCE, ALG_MEMORY_NETWORK, alg_exchange)
