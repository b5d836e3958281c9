/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain.c - the end of our kernels on a communicator, before its scratch goes.
 *
 * order.c keeps the event after the last call or replay. It is polled, so that the wait can have a limit and an abort
 * from another thread can end it. No state is kept here.
 */
#define _GNU_SOURCE
#include "shim/comm/drain.h"

#include <time.h>

#include "shim/comm/order.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime.h>

bool shim_drain(shim_comm_t *comm, uint32_t limit_ms)
{
    if (atomic_load(&comm->host))
        return true;
    pthread_mutex_lock(&comm->lock);
    shim_order_t order = comm->order;
    pthread_mutex_unlock(&comm->lock);
    if (!order.recorded && !order.mixed && !order.lost)
        return true;
    net_scope_t scope;
    if (order.lost || net_scope_enter(&scope, comm->device) != 0)
        return false;
    const struct timespec nap = {0, 50 * 1000};
    cudaError_t error = cudaEventQuery((cudaEvent_t)order.event);
    for (uint64_t naps = 0; error == cudaErrorNotReady; naps++) {
        if (limit_ms && naps >= limit_ms * UINT64_C(20))
            break;
        nanosleep(&nap, NULL);
        error = cudaEventQuery((cudaEvent_t)order.event);
    }
    net_scope_leave(&scope);
    return error == cudaSuccess;
}

bool shim_drained(shim_comm_t *comm)
{
    if (pthread_mutex_trylock(&comm->lock) != 0)
        return false; /* a launch is in progress, which may itself wait for a kernel */
    shim_order_t order = comm->order;
    pthread_mutex_unlock(&comm->lock);
    net_scope_t scope;
    if ((!order.recorded && !order.mixed) || net_scope_enter(&scope, comm->device) != 0)
        return true;
    cudaError_t error = cudaEventQuery((cudaEvent_t)order.event);
    net_scope_leave(&scope);
    return error != cudaErrorNotReady;
}

void shim_drain_forget(shim_comm_t *comm)
{
    net_scope_t scope;
    bool any = comm->order.event || comm->order.side[0] || comm->order.side[1] || comm->order.captured;
    if (!any || net_scope_enter(&scope, comm->device) != 0)
        return;
    shim_order_forget(comm);
    net_scope_leave(&scope);
}

#else

/* The host device runs a call to its end before it returns. */
bool shim_drain(shim_comm_t *comm, uint32_t limit_ms)
{
    (void)comm;
    (void)limit_ms;
    return true;
}

bool shim_drained(shim_comm_t *comm)
{
    (void)comm;
    return true;
}

void shim_drain_forget(shim_comm_t *comm)
{
    (void)comm;
}

#endif
