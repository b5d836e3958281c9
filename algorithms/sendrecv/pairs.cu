/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pairs.cu - sends and receives, all messages of a group in one kernel.
 *
 * Data path: buffer -> ring in the receiver's scratch, which may lie in the host's
 * memory -> buffer. A vector tells that it has arrived by not being all-ones, so a
 * message needs no flag; words that would be all-ones on the way travel as escapes
 * (mark.h), and data arrives bit for bit.
 *
 * A message's rows go to the channels in turn: row r to channel r % channels, as
 * its next row. So both ends know from the lengths of the messages alone where
 * each vector lies, whatever else their groups hold. A channel of one direction is
 * an item, which one warp works on. Nothing but the room in a ring (ring.h) waits for
 * the receiver, so a short message is sent before anyone receives.
 *
 * The kernels: alone.h for the usual groups, mixed.h for all.
 */
#include <stdlib.h>
#include <string.h>

#include "algorithms/device/launch.h"
#include "algorithms/sendrecv/alone.h"
#include "algorithms/sendrecv/mixed.h"

enum {
    PAIRS_MOST_THREADS = 512,
    PAIRS_FEW = 2 * ALG_MAX_RANKS, /* messages of the usual kernels: one a list */
    PAIRS_MANY = 216,              /* of a kernel whose arguments fill 4 KiB, the most that every driver takes */
    PAIRS_MOST_ITEMS = 15 * ALG_PAIR_CHANNELS / 2 /* of 8 ranks (rings_make); of 4 there are 7 * ALG_PAIR_CHANNELS */
};

#define PAIRS_MOST_BYTES ((uint64_t)32 << 30)

#ifdef __CUDACC__
enum { PAIRS_LANES = 32 };
#else
enum { PAIRS_LANES = 1 };
#endif

static uint32_t pairs_list(const alg_message_t &m)
{
    return 2 * m.peer + (m.send ? MESSAGES_SEND : MESSAGES_RECEIVE);
}

/* What messages_fill found. */
typedef struct filled {
    uint32_t messages, items;
    uint32_t rows; /* of the fullest channel; UINT32_MAX if a list has more than one message */
} filled_t;

/* Fill in m, and write its messages to `list`: numbers begin .. begin + share - 1 of each peer and direction. */
static filled_t messages_fill(messages_head &m, message_t *list, const alg_team_t *team, const alg_call_t *call,
                              uint32_t begin, uint32_t share)
{
    uint32_t length[MESSAGES_LISTS] = {0}, seen[MESSAGES_LISTS] = {0}, channels[MESSAGES_LISTS] = {0};
    uint16_t next[MESSAGES_LISTS];
    filled_t f = {0, 0, 1};
    m.rings = rings_make(team->rings_bytes, team->nranks, PAIRS_LANES);
    m.early = call->early;
    for (uint32_t i = 0; i < call->message_count; i++)
        length[pairs_list(call->messages[i])]++;
    for (uint32_t l = 0; l < MESSAGES_LISTS; l++) {
        const uint32_t rest = length[l] > begin ? length[l] - begin : 0;
        next[l] = (uint16_t)f.messages;
        f.messages += rest < share ? rest : share;
        f.rows = length[l] > 1 ? UINT32_MAX : f.rows;
        m.message_end[l] = (uint16_t)f.messages;
    }
    for (uint32_t i = 0; i < call->message_count; i++) {
        const alg_message_t &one = call->messages[i];
        const uint32_t l = pairs_list(one), at = seen[l]++;
        if (at < begin || at >= begin + share)
            continue;
        list[next[l]++] = message_t{(uint8_t *)one.buffer, one.bytes};
        const uint64_t rows = message_rows(one.bytes, PAIRS_LANES);
        const uint32_t wanted = rings_channels(m.rings, rows), deep = (uint32_t)((rows - 1) / wanted + 1);
        f.rows = deep > f.rows ? deep : f.rows;
        channels[l] = wanted > channels[l] ? wanted : channels[l];
    }
    for (uint32_t l = 0; l < MESSAGES_LISTS; l++) {
        f.items += l == 2 * team->rank + MESSAGES_RECEIVE ? 0 : channels[l];
        m.item_end[l] = (uint16_t)f.items;
    }
    return f;
}

/* A call with more messages than its kernel's arguments hold: the list goes to memory, and the kernel follows, with
 * `launch`. `list` has room for messages_room. A call too large even for that memory takes several launches, each with
 * the next messages of every peer and direction. No launch waits for a peer's later launch if all ranks group the same
 * messages; if they do not, the launches may deadlock. */
template <class L> static int pairs_listed(const alg_team_t *team, const alg_call_t *call, message_t *list, L launch)
{
    const uint32_t count = call->message_count, room = messages_room(team->rings_bytes);
    const uint32_t share = count <= room ? count : room / MESSAGES_LISTS;
    int error = 0;
    for (uint32_t begin = 0, done = 0; done < count && error == 0; begin += share) {
        messages<MESSAGES_LISTED> m;
        m.message = messages_list(*team);
        const filled_t f = messages_fill(m, list, team, call, begin, share);
        error = launch(m, f);
        done += f.messages;
    }
    return error;
}

/* Rows of a batch if alone.h serves the launch; 0: mixed.h serves it. A batch is at most half a ring, since the other
 * half may still be without credit. */
static uint32_t pairs_batch(const messages_head &m, const filled_t &f, uint32_t workers)
{
    uint32_t batch = 1;
    if (f.items > workers || f.rows == UINT32_MAX)
        return 0;
    while (batch < f.rows && batch < (uint32_t)RING_BATCH)
        batch *= 2;
    return batch <= m.rings.rows / 2 ? batch : 0;
}

/* Blocks and threads for so many items, within the call's: few warps a block, which hold each other up. */
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

/* ---- Kernels ------------------------------------------------------------------------------ */

/* A: pairs_alone or pairs_mixed. */
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

/* For a batch that pairs_batch gave, and so many rows. */
template <int MOST> static kernel_t<messages<MOST>> pairs_kernel_of(uint32_t batch, uint32_t rows)
{
    if (batch > 0 && batch < rows)
        return ncclKernel_shunt_pairs<pairs_alone<RING_BATCH, true>, MOST>;
    switch (batch) {
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
        return ncclKernel_shunt_pairs<pairs_alone<RING_BATCH, false>, MOST>;
    }
}

/* ---- Launches ------------------------------------------------------------------------------ */

#ifdef __CUDACC__

/* A piece of the list on its way to memory. */
typedef struct pairs_piece {
    uint32_t first, count, early;
    message_t message[PAIRS_MANY];
} pairs_piece_t;

__global__ void pairs_store(const __grid_constant__ alg_team_t team, const __grid_constant__ pairs_piece_t piece)
{
    lane_begin((uintptr_t)team.own_counts, piece.early);
    for (uint32_t i = threadIdx.x; i < piece.count; i += blockDim.x)
        messages_list(team)[piece.first + i] = piece.message[i];
}

static int pairs_store_all(const alg_team_t *team, const alg_call_t *call, const message_t *list, uint32_t count,
                           void *stream)
{
    pairs_piece_t piece;
    int error = 0;
    for (piece.first = 0; piece.first < count && error == 0; piece.first += PAIRS_MANY) {
        piece.early = call->early;
        piece.count = count - piece.first < (uint32_t)PAIRS_MANY ? count - piece.first : (uint32_t)PAIRS_MANY;
        memcpy(piece.message, list + piece.first, piece.count * sizeof(message_t));
        error = launch_grid(pairs_store, team, piece, 1, 128, 0, stream);
    }
    return error;
}

template <int MOST>
static int pairs_launch(const alg_team_t *team, const alg_call_t *call, const messages<MOST> &m, const filled_t &f,
                        void *stream)
{
    uint32_t blocks = grid_blocks(call), threads = call->threads;
    pairs_grid(f.items, &blocks, &threads);
    const uint32_t workers = blocks * (threads / 32);
    const size_t kept = (f.items + workers - 1) / workers * (threads / 32) * sizeof(progress_t);
    kernel_t<messages<MOST>> kernel = ncclKernel_shunt_pairs<pairs_mixed, MOST>;
    if constexpr (MOST == PAIRS_FEW)
        kernel = pairs_kernel_of<MOST>(pairs_batch(m, f, workers), f.rows);
    return launch_grid(kernel, team, m, blocks, threads, kept, stream);
}

template <int MOST> static int pairs_fill_and_launch(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    messages<MOST> m;
    const filled_t f = messages_fill(m, m.message, team, call, 0, MOST);
    return pairs_launch(team, call, m, f, stream);
}

static int pairs_launch_listed(const alg_team_t *team, const alg_call_t *call, void *stream)
{
    const uint32_t room = messages_room(team->rings_bytes);
    message_t *list =
        (message_t *)malloc((call->message_count < room ? call->message_count : room) * sizeof(message_t));
    if (!list)
        return cudaErrorMemoryAllocation;
    const int error = pairs_listed(team, call, list, [=](const messages<MESSAGES_LISTED> &m, const filled_t &f) {
        const int failed = pairs_store_all(team, call, list, f.messages, stream);
        return failed ? failed : pairs_launch(team, call, m, f, stream);
    });
    free(list);
    return error;
}

/* One block may have to keep the progress of all items, the same number for each warp. */
template <int MOST> static int pairs_preload_mixed(void)
{
    const uint32_t most = PAIRS_MOST_ITEMS + PAIRS_MOST_THREADS / 32 - 1;
    return (int)cudaFuncSetAttribute(ncclKernel_shunt_pairs<pairs_mixed, MOST>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, most * sizeof(progress_t)) |
           launch_preload(ncclKernel_shunt_pairs<pairs_mixed, MOST>);
}

#endif

/* As reducer and mover (launch.h). */
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

    /* 0, or not. They serve any number of ranks. */
    static int preload(uint32_t)
    {
        int error = pairs_preload_mixed<PAIRS_FEW>() | pairs_preload_mixed<PAIRS_MANY>() |
                    pairs_preload_mixed<MESSAGES_LISTED>() | launch_preload(pairs_store) |
                    launch_preload(pairs_kernel_of<PAIRS_FEW>(RING_BATCH, RING_BATCH + 1));
        for (uint32_t batch = 1; batch <= RING_BATCH; batch *= 2)
            error |= launch_preload(pairs_kernel_of<PAIRS_FEW>(batch, batch));
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
        return pairs_listed(
            team, call, messages_list(*team), [=](const messages<MESSAGES_LISTED> &m, const filled_t &f) {
                return launch_threads(pairs_kernel_of<MESSAGES_LISTED>(pairs_batch(m, f, workers), f.rows), team, m,
                                      f.items < workers ? f.items : workers, false, 0);
            });
    }

    static uint64_t max_bytes(alg_collective_t, const alg_map_t *, uint32_t, alg_type_t)
    {
        return PAIRS_MOST_BYTES;
    }

    /* Both directions with every peer, at most; what is launched follows the messages. */
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
#endif

ALG_ENTRIES(alg_pairs, pairs)
ALG_DESCRIBE(alg_sendrecv_pairs, "pairs", ALG_SEND_RECV, ALG_MEMORY_PEER, alg_pairs)
ALG_DESCRIBE(alg_sendrecv_shm_pairs, "shm-pairs", ALG_SEND_RECV, ALG_MEMORY_SHM, alg_pairs)
