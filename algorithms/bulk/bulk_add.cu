/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_add.cu - all-reduce and reduce-scatter of long messages between two ranks with
 * few blocks, by bulk copies (bulk.h).
 *
 * Data path: input -> stage of the CUDA block -> slot in the peer's staging -> flag ->
 * stage, where warps add the own input -> output. Between two ranks one crossing moves
 * as many bytes as the two of staged (all-reduce: the whole input, instead of one half
 * and the sum of the other), and nobody waits for a sum to come back.
 *
 * Slots, flags, credit and most roles are those of bulk_move.cu. The taker loads the
 * chunk of the own input behind the peer's; the adders, two groups of warps that add
 * chunks in turn, leave the sums in the peer's place; the keeper stores these.
 *
 * A rank sends the very bits that it adds itself (bulk_multiplied), and both ranks add in
 * rank order, or where order does not count (reduce.h), so both have the same sums.
 *
 * In place, an all-reduce writes where it has to send from. So an adder of an all-reduce
 * adds a chunk when the sender of its block, which sends the same chunk, has told that
 * it is complete at the peer. No circle comes of that: the sender waits for credit alone,
 * which is for a lower chunk.
 */
#include "algorithms/bulk/launch.h"
#include "algorithms/bulk/plain.h"
#include "algorithms/device/input.h"

/* This rank's contribution, of a vector of its input. */
template <class R> struct bulk_multiplied {
    const R &r;

    LANE_FN bool changes() const
    {
        return r.op == ALG_PREMUL_SUM;
    }

    LANE_FN vec16_t operator()(const vec16_t &x) const
    {
        return changes() ? r.prepare(x) : x;
    }
};

/* What has arrived, joined with the own input, which lies behind it in its stage. */
template <class R, bool WHOLE> struct bulk_adder {
    enum { WARPS = BULK_TURNS * BULK_WARPS, LANES = BULK_ALL };
    const bulk_job_t &j;
    const R &r;
    buffer_t input; /* the own block */
    walk w;
    bulk_at_t at;
    uint32_t thread; /* of its group */

    LANE_FN static bulk_adder make(const bulk_job_t &j, const R &r, const buffer_t &input, const lane_t &lane)
    {
        bulk_adder a = {j, r, input, {}, {}, lane.thread % bulk_threads()};
        for (uint32_t turn = 0; turn < lane.thread / bulk_threads() % BULK_TURNS; turn++)
            a.next();
        return a;
    }

    LANE_FN void next()
    {
        bulk_next(*j.in, at);
        w.n++;
    }

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look_together(j);
        if (found != BULK_MOVED)
            return found;
        if (lane_warp_any(!bulk_filled(*j.in, at) || !sent()))
            return BULK_IDLE;
        const uint32_t vectors = buffer_vectors(j.bytes(w.chunk)), threads = bulk_threads();
        const bulk_granules_t g = WHOLE ? bulk_granules_t{} : bulk_granules(j, input.base, w.chunk);
        for (uint32_t row = 0; row < vectors; row += BULK_BATCH * threads) {
            LANE_UNROLL
            for (uint32_t b = 0; b < BULK_BATCH; b++) {
                const uint32_t i = row + b * threads + thread;
                if (i >= vectors)
                    continue;
                vec16_t x[1] = {bulk_vector(*j.in, at, i * VEC)};
                bulk_stage_store(*j.in, at, i, r.combine(x, j.team->rank, own(g, i)));
            }
        }
        bulk_change(*j.in, at, thread);
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++)
            next();
        return BULK_MOVED;
    }

    LANE_FN vec16_t own(const bulk_granules_t &g, uint32_t i) const
    {
        if (WHOLE)
            return bulk_vector(*j.in, at, BULK_STAGE + i * VEC);
        const bulk_multiplied<R> make_vector = {r};
        if (i < g.first || i >= g.end)
            return make_vector(buffer_load<uint8_t>(input, (uint32_t)(j.at(w.chunk) / VEC) + i));
        vec16_t v;
        bulk_reading(g.shift, [&](auto stage) { v = stage.vector(*j.in, at, BULK_STAGE + g.shift + i * VEC); });
        return make_vector(v);
    }

    /* The output may be where this rank sends from: all-reduce alone. */
    LANE_FN bool sent() const
    {
        return j.in_step != 0 || j.told(BULK_SENT) > w.n;
    }

    LANE_FN void end()
    {
    }
};

struct bulk_add {
    enum {
        DEPTH = BULK_ADD_DEPTH,
        LAG = 0,
        IN_CHUNKS = 2,
        WHOLE_THREADS = (8 + BULK_TURNS * BULK_WARPS) * 32,
        MOST_THREADS = (7 + BULK_TURNS + 2 * BULK_TURNS * BULK_WARPS) * 32
    };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        R r = R::make(team, call);
        bulk_block_t block;
        bulk_make(block, DEPTH, BULK_STAGE, IN_CHUNKS * BULK_STAGE);
        bulk_init(lane, block, IN_CHUNKS, BULK_WARPS, WHOLE ? 1 : BULK_WARPS);
        bulk_job_t j = bulk_job(team, call, r.input.bytes, block);
        j.in_step = route_input_has_blocks(call.collective) ? call.stride : 0;
        j.own = j.input + team.rank * j.in_step;
        j.pieces = 1;

        lane_begin((uintptr_t)team.own | j.plan.chunks | r.held(), call.early);
        r.begin(call);
        const uint64_t epoch = epoch_read(team);
        epoch_leave(lane, team);
        /* A warp's lanes leave together: its arrivals stand for what all of them stored. */
        if (lane_warp_any(epoch_stopped(epoch)))
            return;
        j.base = epoch_base(epoch);
        typedef bulk_adder<R, WHOLE> adder_t;
        adder_t adder = adder_t::make(j, r, buffer_make(j.own, r.input.bytes), lane);
        const uint32_t in_warp = lane.thread % lane_warp_size();
        bulk_lister lister = {j, lane.grid_blocks, {}, 0, 0, false, false};
        bulk_watcher<N, BULK_CREDIT> credit = {j, in_warp, 0};
        bulk_sender<N, true, WHOLE, LAG> sender = {j, {}, {}, {}, 0, 0, 0, 0};
        bulk_herald herald = {j, in_warp, 0};
        bulk_watcher<N, BULK_DATA> data = {j, in_warp, 0};
        bulk_taker<N, true, WHOLE> taker = {j, {}, {}, 0, 0, 0};
        bulk_loader<true, WHOLE> loader = {j, {}, {}, 0, 0};
        if constexpr (WHOLE) {
            bulk_keeper<true, LAG> keeper = {j, {}, {}, {}, 0, 0};
            bulk_roles(lane, team, adder, lister, loader, credit, sender, herald, data, taker, keeper);
        } else {
            typedef bulk_shifter<true, bulk_multiplied<R>> shifter_t;
            shifter_t shifter = shifter_t::make(j, {r}, lane);
            bulk_plain_keeper<true> keeper = bulk_plain_keeper<true>::make(j, lane);
            bulk_roles(lane, team, adder, keeper, shifter, lister, loader, credit, sender, herald, data, taker);
        }
    }

    static uint64_t max_bytes(alg_collective_t collective, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks == 2 ? bulk_most_bytes(map, nranks) * alg_collective_blocks(collective, nranks) : 0;
    }

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        bulk_shape(bytes / alg_collective_blocks(collective, nranks), blocks);
        static_assert((uint32_t)MOST_THREADS <= BULK_ADD_THREADS, "blocks are larger than tables say");
        *threads = BULK_ADD_THREADS;
    }
};

template <> constexpr bool ONLY_TWO_RANKS<bulk_add> = true;
template <> constexpr uint32_t UNALIGNED_BLOCKS<bulk_add> = BULK_UNALIGNED_BLOCKS;

namespace
{

/* A reducer (device/launch.h). Bulk copies send the input as it is, so where it is multiplied first the kernel for
 * buffers that are not whole serves. One rank's buffers may be whole, and the other's not. */
struct bulk_reducer {
    typedef bulk_add algorithm;
    typedef kernel_call_t argument;
#ifndef __CUDACC__
    static constexpr part_bytes_t PART_BYTES = NULL;
#endif

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        const kernel_call_t all = kernel_call_make(*call);
        return segments_launch(all, bulk_segment_bytes(), [team, stream](const kernel_call_t &segment) {
            const bool whole = bulk_is_whole(segment) && segment.op != ALG_PREMUL_SUM;
            return bulk_launch<bulk_add>(
                reduce_kernel_of<bulk_add, kernel_call_t>(segment.type, ops_kind(segment.op), team->nranks, whole),
                team, segment, whole, stream);
        });
    }

    static int preload(void)
    {
        return reduce_kernels_each<bulk_add, kernel_call_t>(bulk_preload<kernel_call_t>);
    }
};

} // namespace

ALG_ENTRIES(alg_bulk_add, bulk_reducer)
ALG_DESCRIBE(alg_allreduce_bulk, "bulk", ALG_ALL_REDUCE, ALG_MEMORY_PEER, alg_bulk_add)
ALG_DESCRIBE(alg_reducescatter_bulk, "bulk", ALG_REDUCE_SCATTER, ALG_MEMORY_PEER, alg_bulk_add)
