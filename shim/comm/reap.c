/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap.c - when the scratch of ended communicators is freed.
 *
 * The driver frees device memory, and unmaps a peer's, only after every kernel of the device has ended. Another
 * communicator's kernel may wait for a dead peer until this thread aborts that communicator too. So nothing is freed
 * while a living communicator's kernel runs, or while a kernel may run that Shunt cannot see: a graph's, or the real
 * NCCL's on a forwarded communicator. The next init, destroy or abort tries again. Launches wait for the frees: the
 * ranks of a communicator may be threads, and a call that another one launches may wait for this thread.
 *
 * If more than RETIRED_MOST scratches wait, unseen kernels are ignored, and running calls get PATIENCE_MS to end. An
 * abort does not do so: it allocates nothing, and the program may abort the unseen kernel's communicator next.
 */
#define _GNU_SOURCE
#include "shim/comm/reap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/comm/drain.h"
#include "shim/comm/extra.h"
#include "shim/comm/grow.h"
#include "shim/comm/redop.h"
#include "shim/comm/share.h"
#include "shim/comm/shrink.h"

enum { RETIRED_MOST = 4, PATIENCE_MS = 100 };

static _Atomic(shim_comm_t *) g_draining; /* linked by `next` */
static pthread_mutex_t g_reaper = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool g_wanted; /* another reap has begun since the reaper last looked */

static void forget_in_child(void)
{
    atomic_store(&g_draining, NULL);
    pthread_mutex_init(&g_reaper, NULL);
}

NET_IN_CHILD(forget_in_child);

/* A destroy and another thread's abort may both come here. */
void shim_comm_release_later(shim_comm_t *comm)
{
    if (atomic_exchange(&comm->listed, true)) {
        shim_comm_release(comm);
        return;
    }
    comm->next = atomic_load(&g_draining);
    while (!atomic_compare_exchange_weak(&g_draining, &comm->next, comm))
        ;
}

static void release_drained(void)
{
    shim_comm_t *comm = atomic_exchange(&g_draining, NULL);
    while (comm) {
        shim_comm_t *next = comm->next;
        comm->next = NULL;
        atomic_store(&comm->listed, false);
        if (shim_drained(comm) && shim_drain(comm, 1)) /* after an error only shim_drain is false */
            shim_comm_release(comm);
        else
            shim_comm_release_later(comm);
        comm = next;
    }
}

typedef struct sight {
    bool running;   /* eager calls of a living communicator */
    bool unseen;    /* a graph or a forwarded call may run kernels */
    bool forwarded; /* a forwarded call may */
} sight_t;

static bool may_wait(const shim_comm_t *comm)
{
    int phase = atomic_load(&comm->phase);
    if (phase == SHIM_COMM_JOINING || phase == SHIM_COMM_FORWARD || !comm->scratch)
        return false;
    return __atomic_load_n(&alg_scratch_control(comm->scratch)->abort, __ATOMIC_ACQUIRE) == 0;
}

/* Whether calls go to the real NCCL. They also do after shim_comm_stop and shim_comm_interrupt. */
static bool is_forwarded(const shim_comm_t *comm, bool in_table)
{
    const int phase = atomic_load(&comm->phase);
    return phase == SHIM_COMM_FORWARD ||
           (phase == SHIM_COMM_DEAD && in_table && !atomic_load(&comm->aborted) && !atomic_load(&comm->revoked) &&
            !atomic_load(&comm->finalized) && atomic_load(&comm->async_error) == ncclSuccess);
}

static void check_comm(shim_comm_t *comm, void *context)
{
    sight_t *sight = context;
    if (!comm->ops->asynchronous)
        return;
    const bool in_table = shim_comm_find(atomic_load(&comm->handle)) == comm;
    sight->forwarded = sight->forwarded || is_forwarded(comm, in_table);
    sight->unseen = sight->unseen || sight->forwarded;
    if (!may_wait(comm) || shim_comm_lost(comm))
        return;
    sight->running = sight->running || !shim_drained(comm);
    /* The table, this visit and each group of experts that is being made hold one reference each; a further one may be
     * a graph's. A group whose making begins or ends meanwhile is not counted. */
    const uint32_t begun = atomic_load(&comm->extras_begun), references = atomic_load(&comm->references);
    const uint32_t still = atomic_load(&comm->extras_begun), known = 1u + in_table + (begun < still ? begun : still);
    sight->unseen = sight->unseen || references > known || shim_extra_any(comm);
}

static sight_t check_all(void)
{
    sight_t sight = {0};
    shim_comm_each_held(check_comm, &sight);
    return sight;
}

/* References to all states, and the locks of those with other ranks in this process. */
typedef struct held {
    struct {
        shim_comm_t *comm;
        bool locked;
    } * state;
    uint32_t count, room;
    bool busy; /* a state launches, its calls run, or memory is short */
} held_t;

static bool has_room(held_t *held)
{
    if (held->count < held->room)
        return true;
    const uint32_t room = held->room ? 2 * held->room : 16;
    void *state = realloc(held->state, room * sizeof(*held->state));
    held->state = state ? state : held->state;
    held->room = state ? room : held->room;
    return state != NULL;
}

static void retain(shim_comm_t *comm, void *context)
{
    held_t *held = context;
    if (!has_room(held)) {
        held->busy = true;
        return;
    }
    shim_comm_retain(comm);
    held->state[held->count].locked = false;
    held->state[held->count++].comm = comm;
}

static bool has_other_ranks(const held_t *held, const shim_comm_t *comm)
{
    bool any = false;
    for (uint32_t i = 0; i < held->count; i++)
        any = any || (held->state[i].comm != comm && !memcmp(&held->state[i].comm->key, &comm->key, sizeof(comm->key)));
    return any;
}

static void hold(held_t *held)
{
    shim_comm_each_held(retain, held);
    for (uint32_t i = 0; i < held->count && !held->busy; i++) {
        shim_comm_t *comm = held->state[i].comm;
        if (!has_other_ranks(held, comm))
            continue;
        held->state[i].locked = pthread_mutex_trylock(&comm->lock) == 0;
        held->busy = !held->state[i].locked || (may_wait(comm) && !shim_comm_lost(comm) && !shim_drained_held(comm));
    }
}

static void let_go(held_t *held)
{
    for (uint32_t i = 0; i < held->count; i++) {
        if (held->state[i].locked)
            pthread_mutex_unlock(&held->state[i].comm->lock);
        shim_comm_release(held->state[i].comm);
    }
    free(held->state);
}

static void free_scratch(bool bounded)
{
    const struct timespec nap = {0, 1000000};
    if (!alg_scratch_any_retired())
        return;
    const bool many = bounded && alg_scratch_retired() > RETIRED_MOST;
    sight_t sight = check_all();
    for (int naps = 0; many && sight.running && naps < PATIENCE_MS; naps++) {
        nanosleep(&nap, NULL);
        sight = check_all();
    }
    if (sight.running || (sight.unseen && !many))
        return;
    held_t held = {0};
    if (!sight.forwarded) /* the real NCCL's kernel may wait for what another thread launches first */
        hold(&held);
    if (!held.busy)
        alg_scratch_reap();
    let_go(&held);
}

static void comm_free(shim_comm_t *comm)
{
    shim_record_end(comm->record); /* first: the record's watcher reads the scratch's control words */
    shim_share_release(comm);      /* before the event is destroyed */
    shim_drain_forget(comm);
    shim_redop_forget(comm);
    shim_shrink_forget(comm);
    shim_nodes_end(comm->nodes); /* before the scratch, whose control words it uses */
    shim_extra_forget(comm);
    if (comm->scratch) {
        shim_grow_end(comm);
        alg_scratch_release(comm->scratch, comm->reusable);
    }
    free(comm->plan);
    net_leave(comm->rendezvous);
    shim_comm_recycle(comm);
}

void shim_comm_collect(void)
{
    release_drained();
    shim_comm_t *comm = shim_comm_take_released();
    while (comm) {
        shim_comm_t *next = comm->next;
        comm_free(comm);
        comm = next;
    }
}

/* One thread at a time: another's locks and references would look like calls. It reaps again for threads that came
 * later. */
static void reap(bool bounded)
{
    shim_comm_collect();
    atomic_store(&g_wanted, true);
    while (atomic_load(&g_wanted) && pthread_mutex_trylock(&g_reaper) == 0) {
        atomic_store(&g_wanted, false);
        free_scratch(bounded);
        pthread_mutex_unlock(&g_reaper);
    }
}

void shim_comm_reap(void)
{
    reap(true);
}

void shim_comm_reap_idle(void)
{
    reap(false);
}
