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
 * chunks in turn, leave the sums in the peer's place; the keeper stores these. Where
 * buffers are not whole (input.h), or the input is multiplied first, the adders load the
 * own input themselves.
 *
 * A rank sends the very bits that it adds itself, and both ranks add in rank order, or
 * where order does not count (reduce.h), so both have the same sums.
 *
 * In place, an all-reduce writes where it has to send from. So an adder of an all-reduce
 * adds a chunk when the sender has told that this rank's own chunk is complete at the
 * peer. No circle comes of that: the sender tells when it has credit for a chunk `lag`
 * later, which the peer's keeper gives when it has kept a chunk `slots - lag` before the
 * adder's.
 */
#include "algorithms/bulk/launch.h"
#include "algorithms/bulk/plain.h"
#include "algorithms/device/input.h"

/* What this rank sends of a vector of its input, where bulk copies do not send it as it is. */
template <class R> struct bulk_prepared {
    const R &r;

    LANE_FN vec16_t operator()(const vec16_t &x) const
    {
        return r.prepare(x);
    }
};

/* A group meets the same stages again and again, so it cannot take a stage's next filling for its last one's. */
static_assert(BULK_SIZE<true>.depth % BULK_TURNS == 0, "groups would meet each other's stages");

/* What has arrived, joined with the own input, in its stage. WHOLE: the own input is in the stage, too. */
template <class R, bool WHOLE> struct bulk_adder {
    enum { WARPS = BULK_TURNS * BULK_WARPS, BATCH = BULK_SIZE<true>.batch };
    const bulk_job_t &j;
    const R &r;
    buffer_t input; /* the own block */
    walk w;
    bulk_at_t at;
    uint32_t thread; /* of its group */
    uint32_t chunk;  /* of the block's, of all its channels */
    uint32_t row;    /* of the chunk: first vector of the rows that are next */
    bool loaded;
    vec16_t own[BATCH]; /* not WHOLE: of these rows, this lane's; each `threads` behind the one before */

    LANE_FN static bulk_adder make(const bulk_job_t &j, const R &r, const buffer_t &input, const walk &w,
                                   const lane_t &lane)
    {
        bulk_adder a = {j, r, input, w, {}, lane.thread % bulk_threads(), 0, 0, false, {}};
        for (uint32_t turn = 0; turn < lane.thread / bulk_threads() % BULK_TURNS; turn++)
            a.next();
        return a;
    }

    LANE_FN void next()
    {
        if (w.done())
            return;
        bulk_next(*j.in, at);
        chunk++;
        w.next();
    }

    LANE_FN bulk_step_t step()
    {
        if (w.done())
            return BULK_ENDED;
        const uint32_t vectors = buffer_vectors(w.bytes()), threads = bulk_threads();
        if (!WHOLE && !loaded)
            load(vectors);
        loaded = true;
        if (row == 0 && lane_warp_any(!bulk_filled(*j.in, at) || !sent()))
            return BULK_IDLE;
        LANE_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            const uint32_t i = row + b * threads + thread;
            if (i >= vectors)
                continue;
            vec16_t x[1] = {bulk_vector<true>(*j.in, at, i * VEC)};
            const vec16_t mine = WHOLE ? bulk_vector<true>(*j.in, at, w.plan.slot + i * VEC) : own[b];
            bulk_stage_store(*j.in, at, i, r.combine(x, j.team->rank, mine));
        }
        loaded = false;
        row += BATCH * threads;
        if (row < vectors)
            return BULK_MOVED;
        row = 0;
        bulk_change(*j.in, at, thread);
        for (uint32_t turn = 0; turn < BULK_TURNS; turn++)
            next();
        return BULK_MOVED;
    }

    LANE_FN void load(uint32_t vectors)
    {
        const uint32_t first = (uint32_t)(w.at / VEC);
        LANE_UNROLL
        for (uint32_t b = 0; b < BATCH; b++) {
            const uint32_t i = row + b * bulk_threads() + thread;
            own[b] = r.load_from_if(i < vectors, input, first + i);
        }
    }

    /* The output may be where this rank sends from: all-reduce alone. */
    LANE_FN bool sent() const
    {
        return j.in_step != 0 || bulk_told(j.sent) > chunk;
    }

    LANE_FN void end()
    {
    }
};

struct bulk_add {
    enum {
        IN_CHUNKS = 2,
        WHOLE_THREADS = (5 + BULK_TURNS * BULK_WARPS) * 32,
        MOST_THREADS = (3 + (2 * BULK_TURNS + 1) * BULK_WARPS) * 32
    };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        constexpr bulk_size_t SIZE = BULK_SIZE<true>;
        R r = R::make(team, call);
        bulk_block_t block;
        bulk_make(block, SIZE.depth, SIZE.chunk, IN_CHUNKS * SIZE.chunk);
        bulk_init(lane, block, WHOLE ? 1 : BULK_WARPS, WHOLE ? IN_CHUNKS : 1, BULK_WARPS, WHOLE ? 1 : BULK_WARPS);
        bulk_job_t j = {};
        j.team = &team;
        j.out = &block.ring[0];
        j.in = &block.ring[1];
        j.sent = block.word;
        j.input = (const uint8_t *)call.input;
        j.output = (uint8_t *)call.output;
        j.in_step = route_input_has_blocks(call.collective) ? call.stride : 0;
        j.own = j.input + team.rank * j.in_step;
        j.pieces = 1;
        walk w = walk::make(bulk_plan(team, r.input.bytes, call.blocks, SIZE.chunk), lane);

        lane_begin((uintptr_t)team.own | w.plan.span | r.held(), call.early);
        r.begin(call);
        const uint64_t epoch = epoch_read(team);
        epoch_leave(lane, team);
        /* A warp's lanes leave together: its arrivals stand for what all of them stored. */
        if (lane_warp_any(epoch_stopped(epoch)))
            return;
        j.base = epoch_base(epoch);
        typedef bulk_adder<R, WHOLE> adder_t;
        adder_t adder = adder_t::make(j, r, buffer_make(j.own, r.input.bytes), w, lane);
        bulk_sender<N, true, false> sender = {j, w, {}, {}, 0, 0, 0};
        bulk_herald herald = {j, w, 0};
        bulk_taker<N, WHOLE> taker = {j, w, {}, 0, 0, 0, false};
        if constexpr (WHOLE) {
            bulk_loader<true> loader = {j, w, {}, 0, 0};
            bulk_keeper<true, true> keeper = {j, w, {}, {}, 0, 0};
            bulk_roles(lane, team, adder, loader, sender, herald, taker, keeper);
        } else {
            typedef bulk_plain_loader<true, bulk_prepared<R>> plain_t;
            plain_t loader = plain_t::make(j, {r}, w, lane);
            bulk_plain_keeper<true> keeper = {j, w, {}, 0, lane.thread % bulk_threads()};
            bulk_roles(lane, team, adder, loader, keeper, sender, herald, taker);
        }
    }

    static uint64_t segment_bytes(const alg_team_t *, const alg_call_t *call)
    {
        return (uint64_t)call->blocks * BULK_MOST_CHUNKS * BULK_SIZE<true>.chunk;
    }

    static constexpr bulk_size_t size(alg_collective_t)
    {
        return BULK_SIZE<true>;
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks == 2 && bulk_fits(map, nranks, BULK_SIZE<true>.chunk) ? BULK_MOST_BYTES : 0;
    }

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        bulk_shape(bytes / alg_collective_blocks(collective, nranks), BULK_SIZE<true>.chunk, blocks);
        *threads = MOST_THREADS;
    }
};

template <> constexpr bool ONLY_TWO_RANKS<bulk_add> = true;

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
        return segments_launch(all, bulk_add::segment_bytes(team, call), [team, stream](const kernel_call_t &segment) {
            const bool whole = kernel_call_is_whole(segment) && segment.op != ALG_PREMUL_SUM;
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
