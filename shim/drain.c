/*
 * drain.c - the end of our kernels on a communicator, before its scratch goes.
 *
 * What is known of them is what order.c keeps: the event after the last call,
 * or the one stream that was used. Both are asked instead of waited for, so that
 * a limit is possible and so that an abort from another thread can end the wait.
 * Nothing here is kept.
 */
#define _GNU_SOURCE
#include "shim/drain.h"

#include <time.h>

#if SHUNT_HAS_CUDA
#include <cuda_runtime.h>

static cudaError_t ask(const shim_order_t *order)
{
    return order->recorded ? cudaEventQuery((cudaEvent_t)order->event)
                           : cudaStreamQuery((cudaStream_t)order->last_stream);
}

/* To ask a stream that is being captured would break the capture. */
static bool may_ask(const shim_order_t *order)
{
    if (order->recorded)
        return true;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing((cudaStream_t)order->last_stream, &status) == cudaSuccess &&
           status == cudaStreamCaptureStatusNone;
}

bool shim_drain(shim_comm_t *comm, uint32_t limit_ms)
{
    if (atomic_load(&comm->host))
        return true;
    pthread_mutex_lock(&comm->lock);
    shim_order_t order = comm->order;
    pthread_mutex_unlock(&comm->lock);
    if (!order.any)
        return true;
    net_scope_t scope;
    if (net_scope_enter(&scope, comm->device) != 0)
        return false;
    bool ended = false;
    if (may_ask(&order)) {
        const struct timespec nap = {0, 50 * 1000};
        cudaError_t error = ask(&order);
        for (uint64_t naps = 0; error == cudaErrorNotReady; naps++) {
            if (limit_ms && naps >= limit_ms * UINT64_C(20))
                break;
            nanosleep(&nap, NULL);
            error = ask(&order);
        }
        ended = error == cudaSuccess;
    }
    net_scope_leave(&scope);
    return ended;
}

void shim_drain_forget(shim_comm_t *comm)
{
    net_scope_t scope;
    if (!comm->order.event || net_scope_enter(&scope, comm->device) != 0)
        return;
    cudaEventDestroy((cudaEvent_t)comm->order.event);
    comm->order.event = NULL;
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

void shim_drain_forget(shim_comm_t *comm)
{
    (void)comm;
}

#endif
