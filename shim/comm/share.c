/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c - see share.h.
 *
 * A kernel of ours waits for its peers, so all its blocks must find a place on every GPU. With several communicators
 * whose calls no stream orders, GPU 0 may be full of kernels of the first, which wait for GPU 1, which is full of
 * kernels of the second. So each communicator gets a share of its GPU's multiprocessors, one per block, and the shares
 * add up to at most the GPU: whatever the others do, the blocks of each find places.
 *
 * A kernel and its early-placed successor hold twice a kernel's blocks. Both count
 * towards the share, except for a leader that is alone: no other communicator has asked
 * for room yet. Graphs captured then keep their early successors, which may fill the rest of
 * a GPU; the other communicators then wait until the leader is through. It gets through
 * (docs/limits.md has the exception), because on each of its GPUs all others leave room for its share. So a leader
 * leads on all its GPUs or on none, and no GPU has two: the ranks agree on it at set-up. Two leaders, each on one of
 * two GPUs, would wait for each other. Once another communicator asks for room, the leader's successors count as well.
 * Otherwise the two could deadlock: one rank's stream orders the other communicator's call before the leader's, and on
 * another rank the leader's successor has taken the place of that call.
 *
 * A successor may be larger than the kernel that lets it in. One that does not fit beside that kernel is launched
 * without dependent launch, so it is not placed early.
 *
 * Dependent launch is also the kind of a graph's edge, and an instance can be updated only with a graph of the same
 * topology. So within a capture the calls alone decide, without the places of their buffers: the first one has none,
 * and a later one if its row has no more blocks than that of the one before it. Such a call fits, if need be without
 * the blocks that its buffers' alignment adds: a kernel that lets its successor in was granted all that it wanted, at
 * most half of the share. Only of a leader that was alone then, and is not any more, that may not hold.
 *
 * A share grows with what the communicator asks for, and never shrinks while it lives:
 * kernels that were launched, and graphs, hold it. Each leaves as much as it has for those
 * that come later. The ranks need not agree on shares: a kernel's grid may differ from its
 * peers' (algorithms/device/grid.h).
 *
 * A stream of a green context may have fewer multiprocessors than the share has blocks. An eager call asks when its
 * stream is another one than the last call's, and takes no more than fit there; the share grows when a stream has more.
 *
 * Kernels of the program itself end by themselves. The real NCCL's are not counted:
 * where the shares fill a GPU, they wait like a communicator without a share.
 */
#include "shim/comm/share.h"

#include "shim/base/settings.h"
#include "shim/comm/capture.h"

enum { DEVICES = 64 };

static struct gpu {
    pthread_mutex_t lock;
    uint32_t taken;            /* blocks of all shares */
    uint32_t askers;           /* communicators that have asked for a share */
    uint32_t releases;         /* counts releases: a refused request may succeed now */
    const shim_comm_t *leader; /* or a claimant, until its set-up ends */
} g_gpu[DEVICES] = {[0 ... DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static struct gpu *gpu_of(const shim_comm_t *comm)
{
    return &g_gpu[(unsigned)comm->device % DEVICES];
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

bool shim_share_claim(shim_comm_t *comm)
{
    struct gpu *gpu = gpu_of(comm);
    pthread_mutex_lock(&gpu->lock);
    if (!gpu->leader)
        gpu->leader = comm;
    const bool claimed = gpu->leader == comm;
    pthread_mutex_unlock(&gpu->lock);
    return claimed;
}

void shim_share_settle(shim_comm_t *comm, bool leads)
{
    struct gpu *gpu = gpu_of(comm);
    pthread_mutex_lock(&gpu->lock);
    comm->share.leads = leads && gpu->leader == comm;
    if (gpu->leader == comm && !leads)
        gpu->leader = NULL;
    pthread_mutex_unlock(&gpu->lock);
}

/* Grow the share towards this many blocks. */
static void grow(struct gpu *gpu, shim_share_t *share, uint32_t blocks, uint32_t all)
{
    const uint32_t left = all > gpu->taken ? all - gpu->taken : 0;
    uint32_t most = (share->blocks + left) / 2;
    most = most > 0 ? most : 1; /* from the ninth communicator on, the total may exceed the GPU */
    const uint32_t wanted = least(blocks, most);
    if (wanted > share->blocks) {
        gpu->taken += wanted - share->blocks;
        share->blocks = wanted;
    }
}

/* If the share is too small for two concurrent calls, each gets a part, at least one block. */
static uint32_t part_of(uint32_t share, uint32_t blocks, uint32_t beside)
{
    const uint32_t part = share * blocks / (blocks + beside);
    return part > 0 ? least(part, blocks) : 1;
}

/* What of the share can be placed on the last eager call's stream. */
static uint32_t held_on_stream(const shim_share_t *share)
{
    return share->room > 0 ? least(share->blocks, share->room) : share->blocks;
}

/* Whether the call's blocks fit beside those of the kernel ahead of it in its stream: the communicator's last one, if
 * both are eager; else it may be any of them, or none. */
static bool fits_beside_last(const shim_share_t *share, uint32_t held, const alg_call_t *call, uint32_t beside)
{
    return share->shut || share->early == 0 || (beside == 0 && share->early + call->most_blocks <= held);
}

/* The same in a capture, where the kernel ahead is known. */
static bool fits_in_capture(const shim_share_t *share, alg_call_t *call, uint32_t beside, const shim_ahead_t *ahead,
                            bool alone)
{
    if (!shim_settings()->early)
        return true;
    const uint32_t room = share->blocks > ahead->early ? share->blocks - ahead->early : 0;
    const bool fits = beside == 0 && call->aligned_blocks <= ahead->blocks &&
                      (alone || least(call->most_blocks, call->aligned_blocks) <= room);
    if (fits && !alone)
        call->most_blocks = least(call->most_blocks, room);
    return fits;
}

bool shim_share_grant(shim_comm_t *comm, alg_call_t *call, uint32_t beside, void *stream, unsigned long long stream_id,
                      shim_ahead_t *ahead)
{
    struct gpu *gpu = gpu_of(comm);
    shim_share_t *share = &comm->share;
    pthread_mutex_lock(&gpu->lock);
    const uint32_t wanted = beside > 0 ? call->blocks + beside : share->leads ? call->blocks : 2 * call->blocks;
    const uint32_t before = share->room;
    if (!ahead && (stream_id != share->stream_id || stream_id == SHIM_STREAM_UNKNOWN || share->room == 0)) {
        share->stream_id = stream_id;
        share->room = shim_share_multiprocessors(comm->device, stream);
    }
    if (wanted > share->asked || share->releases != gpu->releases || share->room > before) {
        const uint32_t all = ahead ? shim_share_multiprocessors(comm->device, stream) : share->room;
        grow(gpu, share, wanted, all > 0 ? all : 2 * (call->blocks + beside));
        gpu->askers += share->asked == 0;
        share->asked = wanted > share->asked ? wanted : share->asked;
        share->releases = gpu->releases;
    }
    const uint32_t held = ahead ? share->blocks : held_on_stream(share);
    call->most_blocks = beside > 0 ? part_of(held, call->blocks, beside) : least(held, call->blocks);
    const bool alone = share->leads && gpu->askers == 1;
    pthread_mutex_unlock(&gpu->lock);
    const bool leads_here = alone && held == share->blocks;
    call->early = beside == 0 && shim_settings()->early && (leads_here || 2 * call->most_blocks <= held);
    const bool fits = ahead ? fits_in_capture(share, call, beside, ahead, alone)
                            : leads_here || fits_beside_last(share, held, call, beside);
    if (beside > 0)
        return fits; /* both of them may have the same kernel ahead */
    if (call->early && call->most_blocks > share->early)
        share->early = call->most_blocks;
    share->shut = !ahead && !call->early;
    if (ahead)
        *ahead = (shim_ahead_t){.blocks = call->aligned_blocks, .early = call->early ? call->most_blocks : 0};
    return fits;
}

void shim_share_release(shim_comm_t *comm)
{
    struct gpu *gpu = gpu_of(comm);
    pthread_mutex_lock(&gpu->lock);
    gpu->taken -= least(comm->share.blocks, gpu->taken);
    gpu->askers -= comm->share.asked > 0;
    gpu->releases++;
    if (gpu->leader == comm)
        gpu->leader = NULL;
    comm->share = (shim_share_t){0};
    pthread_mutex_unlock(&gpu->lock);
}
