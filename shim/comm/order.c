/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - orders calls by one event of the communicator. Every eager call records it at once: the call's stream may
 * be destroyed later, and the driver crashes on a query of a destroyed stream. Graphs wait for the event and record it
 * too (capture.c), unseen by Shunt. So while a graph lives, a call waits for the event even on the stream that
 * recorded it. So does one call after the last graph is destroyed, since its replay may still run. */
#include "shim/comm/order.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#include <stdlib.h>

static int need_event(shim_order_t *order)
{
    void *event;
    if (order->event)
        return cudaSuccess;
    const int error = net_event_make(&event, false);
    if (error == cudaSuccess)
        order->event = event;
    return error;
}

static int need_side(void **side)
{
    return *side ? cudaSuccess : net_stream_make(side);
}

/* The driver may drop a wait node for an event that was never recorded. So the event is recorded before the first
 * capture, on a side stream, since the program's is captured. */
static int need_recorded_event(shim_order_t *order)
{
    if (order->recorded || order->mixed)
        return cudaSuccess;
    int error = need_event(order);
    if (error == cudaSuccess)
        error = need_side(&order->side[0]);
    const int mode = net_capture_relax();
    if (error == cudaSuccess)
        error = net_event_record(order->event, order->side[0]);
    net_capture_restore(mode);
    return error;
}

int shim_order_join(void *waiter, void *stream)
{
    if (waiter == stream)
        return 0;
    void *event;
    int error = net_event_make(&event, false);
    if (error != cudaSuccess)
        return error;
    error = net_event_record(event, stream);
    if (error == cudaSuccess)
        error = net_stream_wait(waiter, event);
    cudaEventDestroy(event); /* the driver keeps it while a stream waits for it */
    return error;
}

static int record(shim_order_t *order, void *stream)
{
    int error = need_event(order);
    if (error == cudaSuccess)
        error = net_event_record(order->event, stream);
    order->recorded = order->recorded || error == cudaSuccess;
    order->lost = order->lost || error != cudaSuccess;
    return error;
}

/* Call when no graph is left: this call's wait covers all replays. */
static void forget_graphs(shim_order_t *order)
{
    order->mixed = false;
    order->recorded = true;
    order->last_stream_id = SHIM_STREAM_UNKNOWN; /* until a call records the event */
}

int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_order_t *order = &comm->order;
    if (capture->id != 0) {
        const int error = comm->config.graph_mixing ? need_recorded_event(order) : cudaSuccess;
        return error == cudaSuccess ? shim_captured_enter(comm, stream, capture) : error;
    }
    bool same = order->last_stream_id == capture->stream_id && capture->stream_id != SHIM_STREAM_UNKNOWN;
    if (!order->mixed && (!order->recorded || same))
        return 0;
    const bool last =
        order->mixed && atomic_load(&order->graphs) == 0; /* read before the wait, which then covers the last replay */
    const int error = net_stream_wait(stream, order->event);
    if (error == cudaSuccess && last)
        forget_graphs(order);
    return error;
}

int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending)
{
    comm->order.pending_stream = stream;
    comm->order.pending_capture = capture->id;
    atomic_store(&comm->order.pending, pending ? ++comm->order.pendings : 0);
    if (pending)
        return 0; /* calls on other streams must still wait for the earlier recording */
    if (capture->id != 0)
        return shim_captured_leave(comm, stream, capture);
    comm->order.last_stream_id = capture->stream_id;
    return record(&comm->order, stream);
}

/* In a capture a side stream would stay in the capture until its end. So the captured stream itself is set back to the
 * nodes where the branch began. */
int shim_branch_make(shim_comm_t *comm, int side, void *stream, const shim_capture_t *capture, shim_branch_t *branch)
{
    branch->stream = stream;
    branch->capture = *capture;
    branch->begun = false;
    if (capture->id != 0)
        return shim_graph_nodes_read(stream, &branch->nodes);
    const int error = need_side(&comm->order.side[side]);
    if (error != cudaSuccess)
        return error;
    branch->stream = comm->order.side[side];
    int failed = shim_capture_query(branch->stream, &branch->capture);
    return failed ? failed : shim_order_join(branch->stream, stream);
}

/* Lets the captured stream continue at the other path's end. */
static int change_ways(shim_branch_t *branch)
{
    shim_graph_nodes_t other = {0};
    int error = shim_graph_nodes_read(branch->stream, &other);
    if (error == 0)
        error = shim_graph_nodes_write(branch->stream, &branch->nodes, false);
    free(branch->nodes.node);
    branch->nodes = other;
    return error;
}

int shim_branch_begin(shim_branch_t *branch)
{
    int error = branch->capture.id != 0 ? change_ways(branch) : 0;
    branch->begun = branch->begun || error == 0;
    return error;
}

int shim_branch_pause(shim_branch_t *branch)
{
    return branch->capture.id != 0 ? change_ways(branch) : 0;
}

int shim_branch_end(shim_branch_t *branch, void *stream)
{
    if (!branch->begun)
        return 0;
    branch->begun = false;
    return branch->capture.id != 0 ? shim_graph_nodes_write(stream, &branch->nodes, true)
                                   : shim_order_join(stream, branch->stream);
}

static void destroy_handles(const shim_order_t *order)
{
    if (order->event)
        cudaEventDestroy(order->event);
    for (int i = 0; i < 2; i++)
        if (order->side[i])
            cudaStreamDestroy(order->side[i]);
}

void shim_order_forget(shim_comm_t *comm, bool lost)
{
    shim_captured_forget(comm);
    if (!lost)
        destroy_handles(&comm->order);
    comm->order = (shim_order_t){0};
}

#else

int shim_order_join(void *waiter, void *stream)
{
    (void)waiter, (void)stream;
    return 0;
}

int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    (void)comm, (void)stream, (void)capture;
    return 0;
}

int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending)
{
    (void)comm, (void)stream, (void)capture, (void)pending;
    return 0;
}

int shim_branch_make(shim_comm_t *comm, int side, void *stream, const shim_capture_t *capture, shim_branch_t *branch)
{
    (void)comm, (void)side, (void)stream, (void)capture, (void)branch;
    return 0;
}

int shim_branch_begin(shim_branch_t *branch)
{
    (void)branch;
    return 0;
}

int shim_branch_pause(shim_branch_t *branch)
{
    (void)branch;
    return 0;
}

int shim_branch_end(shim_branch_t *branch, void *stream)
{
    (void)branch, (void)stream;
    return 0;
}

void shim_order_forget(shim_comm_t *comm, bool lost)
{
    (void)comm, (void)lost;
}
#endif

/* Records the event after the pending call. The stream exists unless the device was reset: the program keeps it until
 * the work is on it. */
static void record_pending(shim_comm_t *comm)
{
    void *stream = comm->order.pending_stream;
    shim_capture_t capture;
    atomic_store(&comm->order.pending, 0);
    if (shim_comm_lost(comm))
        return;
    /* After the capture's end its work belongs to a graph, which the program orders. */
    if (shim_capture_query(stream, &capture) == 0 && capture.id == comm->order.pending_capture)
        shim_order_leave(comm, stream, &capture, false);
}

unsigned long long shim_order_pending(shim_comm_t *comm)
{
    return atomic_load(&comm->order.pending);
}

void shim_order_record_pending(shim_comm_t *comm, unsigned long long number)
{
    net_scope_t scope; /* not cudaSetDevice, which would make a context on GPU 0 in a thread that only polls */
    if (number == 0 || net_scope_enter(&scope, comm->device) != 0)
        return;
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->order.pending) == number)
        record_pending(comm);
    pthread_mutex_unlock(&comm->lock);
    net_scope_leave(&scope);
}
