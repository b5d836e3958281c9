/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shim/comm/stop.h"

#include <stdlib.h>
#include <time.h>

#include "shim/comm/drain.h"
#include "shim/comm/extra.h"

enum { IDLE_LIMIT_MS = 100 };

/* Takes no lock: a launching thread may hold the communicator's. `scratch` is set before the phase becomes ATTACHED,
 * and the caller's reference keeps it. */
static void stop_kernels(shim_comm_t *comm, int phase)
{
    if ((phase == SHIM_COMM_ATTACHED || phase == SHIM_COMM_DEAD) && comm->scratch)
        __atomic_store_n(&alg_scratch_control(comm->scratch)->abort, 1, __ATOMIC_RELEASE);
    shim_extra_stop(comm);
}

static void stop_one(shim_comm_t *comm)
{
    stop_kernels(comm, atomic_exchange(&comm->phase, SHIM_COMM_DEAD));
}

static bool are_relatives(const shim_comm_t *a, const shim_comm_t *b)
{
    return a != b && a->family == b->family;
}

static void stop_relative(shim_comm_t *comm, void *stopped)
{
    if (are_relatives(comm, stopped))
        stop_one(comm);
}

void shim_comm_stop(shim_comm_t *comm)
{
    stop_one(comm);
    shim_comm_each(stop_relative, comm);
}

/* No event tells when kernels of experts end, nor, without graph mixing, a replay's. A lock may be held for a moment by
 * a thread that frees memory, so an idle relative is given some time. */
static bool may_run(shim_comm_t *comm)
{
    const bool replays = !comm->config.graph_mixing && atomic_load(&comm->order.graphs) > 0;
    return replays || shim_extra_any(comm) || !shim_drain(comm, IDLE_LIMIT_MS);
}

static void interrupt_relative(shim_comm_t *comm, void *stopped)
{
    if (are_relatives(comm, stopped) && may_run(comm))
        stop_one(comm);
}

void shim_comm_interrupt(shim_comm_t *comm)
{
    stop_one(comm);
    shim_comm_each(interrupt_relative, comm);
}

void shim_comm_close(shim_comm_t *comm)
{
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    pthread_mutex_unlock(&comm->lock);
}

void shim_comm_wait_for_calls(shim_comm_t *comm, bool grouped)
{
    if (comm->config.blocking && !grouped)
        shim_drain(comm, SHIM_ABORT_DRAIN_MS);
}

static atomic_bool g_exiting;

/* The phase stays, because calls of a dead communicator would be forwarded. */
static void stop_at_exit(shim_comm_t *comm, void *unused)
{
    (void)unused;
    int none = ncclSuccess;
    atomic_compare_exchange_strong(&comm->async_error, &none, ncclSystemError);
    stop_kernels(comm, atomic_load(&comm->phase));
}

static void *stop_late(void *unused)
{
    const struct timespec grace = {1, 0};
    nanosleep(&grace, NULL);
    shim_comm_each_held(stop_at_exit, unused);
    return NULL;
}

static bool launches_have_ended(shim_comm_t *comm)
{
    const struct timespec nap = {0, 1000000};
    for (int naps = 0; naps < 200; naps++) {
        if (pthread_mutex_trylock(&comm->lock) == 0) {
            pthread_mutex_unlock(&comm->lock);
            return true;
        }
        nanosleep(&nap, NULL);
    }
    return false;
}

/* A launch that waits for a full queue ends when Shunt's kernels are stopped. */
static void let_launches_end(shim_comm_t *comm, void *unused)
{
    if (launches_have_ended(comm))
        return;
    stop_at_exit(comm, unused);
    (void)launches_have_ended(comm);
}

/* Also of communicators that end, or that a graph keeps. */
static void look_for_kernels(shim_comm_t *comm, void *any)
{
    if (comm->scratch || shim_extra_any(comm))
        *(bool *)any = true;
}

static void begin_exit(void)
{
    bool any = false;
    atomic_store(&g_exiting, true);
    shim_comm_each_held(let_launches_end, NULL);
    shim_comm_each_held(look_for_kernels, &any);
    if (any && net_thread_start(NULL, stop_late, NULL) != 0)
        shim_comm_each_held(stop_at_exit, NULL);
}

static void watch_exit(void)
{
    (void)atexit(begin_exit);
}

void shim_comm_stop_at_exit(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_exit);
}

bool shim_comm_exiting(void)
{
    return atomic_load(&g_exiting);
}
