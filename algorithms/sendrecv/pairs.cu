/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.cu - sends and receives. One kernel carries all messages of a group: alone.h serves common groups, mixed.h all
 * others.
 *
 * Data path: buffer -> ring in the receiver's scratch, maybe in pinned memory -> buffer.
 *
 * Channel r % channels carries row r of a message. So both ends know each vector's place from the messages' lengths. An
 * item, one warp's work, is one channel of one direction. A sender waits only for room in a ring (ring.h): a short
 * message is sent before its receive is posted. */
#include "algorithms/sendrecv/alone.h"
#include "algorithms/sendrecv/fill.h"
#include "algorithms/sendrecv/mixed.h"

enum { PAIRS_MOST_THREADS = 512 };

#define PAIRS_MOST_BYTES ((uint64_t)32 << 30)

/* Fits the call's grid to `items`. Blocks have few warps, since a block's warps delay each other. */
static void pairs_grid(uint32_t items, uint32_t *blocks, uint32_t *threads)
{
    uint32_t wanted = 64;
    *threads = *threads < (uint32_t)PAIRS_MOST_THREADS ? *threads : (uint32_t)PAIRS_MOST_THREADS;
    while (wanted * 2 <= *threads && (uint64_t)*blocks * (wanted / 32) < items)
        wanted *= 2;
    *threads = wanted < *threads ? wanted : *threads;
    const uint32_t warps = *threads < 32 ? 1 : *threads / 32, filled = (items + warps - 1) / warps;
    *blocks = filled < *blocks ? filled : *blocks;
}

/* How alone.h serves a launch; batch 0: mixed.h serves it. */
typedef struct pairs_plan {
    uint32_t batch;
    uint32_t group; /* channels of an item */
    uint32_t rows;  /* of an item, at most */
} pairs_plan_t;

enum { PAIRS_MOST_GROUP = 4 };

/* Chooses the fewest channels per item (a power of two) with which `workers` warps suffice. A batch is at most half a
 * ring: the other half may lack credit. */
static pairs_plan_t pairs_plan(messages_head &m, filled_t &f, uint32_t rank, uint32_t workers)
{
    pairs_plan_t plan = {0, 1, f.rows};
    const uint32_t most = m.rings.channels < PAIRS_MOST_GROUP ? m.rings.channels : (uint32_t)PAIRS_MOST_GROUP;
    uint16_t end[MESSAGES_LISTS];
    uint32_t items = messages_items(m, rank, plan.group, end);
    while (plan.group < most && items > workers) {
        plan.group *= 2;
        items = messages_items(m, rank, plan.group, end);
    }
    if (items == 0 || items > workers || f.rows == UINT32_MAX || (plan.group > 1 && !f.aligned))
        return plan;
    plan.rows *= plan.group;
    plan.batch = plan.group > 1 ? RING_BATCH : 1;
    while (plan.batch < plan.rows && plan.batch < (uint32_t)RING_BATCH)
        plan.batch *= 2;
    if (plan.batch / plan.group > m.rings.rows / 2) {
        plan.batch = 0;
        return plan;
    }
    memcpy(m.item_end, end, sizeof end);
    m.shared_self = f.self > 0;
    f.items = items;
    f.self = 0;
    return plan;
}

#ifdef __CUDACC__
static_assert(sizeof(alg_team_t) + sizeof(messages<PAIRS_MANY>) <= 4096, "too many messages");

template <class A, int MOST>
__global__ void __launch_bounds__(PAIRS_MOST_THREADS, 1)
    ncclKernel_shunt_pairs(const __grid_constant__ alg_team_t team, const __grid_constant__ messages<MOST> m)
{
    A::template run<MOST>(lane_here(), team, m);
}
#else
template <class A, int MOST>
static void ncclKernel_shunt_pairs(lane_t lane, const alg_team_t &team, const messages<MOST> &m)
{
    A::template run<MOST>(lane, team, m);
}
#endif

template <int MOST, int GROUP> static kernel_t<messages<MOST>> pairs_kernel_of_group(bool is_long)
{
    return is_long ? ncclKernel_shunt_pairs<pairs_alone<RING_BATCH, true, GROUP>, MOST>
                   : ncclKernel_shunt_pairs<pairs_alone<RING_BATCH, false, GROUP>, MOST>;
}

template <int MOST> static kernel_t<messages<MOST>> pairs_kernel_of(const pairs_plan_t &plan)
{
    const bool is_long = plan.batch < plan.rows;
    if (plan.batch > 0 && plan.group > 1)
        return plan.group == 2 ? pairs_kernel_of_group<MOST, 2>(is_long)
                               : pairs_kernel_of_group<MOST, PAIRS_MOST_GROUP>(is_long);
    if (plan.batch > 0 && is_long)
        return pairs_kernel_of_group<MOST, 1>(true);
    switch (plan.batch) {
    case 0:
        return ncclKernel_shunt_pairs<pairs_mixed, MOST>;
    case 1:
        return ncclKernel_shunt_pairs<pairs_alone<1, false>, MOST>;
#ifdef __CUDACC__
    case 2:
        return ncclKernel_shunt_pairs<pairs_alone<2, false>, MOST>;
    case 4:
        return ncclKernel_shunt_pairs<pairs_alone<4, false>, MOST>;
#endif
    default:
        return pairs_kernel_of_group<MOST, 1>(false);
    }
}

#ifdef __CUDACC__

template <int MOST>
static int pairs_launch(const alg_team_t *team, const alg_call_t *call, messages<MOST> &m, filled_t f, void *stream)
{
    uint32_t blocks = grid_blocks(call), threads = call->threads;
    pairs_plan_t plan = {0, 1, 0};
    if constexpr (MOST == PAIRS_FEW) {
        uint32_t most = blocks, wide = threads;
        pairs_grid(f.items - f.self, &most, &wide);
        plan = pairs_plan(m, f, team->rank, most * (wide / 32));
    }
    pairs_grid(f.items, &blocks, &threads);
    const uint32_t workers = blocks * (threads / 32);
    const size_t kept = (f.items + workers - 1) / workers * (threads / 32) * sizeof(progress_t);
    kernel_t<messages<MOST>> kernel = ncclKernel_shunt_pairs<pairs_mixed, MOST>;
    if constexpr (MOST == PAIRS_FEW)
        kernel = pairs_kernel_of<MOST>(plan);
    return launch_grid(kernel, team, m, blocks, threads, kept, stream);
}

template <int MOST> static int pairs_fill_and_launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    messages<MOST> m;
    const filled_t f = messages_fill(m, NULL, m.message, team, call, 0, MOST);
    return pairs_launch(team, call, m, f, stream);
}

static int pairs_launch_listed(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    typedef messages<MESSAGES_LISTED> listed_t;
    return messages_store_and_launch<listed_t>(
        team, call, stream, [](listed_t &) { return (uint16_t *)NULL; },
        [=](listed_t &m, const message_t *, filled_t f) { return pairs_launch(team, call, m, f, stream); });
}

/* Allows a block enough shared memory for the progress of all items. */
template <int MOST> static int pairs_preload_mixed(void)
{
    const uint32_t most = PAIRS_MOST_ITEMS + PAIRS_MOST_THREADS / 32 - 1;
    const int error = (int)cudaFuncSetAttribute(ncclKernel_shunt_pairs<pairs_mixed, MOST>,
                                                cudaFuncAttributeMaxDynamicSharedMemorySize, most * sizeof(progress_t));
    return error != 0 ? error : launch_preload(ncclKernel_shunt_pairs<pairs_mixed, MOST>);
}

#endif

namespace
{

#ifdef __CUDACC__
struct pairs {
    static int launch(const alg_team_t *team, const alg_call_t *call, void *stream)
    {
        if (call->message_count <= (uint32_t)PAIRS_FEW)
            return pairs_fill_and_launch<PAIRS_FEW>(team, call, stream);
        if (call->message_count <= (uint32_t)PAIRS_MANY)
            return pairs_fill_and_launch<PAIRS_MANY>(team, call, stream);
        return pairs_launch_listed(team, call, stream);
    }

    static int preload(uint32_t)
    {
        int error = pairs_preload_mixed<PAIRS_FEW>();
        if (error == 0)
            error = pairs_preload_mixed<PAIRS_MANY>();
        if (error == 0)
            error = pairs_preload_mixed<MESSAGES_LISTED>();
        if (error == 0)
            error = launch_preload(pairs_store);
        for (uint32_t group = 1; group <= PAIRS_MOST_GROUP && error == 0; group *= 2) {
            for (uint32_t batch = group > 1 ? RING_BATCH : 1; batch <= RING_BATCH && error == 0; batch *= 2)
                error = launch_preload(pairs_kernel_of<PAIRS_FEW>({batch, group, batch}));
            if (error == 0)
                error = launch_preload(pairs_kernel_of<PAIRS_FEW>({RING_BATCH, group, RING_BATCH + 1}));
        }
        return error;
    }
};
#else
struct pairs {
    typedef pairs algorithm;
    enum { MOST_THREADS = PAIRS_MOST_THREADS };
    static constexpr part_bytes_t PART_BYTES = NULL;

    static int launch(const alg_team_t *team, const alg_call_t *call, void *)
    {
        const uint32_t workers = grid_blocks(call);
        return messages_listed(team, call, [=](uint32_t begin, uint32_t share, uint32_t &done) {
            messages<MESSAGES_LISTED> m;
            message_t *const list = messages_list(*team);
            m.message = list;
            filled_t f = messages_fill(m, NULL, list, team, call, begin, share);
            const pairs_plan_t plan = pairs_plan(m, f, team->rank, workers);
            done = f.messages;
            return launch_threads(pairs_kernel_of<MESSAGES_LISTED>(plan), team, m,
                                  f.items < workers ? f.items : workers, false, 0);
        });
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *, uint32_t, alg_type_t)
    {
        return PAIRS_MOST_BYTES;
    }

    /* A grid for both directions with every peer. A launch uses what its messages need. */
    static void shape(alg_collective_t, uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
    {
        const uint64_t rows = message_rows(bytes, 32), most = ALG_PAIR_CHANNELS;
        pairs_grid((uint32_t)(rows < most ? rows : most) * 2 * nranks, blocks, threads);
    }
};
#endif

} // namespace

#ifndef __CUDACC__
template <> inline constexpr uint32_t PIECE<pairs> = ALG_PIECE_RINGS;
template <> inline constexpr alg_cost_t COST<pairs, ALG_SEND_RECV> = {ALG_LOAD_WHOLE, 0, 0.74, 1};
#endif

ALG_ENTRIES(alg_pairs, pairs)
ALG_DESCRIBE(alg_sendrecv_pairs, "pairs", ALG_SEND_RECV, ALG_MEMORY_PEER, alg_pairs)
ALG_DESCRIBE(alg_sendrecv_shm_pairs, "shm-pairs", ALG_SEND_RECV, ALG_MEMORY_PINNED, alg_pairs)
