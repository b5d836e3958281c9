/* SPDX-License-Identifier: Apache-2.0 */
/* stop.c - see stop.h. */
#include "shim/comm/stop.h"

#include "shim/comm/drain.h"

/* No lock: a launching thread may hold it while it waits. */
static void stop_one(shim_comm_t *comm)
{
    int phase = atomic_exchange(&comm->phase, SHIM_COMM_DEAD);
    /* Scratch is set before the phase says ATTACHED, and stays as long as a reference does. */
    if (phase == SHIM_COMM_ATTACHED || phase == SHIM_COMM_DEAD) {
        if (comm->scratch)
            __atomic_store_n(&alg_scratch_control(comm->scratch)->abort, 1, __ATOMIC_RELEASE);
    }
}

static void stop_relative(shim_comm_t *comm, void *context)
{
    const shim_comm_t *stopped = context;
    if (comm != stopped && comm->family == stopped->family)
        stop_one(comm);
}

void shim_comm_stop(shim_comm_t *comm)
{
    stop_one(comm);
    shim_comm_each(stop_relative, comm);
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
