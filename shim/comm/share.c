/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - reasons and measurements: docs/lab/proofs.md; a model: tests/calls/share_test.c.
 * A kernel of Shunt waits for its peers, so all its blocks must fit on every GPU, beside waiting kernels of other
 * communicators. What they need is counted as room, in registers (alg_algorithm_t.block_room). A block's room is a
 * power of two, so blocks fill a multiprocessor without gaps: the smallest blocks always fit, and larger ones once
 * those have ended.
 * On each GPU one communicator at a time holds the large part, a quarter; seven more have a small part each, an equal
 * share of the rest. A call that needs more than half a small part gets the large one if nobody holds it, or if all
 * work of its holder has ended and no graph contains such work, since replays make no calls. While no other
 * communicator of the process uses the GPU, the large part is the whole GPU.
 * A call that does not fit gets a smaller grid, never another algorithm, because ranks need not agree on parts.
 * A kernel may let its successor start early, beside it, so both must fit. In a capture only the rows decide this: the
 * first call may start early, and a later call if its row's grid needs no more room than its predecessor's. */
#include "shim/comm/share.h"

#include "shim/base/settings.h"
#include "shim/comm/capture.h"

enum {
    DEVICES = 64,
    SHARERS = 8,
    /* The large part's minimum, but at most half of the GPU: 64 blocks of 512 threads. */
    LARGE_LEAST = 33 * ALG_ROOM,
    SLIM_THREADS = 128,  /* smallest blocks measured with large grids */
    LONG_BYTES = 4 << 20 /* from here on an early start saves at most 2% of a call between two H100 */
};

static struct gpu {
    pthread_mutex_t lock;
    _Atomic(shim_comm_t *) holder; /* of the large part; changed under the lock */
    atomic_uint sharers;           /* communicators of this `life`; changed under the lock */
    uint64_t life; /* of the device; after a reset, earlier communicators hold nothing. Under the lock */
} g_gpu[DEVICES] = {[0 ... DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static void forget_in_child(void)
{
    for (int i = 0; i < DEVICES; i++) {
        pthread_mutex_init(&g_gpu[i].lock, NULL);
        atomic_store(&g_gpu[i].holder, NULL);
        atomic_store(&g_gpu[i].sharers, 0);
        g_gpu[i].life = 0;
    }
}

NET_IN_CHILD(forget_in_child);

static struct gpu *gpu_of(const shim_comm_t *comm)
{
    return &g_gpu[(unsigned)comm->device % DEVICES];
}

/* Returns the communicator's GPU, locked. */
static struct gpu *take_gpu(const shim_comm_t *comm)
{
    struct gpu *gpu = gpu_of(comm);
    pthread_mutex_lock(&gpu->lock);
    return gpu;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

typedef struct parts {
    uint32_t large, small, half;
} parts_t;

static parts_t parts_of(uint32_t multiprocessors, bool lone)
{
    const uint32_t all = multiprocessors * ALG_ROOM;
    const uint32_t large = least(most(all / 4, LARGE_LEAST), all / 2);
    return (parts_t){.large = lone ? all : large, .small = (all - large) / (SHARERS - 1), .half = lone ? all : all / 2};
}

void shim_share_join(shim_comm_t *comm)
{
    struct gpu *gpu = take_gpu(comm);
    if (comm->life > gpu->life) {
        gpu->life = comm->life;
        atomic_store(&gpu->holder, NULL);
        atomic_store(&gpu->sharers, 0);
    }
    comm->share.joined = true;
    if (comm->life == gpu->life)
        atomic_fetch_add(&gpu->sharers, 1);
    pthread_mutex_unlock(&gpu->lock);
}

bool shim_share_is_lone(const shim_comm_t *comm)
{
    return atomic_load(&gpu_of(comm)->sharers) <= 1;
}

static uint32_t multiprocessors_of(shim_comm_t *comm, const shim_ask_t *ask)
{
    const unsigned long long place = shim_share_place(ask->stream, ask->stream_id);
    shim_where_t *known = comm->share.place;
    for (uint32_t i = 0; i < SHIM_PLACES; i++)
        if (known[i].multiprocessors > 0 && known[i].place == place)
            return known[i].multiprocessors;
    shim_where_t *oldest = &known[comm->share.places++ % SHIM_PLACES];
    *oldest = (shim_where_t){place, shim_share_multiprocessors(comm->device, ask->stream)};
    return oldest->multiprocessors;
}

static bool holds_large(const shim_comm_t *comm)
{
    return atomic_load(&gpu_of(comm)->holder) == comm;
}

/* Whether all the holder's work has ended and none is in a graph. Under the GPU's lock. */
static bool is_through(const shim_comm_t *holder)
{
    const bool captured = holder->share.captured && atomic_load(&holder->order.graphs) > 0;
    return !captured && atomic_load(&holder->share.launching) == 0 &&
           (!holder->order.event || net_event_query(holder->order.event) == 0);
}

/* Takes the large part if possible. True if the communicator holds it, at least until shim_share_launched. */
static bool take_large(shim_comm_t *comm, bool captured)
{
    struct gpu *gpu = take_gpu(comm);
    const shim_comm_t *holder = atomic_load(&gpu->holder);
    const bool lost = comm->life < gpu->life;
    if (holder != comm && !lost && (!holder || is_through(holder))) {
        atomic_store(&gpu->holder, comm);
        comm->share.captured = false;
    }
    const bool holds = holds_large(comm);
    if (holds) {
        atomic_fetch_add(&comm->share.launching, 1);
        comm->share.captured = comm->share.captured || captured;
    }
    pthread_mutex_unlock(&gpu->lock);
    return holds;
}

void shim_share_launched(shim_comm_t *comm, bool all)
{
    const uint32_t launching = atomic_load(&comm->share.launching); /* changes only under the communicator's lock */
    if (launching > 0)
        atomic_store(&comm->share.launching, all ? 0 : launching - 1);
}

/* Kernels for several reductions are compiled only for 2 and for ALG_MAX_RANKS ranks. */
static uint32_t room_of_block(const alg_algorithm_t *algorithm, const alg_call_t *call, uint32_t nranks,
                              uint32_t threads)
{
    const bool several = call->part_count > 0 && alg_collective_reduces(call->collective);
    return algorithm->block_room(several && nranks > 2 ? ALG_MAX_RANKS : nranks, threads);
}

uint32_t shim_share_room(const alg_algorithm_t *algorithm, const alg_call_t *call, uint32_t nranks)
{
    return call->blocks * room_of_block(algorithm, call, nranks, call->threads);
}

/* Uses smaller blocks with as many lanes in all, since these are faster. If they do not fit, uses fewer. */
static void slim(const alg_algorithm_t *algorithm, alg_call_t *call, uint32_t nranks, uint32_t room)
{
    const uint32_t threads = least(call->threads, SLIM_THREADS);
    const uint32_t blocks = call->blocks * call->threads / threads;
    call->threads = threads;
    call->blocks = most(least(blocks, room / room_of_block(algorithm, call, nranks, threads)), 1);
}

static bool may_slim(const shim_comm_t *comm, const alg_algorithm_t *algorithm)
{
    return algorithm->any_grid && !(comm->plan && comm->plan->settings.max_blocks > 0);
}

/* Fits the grid to `room`; returns the room that the grid needs. */
static uint32_t fit(const shim_comm_t *comm, const alg_algorithm_t *algorithm, alg_call_t *call, uint32_t room)
{
    const uint32_t nranks = comm->nranks, wanted = shim_share_room(algorithm, call, nranks);
    if (wanted <= room)
        return wanted;
    if (may_slim(comm, algorithm)) {
        slim(algorithm, call, nranks, room);
        return shim_share_room(algorithm, call, nranks);
    }
    const uint32_t unit = room_of_block(algorithm, call, nranks, call->threads), blocks = most(room / unit, 1);
    if (algorithm->spare_blocks)
        call->sure_blocks = blocks;
    else
        call->most_blocks = blocks;
    return blocks * unit;
}

/* The grid's limit: half of `room`, so that the successor fits beside it, if the call then loses at most a quarter of
 * its grid. A call with a concurrent one gets its proportional share. */
static uint32_t limit_of(const shim_comm_t *comm, const shim_ask_t *ask, uint32_t wanted, uint32_t room)
{
    if (ask->beside > 0)
        return wanted + ask->beside <= room ? wanted : (uint32_t)((uint64_t)room * wanted / (wanted + ask->beside));
    const bool nearly = wanted > room / 2 && wanted / 4 * 3 <= room / 2;
    return nearly && may_slim(comm, ask->algorithm) && shim_settings()->early ? room / 2 : room;
}

static uint32_t room_of(shim_comm_t *comm, const alg_call_t *call, const shim_ask_t *ask, uint32_t wanted)
{
    const parts_t parts = parts_of(multiprocessors_of(comm, ask), shim_share_is_lone(comm));
    if (parts.half == 0)
        return UINT32_MAX; /* unknown */
    const bool captured = ask->ahead != NULL;
    if (wanted <= parts.small / 2) /* room for it and its successor */
        return holds_large(comm) && (!captured || comm->share.captured) ? parts.large : parts.small;
    if (!take_large(comm, captured))
        return parts.small;
    return call->collective == ALG_SEND_RECV || ask->beside > 0 ? parts.half : parts.large;
}

/* Room of the kernel ahead if it lets this call start early, else 0. An eager kernel does so only once all kernels
 * before it have ended. */
static uint32_t early_ahead(const shim_comm_t *comm, const shim_ask_t *ask)
{
    return ask->ahead ? ask->ahead->early : comm->share.early;
}

static uint64_t all_bytes(const alg_call_t *call, uint32_t nranks)
{
    uint64_t count = call->part_count > 0 ? 0 : call->count;
    for (uint32_t i = 0; i < call->part_count; i++)
        count += call->parts[i].count;
    return count * alg_type_bytes(call->type) * alg_collective_blocks(call->collective, nranks);
}

/* A long call that is captured while its communicator is alone may be replayed beside others, and graphs keep their
 * grids (docs/limits.md). True if this call and a successor that starts early leave the other communicators a small
 * part. */
static bool leaves_a_part(shim_comm_t *comm, const alg_call_t *call, const shim_ask_t *ask, uint32_t taken)
{
    if (!ask->ahead || !shim_share_is_lone(comm) || all_bytes(call, comm->nranks) < LONG_BYTES)
        return true;
    const uint32_t multiprocessors = multiprocessors_of(comm, ask);
    return 2 * taken + parts_of(multiprocessors, false).small <= multiprocessors * ALG_ROOM;
}

bool shim_share_grant(shim_comm_t *comm, alg_call_t *call, const shim_ask_t *ask)
{
    const uint32_t unit = room_of_block(ask->algorithm, call, comm->nranks, call->threads);
    const uint32_t row = call->aligned_blocks * unit, ahead = early_ahead(comm, ask);
    const uint32_t wanted = shim_share_room(ask->algorithm, call, comm->nranks);
    const uint32_t room = room_of(comm, call, ask, wanted + ask->beside);
    const bool follows = ask->ahead && ask->beside == 0 && (ask->ahead->row == 0 || row <= ask->ahead->row);
    const uint32_t left = follows && ahead < room ? room - ahead : room;
    const uint32_t taken = fit(comm, ask->algorithm, call, limit_of(comm, ask, wanted, left));
    call->early =
        shim_settings()->early && ask->beside == 0 && taken <= room / 2 && leaves_a_part(comm, call, ask, taken);
    const bool fits = ahead + taken + ask->beside <= room;
    if (ask->beside > 0)
        return !ask->ahead && fits; /* in a capture both calls may have the same kernel ahead */
    if (ask->ahead)
        *ask->ahead = (shim_ahead_t){.row = row, .early = call->early ? taken : 0};
    else
        comm->share.early = call->early ? taken : 0;
    return ask->ahead ? follows : fits;
}

void shim_share_release(shim_comm_t *comm)
{
    struct gpu *gpu = take_gpu(comm);
    if (holds_large(comm))
        atomic_store(&gpu->holder, NULL);
    if (comm->share.joined && comm->life == gpu->life && atomic_load(&gpu->sharers) > 0) /* 0: in a forked child */
        atomic_fetch_sub(&gpu->sharers, 1);
    pthread_mutex_unlock(&gpu->lock);
    comm->share = (shim_share_t){.launching = 0};
}
