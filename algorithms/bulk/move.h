/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - all-gather and all-to-all of long buffers with few blocks, by bulk copies (bulk.h).
 *
 * Data path: input -> stage of the CUDA block -> slot in the peer's staging -> flag -> stage -> output.
 *
 * The block that takes a chunk sends it to the peers, and receives the peers' chunks of the same number. Each ordered
 * pair of ranks has a ring of slots (walk.h). In the ring's first round ENTRY replaces CREDIT.
 *
 * No deadlock: blocks serve chunks in order, and a chunk waits only for lower ones. The staged algorithm uses the same
 * staging; either may follow the other (docs/lab/proofs.md). A broken wait ends every role at its next lane_stop. */
#ifndef SHUNT_BULK_MOVE_H
#define SHUNT_BULK_MOVE_H

#include "algorithms/bulk/launch.h"
#include "algorithms/bulk/plain.h"

struct bulk_move {
    enum {
        DEPTH = BULK_DEPTH,
        LAG = 1,
        IN_CHUNKS = 1,
        PARTS = 1,
        WHOLE_THREADS = 8 * 32,
        MOST_THREADS = (7 + BULK_TURNS + BULK_TURNS * BULK_WARPS) * 32
    };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        bulk_block_t block;
        bulk_make(block, DEPTH, BULK_STAGE, IN_CHUNKS * BULK_STAGE, 1);
        bulk_init(lane, block, IN_CHUNKS, 1, WHOLE ? 1 : BULK_WARPS);
        bulk_job_t j = bulk_job(team, call, call.count, BULK_CHUNK, block);
        j.in_step = EACH ? call.stride : 0;
        j.out_step = call.stride;
        j.keep = j.output + team.rank * j.out_step != j.input + team.rank * j.in_step;
        j.pieces = EACH ? team.nranks - 1 + j.keep : 1;

        lane_begin((uintptr_t)team.own | j.plan.chunks, call.early);
        const uint64_t epoch = epoch_read(team);
        epoch_leave(lane, team); /* its lane_sync also publishes bulk_init's barriers */
        if (lane_warp_any(epoch_stopped(epoch)))
            return;
        j.base = epoch_base(epoch);
        const uint32_t in_warp = lane.thread % lane_warp_size();
        bulk_lister<N> lister = {j, lane.grid_blocks, lane.grid_block >= call.sure_blocks};
        bulk_watcher<N, BULK_CREDIT> credit = {j, in_warp};
        bulk_sender<N, EACH, WHOLE, LAG> sender = {j};
        bulk_herald herald = {j, in_warp};
        bulk_watcher<N, BULK_DATA> data = {j, in_warp};
        bulk_taker taker = {j};
        bulk_loader<EACH, WHOLE> loader = {j};
        if constexpr (WHOLE) {
            bulk_keeper<false, LAG> keeper = {j};
            bulk_roles(lane, team, lister, loader, credit, sender, herald, data, taker, keeper);
        } else {
            typedef bulk_shifter<EACH, bulk_as_it_is> shifter_t;
            shifter_t shifter = shifter_t::make(j, {}, lane);
            bulk_plain_keeper<false> keeper = bulk_plain_keeper<false>::make(j, lane);
            bulk_roles(lane, team, keeper, shifter, lister, loader, credit, sender, herald, data, taker);
        }
    }

    static uint64_t max_bytes(alg_collective_t collective, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks >= 2 ? bulk_most_bytes(map, nranks) * alg_collective_blocks(collective, nranks) : 0;
    }

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        bulk_shape(bytes / alg_collective_blocks(collective, nranks), blocks);
        static_assert((uint32_t)MOST_THREADS <= BULK_MOVE_THREADS, "blocks are larger than tables say");
        *threads = BULK_MOVE_THREADS;
    }
};

template <> inline constexpr uint32_t UNALIGNED_BLOCKS<bulk_move> = BULK_UNALIGNED_BLOCKS;
template <> inline constexpr bool FILLS_MULTIPROCESSOR<bulk_move> = true;
template <> inline constexpr bool SPARE_BLOCKS<bulk_move> = true;
template <> inline constexpr uint32_t PIECE<bulk_move> = ALG_PIECE_STAGING;

template <bool EACH> static int bulk_launch_move(const alg_team_t *team, const kernel_call_t &call, void *stream)
{
    return segments_launch(call, bulk_segment_bytes(BULK_CHUNK), [team, stream](const kernel_call_t &segment) {
        const bool whole = bulk_is_whole(segment);
        return bulk_launch<bulk_move>(move_kernel_of<bulk_move, kernel_call_t, EACH>(team->nranks, whole), team,
                                      segment, whole, stream);
    });
}

template <bool EACH> static int bulk_preload_moves(uint32_t nranks)
{
    return move_kernels_each<bulk_move, kernel_call_t, EACH>(nranks, bulk_preload<kernel_call_t>);
}

#endif
