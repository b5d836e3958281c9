/* SPDX-License-Identifier: Apache-2.0 */
/* bulk_add.cu - all-reduce and reduce-scatter of long buffers with few blocks, by bulk copies (bulk.h).
 *
 * Data path: input -> stage of the CUDA block -> slot in the peer's staging -> flag -> stage, where warps add ->
 * output. No deadlock: move.h.
 *
 * To all-reduce, two ranks exchange inputs. More ranks reduce-scatter into slices of the output, and a second kernel
 * gathers these. All ranks get the same bits: a rank adds exactly what it sends (bulk_multiplied), in rank order unless
 * order does not matter (reduce.h). */
#include "algorithms/bulk/move.h"
#include "algorithms/device/input.h"

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

template <int N> LANE_FN uint32_t bulk_ranks(const alg_team_t &team)
{
    return N <= EXACT_RANKS ? N : team.nranks;
}

/* Loads all peers' chunks, in rank order, then this rank's, into one stage. */
template <int N, bool WHOLE> struct bulk_collector {
    enum { WARPS = 1, LANES = 1 };
    const bulk_job_t &j;
    walk w = {};
    bulk_at_t at = {};
    uint32_t issued = 0, arrived = 0;

    LANE_FN bulk_step_t step()
    {
        const bulk_step_t found = w.look(j);
        if (found != BULK_MOVED)
            return found;
        if (!bulk_arrived(j, w, arrived) || !bulk_free(*j.in, at))
            return BULK_IDLE;
        const uint32_t rank = j.team->rank, ranks = bulk_ranks<N>(*j.team), bytes = j.slot_bytes(w.chunk, rank);
        LANE_UNROLL
        for (uint32_t place = 0; place < N - 1; place++) {
            if (place < ranks - 1)
                bulk_load(*j.in, at, bulk_slot(j, rank, other_rank(*j.team, place), w.chunk), bytes, place * j.unit);
        }
        bulk_bring<WHOLE>(j, *j.in, at, j.own, rank, w.chunk, (ranks - 1) * j.unit);
        bulk_next(*j.in, at);
        issued++;
        w.n++;
        return BULK_MOVED;
    }

    LANE_FN void end()
    {
        bulk_await_loads(*j.in, at, issued);
    }
};

/* Adds all chunks of a stage into its first one. Groups of warps serve stages in turn. */
template <class R, int N, bool WHOLE> struct bulk_adder {
    enum { WARPS = BULK_TURNS * BULK_WARPS, LANES = BULK_ALL };
    const bulk_job_t &j;
    const R &r;
    buffer_t input;
    walk w;
    bulk_at_t at;
    uint32_t thread;

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
        const uint32_t vectors = buffer_vectors(j.bytes(w.chunk, j.team->rank)), threads = bulk_threads();
        const bulk_granules_t g = WHOLE ? bulk_granules_t{} : bulk_granules(j, input.base, j.team->rank, w.chunk);
        constexpr uint32_t BATCH = N == 2 ? (uint32_t)BULK_BATCH : N <= 4 ? 2 : 1; /* as many as registers hold */
        for (uint32_t row = 0; row < vectors; row += BATCH * threads) {
            LANE_UNROLL
            for (uint32_t b = 0; b < BATCH; b++) {
                const uint32_t i = row + b * threads + thread;
                if (i >= vectors)
                    continue;
                vec16_t x[N - 1];
                LANE_UNROLL
                for (uint32_t place = 0; place < N - 1; place++) {
                    const uint32_t last = bulk_ranks<N>(*j.team) - 2; /* surplus loads repeat the last one */
                    x[place] = bulk_vector(*j.in, at, (place < last ? place : last) * j.unit + i * VEC);
                }
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
        const uint32_t own_offset = (bulk_ranks<N>(*j.team) - 1) * j.unit;
        if (WHOLE)
            return bulk_vector(*j.in, at, own_offset + i * VEC);
        const bulk_multiplied<R> make_vector = {r};
        if (i < g.first || i >= g.end)
            return make_vector(buffer_load<uint8_t>(input, (uint32_t)(j.at(w.chunk) / VEC) + i));
        vec16_t v;
        bulk_reading(g.shift, [&](auto stage) { v = stage.vector(*j.in, at, own_offset + g.shift + i * VEC); });
        return make_vector(v);
    }

    /* In place, an all-reduce of two ranks overwrites its input. So the adder waits until the chunk is sent (BULK_SENT;
     * a chunk is one piece). No deadlock: the sender waits only for credit, which depends only on lower chunks. */
    LANE_FN bool sent() const
    {
        return j.in_step != 0 || j.list.told(BULK_SENT) > w.n;
    }

    LANE_FN void end()
    {
    }
};

static inline bool bulk_has_two_steps(alg_collective_t collective, uint32_t nranks)
{
    return collective == ALG_ALL_REDUCE && nranks > 2;
}

/* Most older copies that the sender leaves in flight. With more ranks, pieces are shorter, so there are more. */
template <int N> constexpr int BULK_ADD_LAG = N <= 2 ? 0 : N <= 4 ? 1 : 3;

struct bulk_add {
    enum {
        DEPTH = BULK_ADD_DEPTH,
        IN_CHUNKS = 2,
        PARTS = BULK_MOST_PARTS,
        WHOLE_THREADS = (8 + BULK_TURNS * BULK_WARPS) * 32,
        MOST_THREADS = (7 + BULK_TURNS + 2 * BULK_TURNS * BULK_WARPS) * 32
    };

    template <int TYPE, int OPS, int N, bool WHOLE>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        typedef reduction<TYPE, OPS, N, WHOLE> R;
        R r = R::make(team, call);
        const uint32_t ranks = bulk_ranks<N>(team), parts = bulk_parts(ranks);
        bulk_block_t block;
        bulk_make(block, DEPTH, BULK_STAGE, IN_CHUNKS * BULK_STAGE, parts);
        bulk_init(lane, block, ranks, BULK_WARPS, WHOLE ? 1 : BULK_WARPS);
        bulk_job_t j = bulk_job(team, call, r.input.bytes, BULK_CHUNK / parts, block);
        j.in_step = route_input_has_blocks(call.collective) ? call.stride : 0;
        j.own = j.input + team.rank * j.in_step;
        j.pieces = ranks - 1;

        lane_begin((uintptr_t)team.own | j.plan.chunks | r.held(), call.early);
        r.begin(call);
        const uint64_t epoch = epoch_read(team);
        epoch_leave(lane, team);
        if (lane_warp_any(epoch_stopped(epoch)))
            return;
        j.base = epoch_base(epoch);
        typedef bulk_adder<R, N, WHOLE> adder_t;
        adder_t adder = adder_t::make(j, r, buffer_make(j.own, j.data_bytes(team.rank)), lane);
        const uint32_t in_warp = lane.thread % lane_warp_size();
        bulk_lister<N> lister = {j, lane.grid_blocks, lane.grid_block >= call.sure_blocks};
        bulk_watcher<N, BULK_CREDIT> credit = {j, in_warp};
        bulk_sender<N, true, WHOLE, BULK_ADD_LAG<N>> sender = {j};
        bulk_herald herald = {j, in_warp};
        bulk_watcher<N, BULK_DATA> data = {j, in_warp};
        bulk_collector<N, WHOLE> collector = {j};
        bulk_loader<true, WHOLE> loader = {j};
        if constexpr (WHOLE) {
            bulk_keeper<true, 0> keeper = {j};
            bulk_roles(lane, team, adder, lister, loader, credit, sender, herald, data, collector, keeper);
        } else {
            typedef bulk_shifter<true, bulk_multiplied<R>> shifter_t;
            shifter_t shifter = shifter_t::make(j, {r}, lane);
            bulk_plain_keeper<true> keeper = bulk_plain_keeper<true>::make(j, lane);
            bulk_roles(lane, team, adder, keeper, shifter, lister, loader, credit, sender, herald, data, collector);
        }
    }

    static uint64_t max_bytes(alg_collective_t collective, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks >= 2 ? bulk_most_bytes(map, nranks) * alg_collective_blocks(collective, nranks) : 0;
    }

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        bulk_shape(bytes /
                       (bulk_has_two_steps(collective, nranks) ? nranks : alg_collective_blocks(collective, nranks)),
                   blocks);
        static_assert((uint32_t)MOST_THREADS <= BULK_ADD_THREADS, "blocks are larger than tables say");
        *threads = BULK_ADD_THREADS;
    }
};

template <> inline constexpr uint32_t UNALIGNED_BLOCKS<bulk_add> = BULK_UNALIGNED_BLOCKS;
template <> inline constexpr bool FILLS_MULTIPROCESSOR<bulk_add> = true;
template <> inline constexpr bool SPARE_BLOCKS<bulk_add> = true;
template <> inline constexpr uint32_t PIECE<bulk_add> = ALG_PIECE_STAGING;

namespace
{

/* ALG_PREMUL_SUM uses the kernel for buffers that are not whole: bulk copies do not multiply. Ranks may differ. */
struct bulk_reducer {
    typedef bulk_add algorithm;
    typedef kernel_call_t argument;
#ifndef __CUDACC__
    static constexpr part_bytes_t PART_BYTES = NULL;
#endif

#ifndef ALG_ONE_TYPE /* with ALG_ONE_TYPE the file compiles only kernels (dispatch.h) */
    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        const kernel_call_t all = kernel_call_make(*call);
        return bulk_has_two_steps(call->collective, team->nranks) ? launch_two_steps(team, all, stream)
                                                                  : launch_sum(team, all, stream);
    }

    static int launch_sum(const alg_team_t *team, const kernel_call_t &call, void *stream)
    {
        const uint64_t most = bulk_segment_bytes(BULK_CHUNK / bulk_parts(team->nranks));
        return segments_launch(call, most, [team, stream](const kernel_call_t &segment) {
            const bool whole = bulk_is_whole(segment) && segment.op != ALG_PREMUL_SUM;
            return bulk_launch<bulk_add>(
                reduce_kernel_of<bulk_add, kernel_call_t>(segment.type, ops_kind(segment.op), team->nranks, whole),
                team, segment, whole, stream);
        });
    }

    /* Slices are multiples of BULK_LINE; the last may be shorter or empty. */
    static int launch_two_steps(const alg_team_t *team, kernel_call_t call, void *stream)
    {
        const uint64_t bytes = call.stride, lines = (bytes - 1) / BULK_LINE + 1;
        uint8_t *const output = (uint8_t *)call.output;
        call.stride = (lines + team->nranks - 1) / team->nranks * BULK_LINE;
        call.all_bytes = bytes;
        call.count = call.stride / alg_type_bytes(call.type);
        call.collective = ALG_REDUCE_SCATTER;
        call.output = output + team->rank * call.stride;
        const int error = launch_sum(team, call, stream);
        if (error != 0)
            return error;
        call.count = call.stride;
        call.type = ALG_UINT8;
        call.collective = ALG_ALL_GATHER;
        call.input = call.output;
        call.output = output;
        return bulk_launch_move<false>(team, call, stream);
    }

    static int preload(uint32_t nranks)
    {
        const int error = reduce_kernels_each<bulk_add, kernel_call_t>(nranks, bulk_preload<kernel_call_t>);
        return error != 0 ? error : bulk_preload_moves<false>(nranks);
    }
#endif
};

} // namespace

ALG_ENTRIES(alg_bulk_add, bulk_reducer)
ALG_DESCRIBE(alg_allreduce_bulk, "bulk", ALG_ALL_REDUCE, ALG_MEMORY_PEER, alg_bulk_add)
ALG_DESCRIBE(alg_reducescatter_bulk, "bulk", ALG_REDUCE_SCATTER, ALG_MEMORY_PEER, alg_bulk_add)
