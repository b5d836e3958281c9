/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - host mode: a peer that dies must not leave the others waiting.
 *
 * A waiting kernel polls its control word and its own time limit; that a peer's
 * process is gone it cannot see. One thread of the process looks after all
 * communicators, ten times a second, and only at those with a call under way.
 * A peer that has done its part may exit while this rank, kept from the
 * processor, has yet to read it: so a dead peer counts only after the same call
 * has been under way for another second.
 *
 * The thread ends when the last communicator of the host device is gone, so that
 * the library can be unloaded, and is started again on need.
 */
#define _GNU_SOURCE
#include "shim/setup/watch.h"

#include <signal.h>
#include <time.h>

#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/comm/comm.h"

enum { PERIOD_MS = 100, GRACE_MS = 1000 };

static net_lock_t g_lock = NET_LOCK_INITIALIZER;
static pthread_once_t g_fork_once = PTHREAD_ONCE_INIT;
static bool g_running;

static void forget_in_child(void)
{
    g_running = false;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

static bool a_peer_is_dead(const shim_comm_t *comm)
{
    const alg_team_t *team = alg_scratch_team(comm->scratch); /* of this host; the others' connections end with them */
    for (uint32_t r = 0; r < team->nranks; r++) {
        if (r != team->rank && !net_alive(comm->rendezvous, r))
            return true;
    }
    return false;
}

static void end_call(shim_comm_t *comm)
{
    alg_control_t *control = alg_scratch_control(comm->scratch);
    uint32_t fine = ALG_STATUS_OK;
    __atomic_compare_exchange_n(&control->status, &fine, (uint32_t)ALG_STATUS_PEER_DEAD, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    __atomic_store_n(&control->abort, 1, __ATOMIC_RELEASE);
}

static void look_after(shim_comm_t *comm, void *context)
{
    uint32_t *alive = context;
    if (!atomic_load(&comm->host))
        return;
    (*alive)++;
    if (atomic_load(&comm->phase) != SHIM_COMM_ATTACHED)
        return;
    uint64_t call = atomic_load(&comm->calls_begun);
    if (call == atomic_load(&comm->calls_ended))
        return;
    if (comm->watched_call == call) {
        if (shim_now_ns() - comm->watched_since_ns > GRACE_MS * UINT64_C(1000000))
            end_call(comm);
    } else if (a_peer_is_dead(comm)) {
        comm->watched_call = call;
        comm->watched_since_ns = shim_now_ns();
    }
}

static void *watch(void *unused)
{
    const struct timespec period = {0, PERIOD_MS * 1000000};
    for (;;) {
        nanosleep(&period, NULL);
        uint32_t alive = 0;
        net_lock_take(&g_lock);
        shim_comm_each(look_after, &alive);
        if (alive == 0)
            g_running = false;
        net_lock_give(&g_lock);
        if (alive == 0)
            return unused;
    }
}

void shim_host_watch(void)
{
    pthread_once(&g_fork_once, watch_forks);
    net_lock_take(&g_lock);
    if (!g_running) {
        /* The program's signals are for the program's threads. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_t thread;
        g_running = pthread_create(&thread, &attributes, watch, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    bool running = g_running;
    net_lock_give(&g_lock);
    if (!running)
        shim_warn("no thread to watch peers: the death of one is noticed by the time limit alone");
}
