/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk_move.cu - all-gather and all-to-all of long messages with few blocks, by
 * bulk copies (bulk.h).
 *
 * Data path: input -> stage of the block -> slot in the peer's staging -> flag ->
 * stage -> output. A multiprocessor stores 50 GB/s so, of which 64 blocks of plain
 * stores reach two thirds; and nothing is polled but flags, nothing re-armed.
 *
 * A block is a channel: it sends and receives its part of every rank's block, in
 * chunks. A channel has a ring of slots at each peer. Flags are the call's number plus
 * a count of chunks, and never cleared, as staged's. DATA: so many of the
 * sender's chunks have arrived; CREDIT: so many may be sent. Credit begins with a
 * full ring, which the receiver gives when it begins this call: then it has read
 * all that earlier calls sent. So nobody waits at the end of a call for what its
 * peers read.
 *
 * Buffers have any alignment. A chunk travels with the bytes around it, up to whole
 * vectors, and DATA flags tell where it begins; the receiver writes it from its stage
 * by plain stores, shifted where that differs from the output's place.
 *
 * The rings lie in the half of staging that staged gathers in. There staged stores
 * only behind a flag that the reader raised in the same call, too, so either may
 * follow the other.
 *
 * Roles of a block (bulk.h), one lane each: the loader fills stages from the input,
 * the sender empties them into the peers' slots, the herald raises DATA, the taker
 * fills other stages from own slots. The keepers are warps that write these to the
 * output, and give CREDIT. The fence before a DATA flag takes microseconds, so the
 * sender leaves it to the herald.
 *
 * The number of channels is the same on all ranks. The number of blocks need not be:
 * the roles of a block take its channels one after the other, in growing order, so
 * the lowest channel that is not through is under way on every rank.
 */
#include "algorithms/bulk/roles.h"
#include "algorithms/device/launch.h"

struct bulk_move {
    enum { MOST_THREADS = (4 + BULK_KEEPERS) * 32 };

    template <int N, bool, bool EACH>
    LANE_FN static void run(lane_t lane, const alg_team_t &team, const alg_call_t &call)
    {
        const bulk_size_t size = bulk_size(N);
        bulk_block_t block;
        bulk_make(block, size.out, size.in, size.chunk + VEC);
        bulk_init(lane, block, BULK_KEEPERS);
        bulk_job_t j;
        j.team = &team;
        j.out = &block.ring[0];
        j.in = &block.ring[1];
        j.sent = block.word;
        j.input = (const uint8_t *)call.input;
        j.output = (uint8_t *)call.output;
        j.in_step = EACH ? call.stride : 0;
        j.out_step = call.stride;
        j.pieces = EACH ? team.nranks - 1 : 1;
        j.parts = team.nranks - (j.output + team.rank * j.out_step == j.block(team.rank));
        j.thread = lane.thread % (BULK_KEEPERS * lane_warp_size());
        walk w = walk::make(bulk_plan(team, call.count, call.blocks), lane);

        lane_begin((uintptr_t)team.own | w.plan.span, call.early);
        const uint64_t epoch = epoch_read(team);
        epoch_leave(lane, team);
        if (epoch_stopped(epoch))
            return;
        j.base = epoch_base(epoch);
        bulk_keeper keeper = {j, w, {}, {}, 0, 0};
        bulk_loader<EACH> loader = {j, w, {}, 0, 0};
        bulk_sender<N, EACH> sender = {j, w, {}, {}, {}, 0, 0};
        bulk_herald<EACH> herald = {j, w, 0};
        bulk_taker<N> taker = {j, w, {}, {}, 0, 0, false};
        bulk_roles(lane, team, keeper, loader, sender, herald, taker);
    }

    static uint64_t segment(const alg_team_t *team, const alg_call_t *call)
    {
        return (uint64_t)call->blocks * BULK_MOST_CHUNKS * bulk_size(team->nranks).chunk;
    }

    /* Vectors are counted in 32 bits. */
    template <int COLLECTIVE> static uint64_t max_bytes(const alg_map_t *map, uint32_t nranks, alg_type_t)
    {
        return nranks >= 2 && map->staging_bytes / 2 >= bulk_rings(nranks, BULK_MOST_CHANNELS, BULK_LEAST_SLOTS)
                   ? (uint64_t)32 << 30
                   : 0;
    }

    /* At least some chunks a channel; and each role its warps. */
    template <int COLLECTIVE> static void shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        const uint64_t block = bytes / alg_collective_blocks((alg_collective_t)COLLECTIVE, nranks);
        const uint64_t most = block / (2 * bulk_size(nranks).chunk) + 1;
        if (*blocks > BULK_MOST_CHANNELS)
            *blocks = BULK_MOST_CHANNELS;
        if (*blocks > most)
            *blocks = (uint32_t)most;
        *threads = MOST_THREADS;
    }
};

#ifdef __CUDACC__

template <int N> constexpr int LAUNCH_BLOCKS_OF<bulk_move, N> = 2;

/* One variant serves all alignments. */
static const alg_kernel_t bulk_kernels[2][BODY_RANKS] = {{ALG_MOVE_RANKS(alg_move_kernel, bulk_move, true, false)},
                                                         {ALG_MOVE_RANKS(alg_move_kernel, bulk_move, true, true)}};

static uint32_t bulk_room(uint32_t nranks)
{
    const bulk_size_t size = bulk_size(nranks);
    return bulk_shared_bytes(size.out + size.in, size.chunk + VEC);
}

extern "C" int alg_bulk_move_launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    const alg_call_t moved = launch_in_bytes(call);
    return launch_segments(&moved, bulk_move::segment(team, &moved), [team, stream](const alg_call_t &part) {
        const alg_kernel_t kernel =
            bulk_kernels[route_input_blocks(part.collective)][launch_body_kind(team, &part) % BODY_RANKS];
        return launch_grid(kernel, team, part, launch_blocks(&part), bulk_move::MOST_THREADS, bulk_room(team->nranks),
                           stream);
    });
}

extern "C" int alg_bulk_move_preload(void)
{
    int error = 0;
    for (int i = 0; i < 2 * BODY_RANKS && error == 0; i++) {
        const alg_kernel_t kernel = bulk_kernels[i / BODY_RANKS][i % BODY_RANKS];
        error = (int)cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)bulk_shared_bytes(1, 100 << 10));
        error = error ? error : launch_preload(kernel);
    }
    return error;
}

#else
ALG_MOVER(alg_bulk_move, bulk_move)
#endif
ALG_DESCRIBE(alg_allgather_bulk, "bulk", ALG_ALL_GATHER, alg_bulk_move, bulk_move)
ALG_DESCRIBE(alg_alltoall_bulk, "bulk", ALG_ALL_TO_ALL, alg_bulk_move, bulk_move)
