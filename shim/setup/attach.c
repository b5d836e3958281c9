/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.c - the set-ups of this process: which thread steps them, and when.
 *
 * One list owns all set-ups. A thread claims some under the lock, steps them without it (a step calls CUDA and the real
 * NCCL), and gives them back. So only one thread at a time steps a set-up, and an abort always finds it in the list.
 */
#define _GNU_SOURCE
#include "shim/setup/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "shim/comm/drain.h"
#include "shim/comm/reap.h"
#include "shim/comm/shrink.h"
#include "shim/real/real.h"
#include "shim/setup/setup.h"

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t g_returned;
static shim_setup_t *g_setups;
static atomic_uint g_count;
static uint64_t g_batches;
static _Atomic uint64_t g_families;

static _Thread_local shim_comm_t *g_deferred; /* states destroyed in this thread's group, linked by `next` */

static void forget_in_child(void)
{
    pthread_mutex_init(&g_lock, NULL);
    net_condition_make(&g_returned);
    g_setups = NULL;
    atomic_store(&g_count, 0);
    g_deferred = NULL;
}

NET_AT_LOAD static void prepare(void)
{
    net_condition_make(&g_returned);
    pthread_atfork(NULL, NULL, forget_in_child);
}

net_key_t shim_attach_key(const ncclUniqueId *ids, int id_count, int nranks)
{
    struct {
        net_key_t ids;
        int64_t nranks;
    } whole = {net_key_hash(ids, (size_t)id_count * sizeof(*ids)), nranks};
    return net_key_hash(&whole, sizeof(whole));
}

shim_setup_t *shim_attach_publish(const shim_setup_request_t *request)
{
    shim_setup_t *setup = calloc(1, sizeof(*setup));
    shim_comm_t *comm = setup ? shim_comm_new(request->ops->comm) : NULL;
    if (!comm) {
        free(setup);
        return NULL;
    }
    comm->key = request->key;
    comm->config = request->config;
    comm->all_block = request->config.blocking;
    comm->family = request->family ? request->family : atomic_fetch_add(&g_families, 1) + 1;
    comm->rank = request->rank < 0 ? 0 : (uint32_t)request->rank;
    comm->nranks = request->nranks < 0 ? 0 : (uint32_t)request->nranks;
    setup->request = *request;
    setup->ops = request->ops;
    setup->comm = comm;
    setup->owner = net_thread_number();
    comm->invitation = request->invitation;
    const net_key_t key = shim_nodes_local_key(&request->key);
    setup->join_error = request->publish ? net_join(&key, &setup->rendezvous) : 0;
    comm->place = setup->rendezvous ? net_place(setup->rendezvous) : request->place;
    if (setup->rendezvous) /* a rank is away if its set-up does not directly follow the real init */
        net_set_away(setup->rendezvous, request->grouped || !request->wait);

    pthread_mutex_lock(&g_lock);
    setup->next = g_setups;
    g_setups = setup;
    atomic_fetch_add(&g_count, 1);
    pthread_mutex_unlock(&g_lock);
    return setup;
}

typedef struct filter {
    uint64_t batch;        /* exactly one of the four members is set */
    shim_finisher_t least; /* FINISHER_POLLS or _LATER: this finisher or a later one */
    const shim_comm_t *comm;
    ncclComm_t handle;
} filter_t;

static bool concerns(const shim_setup_t *setup, ncclComm_t handle)
{
    return atomic_load(&setup->comm->handle) == handle || setup->request.parent == handle;
}

static bool passes(const shim_setup_t *setup, const filter_t *filter)
{
    if (filter->batch)
        return setup->batch == filter->batch;
    if (filter->comm)
        return setup->comm == filter->comm;
    if (filter->handle)
        return concerns(setup, filter->handle);
    return filter->least && setup->finisher >= filter->least;
}

void shim_attach_uncount(const shim_setup_request_t *request)
{
    unsigned now = request->counted ? atomic_load(&request->counted->splits) : 0;
    if (request->shrink)
        shim_shrink_take_back(request->shrink);
    else /* splits of one group may end in any order */
        while (now > request->number && !atomic_compare_exchange_weak(&request->counted->splits, &now, request->number))
            ;
}

static void withdraw(shim_setup_t *setup)
{
    shim_comm_drop(setup->comm, atomic_load(&setup->comm->handle));
    setup->ops->hide(setup);
}

static void setup_free(shim_setup_t *setup)
{
    shim_comm_t *comm = setup->comm;
    /* Only a non-blocking set-up leaves a broken communicator, which the program aborts. */
    if (setup->result != ncclSuccess && setup->finisher < FINISHER_POLLS)
        withdraw(setup);
    shim_setup_forget_across(setup);
    shim_attach_uncount(&setup->request);
    shim_comm_release(setup->request.counted);
    shim_comm_release(comm);
    shim_nodes_end(setup->nodes);
    net_leave(setup->parents);
    free(setup->identity);
    free(setup);
}

static shim_setup_t *claim(const filter_t *filter)
{
    shim_setup_t *claimed = NULL;
    pthread_mutex_lock(&g_lock);
    for (shim_setup_t *setup = g_setups; setup; setup = setup->next) {
        if (setup->busy || !passes(setup, filter))
            continue;
        setup->busy = true;
        setup->claimed_next = claimed;
        claimed = setup;
    }
    pthread_mutex_unlock(&g_lock);
    return claimed;
}

/* A finished set-up stays while its call is forwarded, while its group is open, and until its thread has the result. */
static bool frees(const filter_t *filter, const shim_setup_t *setup)
{
    return setup->finisher >= FINISHER_POLLS ||
           (setup->finisher == FINISHER_CALL && filter->batch != 0 && setup->batch == filter->batch);
}

/* Ends the claim and frees finished set-ups. Returns how many that pass the filter are left, busy ones included. */
static uint32_t give_back(shim_setup_t *claimed, const filter_t *filter, ncclResult_t *result)
{
    shim_setup_t *done = NULL;
    uint32_t left = 0;
    pthread_mutex_lock(&g_lock);
    for (; claimed; claimed = claimed->claimed_next) {
        claimed->busy = false;
        if (claimed->postpone) {
            claimed->finisher = FINISHER_LATER;
            claimed->batch = 0;
        }
    }
    for (shim_setup_t **link = &g_setups; *link;) {
        shim_setup_t *setup = *link;
        if (!setup->busy && setup->state == STATE_DONE && frees(filter, setup)) {
            *link = setup->next;
            setup->next = done;
            done = setup;
            atomic_fetch_sub(&g_count, 1);
            continue;
        }
        left += passes(setup, filter);
        link = &setup->next;
    }
    pthread_cond_broadcast(&g_returned);
    pthread_mutex_unlock(&g_lock);
    bool any = done != NULL;
    while (done) {
        shim_setup_t *next = done->next;
        if (result && *result == ncclSuccess)
            *result = done->result;
        setup_free(done);
        done = next;
    }
    if (any)
        shim_comm_reap_idle();
    return left;
}

static uint32_t pass(const filter_t *filter, ncclResult_t *result, bool *moved)
{
    shim_setup_t *claimed = claim(filter);
    for (shim_setup_t *setup = claimed; setup; setup = setup->claimed_next)
        *moved |= shim_setup_step(setup, setup->owner == net_thread_number());
    return give_back(claimed, filter, result);
}

/* Steps the set-ups that pass the filter until none is left. Also steps those of FINISHER_LATER, since a peer may wait
 * for this rank in one. */
static ncclResult_t finish(const filter_t *filter)
{
    const filter_t later = {.least = FINISHER_LATER};
    ncclResult_t result = ncclSuccess;
    long nap_ns = 20000;
    for (;;) {
        bool moved = false;
        pass(&later, NULL, &moved);
        if (pass(filter, &result, &moved) == 0)
            return result;
        if (moved) {
            nap_ns = 20000;
            continue;
        }
        const struct timespec nap = {0, nap_ns};
        nanosleep(&nap, NULL);
        nap_ns = nap_ns < 500000 ? nap_ns * 2 : 1000000;
    }
}

static ncclResult_t finish_inits(const filter_t *filter)
{
    ncclResult_t result = finish(filter);
    shim_comm_reap();
    return result;
}

/* The real call failed: end the set-up silently. NCCL may have freed the handle, so the state leaves the table. */
static void discard(shim_setup_t *setup)
{
    withdraw(setup);
    atomic_store(&setup->cancel, true);
}

/* Leaves the set-up to polls (linger) or to the call that finishes its batch. One left to polls is ready once the real
 * NCCL is. */
static void place(shim_setup_t *setup, uint64_t batch, bool linger)
{
    setup->finisher = linger ? FINISHER_POLLS : FINISHER_CALL;
    setup->batch = linger ? 0 : batch;
    atomic_store(&setup->ready, !linger);
}

/* Makes a batch of this thread's set-ups in the group, or leaves them to polls. Returns the batch's size. */
static uint32_t take_grouped(uint64_t *batch, bool failed, bool linger)
{
    uint32_t taken = 0;
    pthread_mutex_lock(&g_lock);
    *batch = ++g_batches;
    for (shim_setup_t *setup = g_setups; setup; setup = setup->next) {
        if (setup->finisher != FINISHER_GROUP || setup->owner != net_thread_number())
            continue;
        place(setup, *batch, !failed && setup->ops->lingers(setup, linger));
        if (failed)
            discard(setup);
        taken += setup->finisher == FINISHER_CALL;
    }
    pthread_mutex_unlock(&g_lock);
    return taken;
}

ncclResult_t shim_attach_forwarded(shim_setup_t **setups, uint32_t count, ncclResult_t result)
{
    bool failed = shim_is_error(result);
    bool waits = false, answers_early = false;
    filter_t filter = {0};
    pthread_mutex_lock(&g_lock);
    filter.batch = ++g_batches;
    for (uint32_t i = 0; i < count; i++) {
        shim_setup_t *setup = setups[i];
        if (!setup)
            continue;
        if (!failed && setup->request.grouped)
            setup->finisher = FINISHER_GROUP;
        else
            place(setup, filter.batch, !failed && (result == ncclInProgress || !setup->request.wait));
        if (failed)
            discard(setup);
        else
            shim_setup_store_handle(setup); /* so that an abort finds it */
        waits |= setup->finisher == FINISHER_CALL;
        /* the real NCCL is ready at once, but Shunt is not */
        answers_early |= setup->finisher == FINISHER_POLLS && result == ncclSuccess && !setup->request.parent;
    }
    pthread_mutex_unlock(&g_lock);
    if (answers_early)
        return ncclInProgress;
    if (!waits)
        return result;
    ncclResult_t own = finish_inits(&filter);
    return failed ? result : own;
}

static void release_deferred(void)
{
    shim_comm_t *comm = g_deferred;
    g_deferred = NULL;
    bool aborts = false;
    while (comm) {
        shim_comm_t *next = comm->next;
        comm->next = NULL;
        atomic_store(&comm->listed, false);
        aborts = aborts || atomic_load(&comm->aborted);
        bool ended = shim_drain(comm, SHIM_SETUP_LIMIT_MS);
        if (!ended)
            atomic_store(&comm->reusable, false);
        if (ended)
            shim_comm_release(comm);
        else
            shim_comm_release_later(comm);
        comm = next;
    }
    if (aborts)
        shim_comm_reap_idle();
    else
        shim_comm_reap();
}

ncclResult_t shim_attach_after_group(ncclResult_t group_result)
{
    ncclResult_t own = ncclSuccess;
    if (atomic_load_explicit(&g_count, memory_order_relaxed) > 0) {
        filter_t filter = {0};
        bool failed = shim_is_error(group_result), linger = group_result == ncclInProgress;
        if (take_grouped(&filter.batch, failed, linger))
            own = finish_inits(&filter);
    }
    if (g_deferred)
        release_deferred();
    return group_result == ncclSuccess ? own : group_result;
}

void shim_attach_defer_release(shim_comm_t *comm)
{
    if (atomic_exchange(&comm->listed, true)) {
        shim_comm_release(comm);
        return;
    }
    comm->next = g_deferred;
    g_deferred = comm;
}

bool shim_attach_poll(ncclComm_t handle)
{
    /* Acquire: another thread's writes, such as a split's handle, must be visible. */
    if (atomic_load_explicit(&g_count, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&g_lock);
    for (shim_setup_t *setup = g_setups; setup && handle; setup = setup->next) {
        ncclComm_t asked = setup->request.parent ? setup->request.parent : atomic_load(&setup->comm->handle);
        if (setup->finisher >= FINISHER_POLLS && asked == handle)
            atomic_store(&setup->ready, true);
    }
    pthread_mutex_unlock(&g_lock);
    const filter_t all = {.least = FINISHER_POLLS};
    bool moved = false;
    pass(&all, NULL, &moved);
    bool pending = false;
    pthread_mutex_lock(&g_lock);
    for (shim_setup_t *setup = g_setups; setup && handle; setup = setup->next)
        pending |= setup->finisher == FINISHER_POLLS && concerns(setup, handle);
    pthread_mutex_unlock(&g_lock);
    return pending;
}

static void wait_for_verdict(shim_comm_t *comm)
{
    const filter_t filter = {.comm = comm};
    bool ready = false;
    pthread_mutex_lock(&g_lock);
    for (shim_setup_t *setup = g_setups; setup; setup = setup->next) {
        if (setup->comm != comm || !atomic_load(&setup->ready) || !setup->ops->forwards)
            continue;
        uint64_t nobody = 0;
        atomic_compare_exchange_strong(&setup->needed_ns, &nobody, net_now_ns());
        ready = true;
    }
    pthread_mutex_unlock(&g_lock);
    if (ready)
        finish(&filter);
}

bool shim_attach_settle(shim_comm_t *comm)
{
    int phase = atomic_load_explicit(&comm->phase, memory_order_acquire);
    if (phase == SHIM_COMM_JOINING) {
        wait_for_verdict(comm);
        phase = atomic_load_explicit(&comm->phase, memory_order_acquire);
    }
    return phase == SHIM_COMM_ATTACHED;
}

void shim_attach_cancel(ncclComm_t handle)
{
    if (!handle || atomic_load(&g_count) == 0)
        return;
    const filter_t filter = {.handle = handle};
    const uint64_t limit_ns = net_now_ns() + UINT64_C(1000000000);
    bool any = false, busy = true;
    pthread_mutex_lock(&g_lock);
    /* Another thread's step may still read the program's pointer: wait, but with a limit, since that step may wait for
     * a GPU that only this abort frees. */
    for (int error = 0; busy && error != -ETIMEDOUT;) {
        any = busy = false;
        for (shim_setup_t *setup = g_setups; setup; setup = setup->next) {
            if (!passes(setup, &filter))
                continue;
            atomic_store(&setup->cancel, true);
            any = true;
            busy |= setup->busy;
        }
        if (busy)
            error = net_condition_wait(&g_returned, &g_lock, limit_ns);
    }
    pthread_mutex_unlock(&g_lock);
    bool moved = false;
    if (any)
        pass(&filter, NULL, &moved);
}
