/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_move.cu - all-gather and all-to-all of long messages with few blocks, by
 * bulk copies (bulk.h).
 *
 * Data path: input -> stage of the CUDA block -> slot in the peer's staging -> flag ->
 * stage -> output. A multiprocessor stores 50 GB/s so, and 36 to 40 by plain stores;
 * nothing is polled but flags, nothing re-armed.
 *
 * A CUDA block serves a channel: it sends and receives that channel's part of every
 * rank's data, in chunks. A channel has a ring of slots at each peer. Flags are the
 * call's number plus a count of chunks, and never cleared, as staged's. DATA: so many
 * of the sender's chunks have arrived; CREDIT: so many may be sent.
 *
 * Between two calls: credit begins anew in each call, with a full ring, which the
 * receiver gives when it has begun the call: its last kernel has ended then, and has
 * read all that earlier calls sent. So nobody waits at the end of a call for what its
 * peers read. No call is empty, so channel 0 has a chunk for every pair of ranks, and
 * a rank ends only when it has heard of that (algorithm.h). The rings lie in the half
 * of staging that staged gathers in. There staged stores only behind a flag that the
 * reader raised in the same call, too, so either may follow the other.
 *
 * Roles of a block (bulk.h): the loader fills stages from the input, the sender
 * empties them into the peers' slots (and the own block into the output); the
 * herald raises DATA. The taker fills other stages from own slots, the keeper
 * empties them into the output and gives CREDIT. The fence before a DATA flag takes
 * microseconds, so the sender leaves it to the herald. Where buffers are not whole
 * (input.h) the loader and the keeper are several warps (plain.h), and the loader keeps
 * the own block.
 *
 * What crosses the link is ordered so. The sender sees its copies complete, tells the
 * herald, which fences and raises DATA; the taker sees that, and a fence of the copies'
 * way to memory puts its load behind it. The other way round the keeper sees the load
 * complete and gives CREDIT; the sender sees that, fences likewise, and stores.
 *
 * A wait that is broken ends its role alone. The others find the stop at their next
 * look, and go on until then as if the first were late: data and flags that still go
 * out are right. Each role waits for its own copies before it leaves.
 *
 * The number of channels is the same on all ranks. The number of blocks need not be:
 * the roles of a block take its channels one after the other, in growing order, so
 * the lowest channel that is not through is under way on every rank.
 */
#include "algorithms/bulk/launch.h"
#include "algorithms/bulk/plain.h"

struct bulk_move {
    enum { IN_CHUNKS = 1, WHOLE_THREADS = 5 * 32, MOST_THREADS = (3 + (BULK_TURNS + 1) * BULK_WARPS) * 32 };

    template <int N, bool WHOLE, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const kernel_call_t &call)
    {
        constexpr bulk_size_t SIZE = BULK_SIZE<EACH>;
        bulk_block_t block;
        bulk_make(block, SIZE.depth, SIZE.chunk, IN_CHUNKS * SIZE.chunk);
        bulk_init(lane, block, WHOLE ? 1 : BULK_WARPS, 1, 1, WHOLE ? 1 : BULK_WARPS);
        bulk_job_t j = {};
        j.team = &team;
        j.out = &block.ring[0];
        j.in = &block.ring[1];
        j.sent = block.word;
        j.input = (const uint8_t *)call.input;
        j.output = (uint8_t *)call.output;
        j.in_step = EACH ? call.stride : 0;
        j.out_step = call.stride;
        j.keep = j.output + team.rank * j.out_step != j.input + team.rank * j.in_step;
        j.pieces = EACH ? team.nranks - 1 + (WHOLE && j.keep) : 1;
        walk w = walk::make(bulk_plan(team, call.count, call.blocks, SIZE.chunk), lane);

        lane_begin((uintptr_t)team.own | w.plan.span, call.early);
        const uint64_t epoch = epoch_read(team);
        epoch_leave(lane, team);
        /* A warp's lanes leave together: its arrivals stand for what all of them stored. */
        if (lane_warp_any(epoch_stopped(epoch)))
            return;
        j.base = epoch_base(epoch);
        bulk_sender<N, EACH, WHOLE> sender = {j, w, {}, {}, 0, 0, 0};
        bulk_herald herald = {j, w, 0};
        bulk_taker<N, false> taker = {j, w, {}, 0, 0, 0, false};
        if constexpr (WHOLE) {
            bulk_loader<EACH> loader = {j, w, {}, 0, 0};
            bulk_keeper<EACH, false> keeper = {j, w, {}, {}, 0, 0};
            bulk_roles(lane, team, loader, sender, herald, taker, keeper);
        } else {
            typedef bulk_plain_loader<EACH, bulk_as_it_is> plain_t;
            plain_t loader = plain_t::make(j, {}, w, lane);
            bulk_plain_keeper<false> keeper = {j, w, {}, 0, lane.thread % bulk_threads()};
            bulk_roles(lane, team, loader, keeper, sender, herald, taker);
        }
    }

    static uint64_t segment_bytes(const alg_team_t *, const alg_call_t *call)
    {
        return (uint64_t)call->blocks * BULK_MOST_CHUNKS * size(call->collective).chunk;
    }

    static constexpr bulk_size_t size(alg_collective_t collective)
    {
        return route_input_has_blocks(collective) ? BULK_SIZE<true> : BULK_SIZE<false>;
    }

    static uint64_t max_bytes(alg_collective_t collective, const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks >= 2 && bulk_fits(map, nranks, size(collective).chunk) ? BULK_MOST_BYTES : 0;
    }

    static void shape(alg_collective_t collective, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        bulk_shape(bytes / alg_collective_blocks(collective, nranks), size(collective).chunk, blocks);
        *threads = MOST_THREADS;
    }
};

#if defined(__CUDACC__) && __CUDA_ARCH__ == 900
/* With 64 registers two fit a multiprocessor. More ranks, or the code for other GPUs, would spill. */
template <> inline constexpr int BLOCKS_A_MULTIPROCESSOR<bulk_move, 2> = 2;
#endif

namespace
{

/* A mover (device/launch.h). */
struct bulk_mover {
    typedef bulk_move algorithm;
#ifndef __CUDACC__
    static constexpr part_bytes_t PART_BYTES = NULL;
#endif

    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        const kernel_call_t whole = kernel_call_make_bytes(*call);
        return segments_launch(whole, bulk_move::segment_bytes(team, call),
                               [team, stream](const kernel_call_t &segment) {
                                   return bulk_launch<bulk_move>(mover<bulk_move>::kernel_of(team, segment), team,
                                                                 segment, kernel_call_is_whole(segment), stream);
                               });
    }

    static int preload(void)
    {
        const int error = move_kernels_each<bulk_move, kernel_call_t, false>(bulk_preload<kernel_call_t>);
        return error != 0 ? error : move_kernels_each<bulk_move, kernel_call_t, true>(bulk_preload<kernel_call_t>);
    }
};

} // namespace

ALG_ENTRIES(alg_bulk_move, bulk_mover)
ALG_DESCRIBE(alg_allgather_bulk, "bulk", ALG_ALL_GATHER, ALG_MEMORY_PEER, alg_bulk_move)
ALG_DESCRIBE(alg_alltoall_bulk, "bulk", ALG_ALL_TO_ALL, ALG_MEMORY_PEER, alg_bulk_move)
