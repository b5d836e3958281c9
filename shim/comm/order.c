/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - the order of one communicator's work over several streams.
 *
 * An event follows every call outside captures. It is recorded at the call,
 * because later the stream may be gone, and the driver does not survive a
 * question about a stream that was destroyed. The event belongs to the
 * communicator's state. What is captured is capture.c's; graphs wait for the
 * same event and record it, so once there is one a call waits for the event
 * even on the stream that recorded it last: nobody tells of a replay.
 */
#include "shim/comm/order.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#include <stdlib.h>

/* The runtime is linked in statically, so its last error is ours alone; still, none is left behind. */
static int cleared(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return (int)error;
}

int shim_device_enter(int device, int *previous)
{
    cudaError_t error = cudaGetDevice(previous);
    if (error == cudaSuccess && *previous != device)
        error = cudaSetDevice(device);
    return cleared(error);
}

void shim_device_leave(int device, int previous)
{
    if (previous != device)
        cleared(cudaSetDevice(previous));
}

/* Making an event or a stream must not break a capture that another thread has begun in global mode. */
static cudaError_t event_create(cudaEvent_t *event)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

static cudaError_t stream_create(cudaStream_t *stream)
{
    int least = 0, greatest = 0;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

static cudaError_t need_event(shim_order_t *order)
{
    cudaEvent_t event;
    if (order->event)
        return cudaSuccess;
    cudaError_t error = event_create(&event);
    if (error == cudaSuccess)
        order->event = event;
    return error;
}

static cudaError_t need_side(void **side)
{
    cudaStream_t stream;
    if (*side)
        return cudaSuccess;
    cudaError_t error = stream_create(&stream);
    if (error == cudaSuccess)
        *side = stream;
    return error;
}

/* ---- Calls ------------------------------------------------------------------------------ */

int shim_order_join(void *waiter, void *stream)
{
    if (waiter == stream)
        return 0;
    cudaEvent_t event;
    cudaError_t error = event_create(&event);
    if (error != cudaSuccess)
        return cleared(error);
    error = cudaEventRecord(event, stream);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(waiter, event, 0);
    cudaEventDestroy(event); /* lives on until nobody waits for it */
    return cleared(error);
}

static int record(shim_order_t *order, void *stream)
{
    cudaError_t error = need_event(order);
    if (error == cudaSuccess)
        error = cudaEventRecord(order->event, stream);
    order->recorded = order->recorded || error == cudaSuccess;
    order->lost = order->lost || error != cudaSuccess;
    return cleared(error);
}

int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_order_t *order = &comm->order;
    if (capture->id != 0) {
        cudaError_t error = comm->config.graph_mixing ? need_event(order) : cudaSuccess;
        return error == cudaSuccess ? shim_captured_enter(comm, stream, capture) : cleared(error);
    }
    bool same = order->last_stream_id == capture->stream_id && capture->stream_id != SHIM_STREAM_UNKNOWN;
    if (!order->mixed && (!order->recorded || same))
        return 0;
    return cleared(cudaStreamWaitEvent(stream, order->event, 0));
}

int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending)
{
    if (pending)
        return 0; /* what was recorded before still has to be waited for, and drained */
    if (capture->id != 0)
        return shim_captured_leave(comm, stream, capture);
    comm->order.last_stream_id = capture->stream_id;
    return record(&comm->order, stream);
}

/* ---- Branches ----------------------------------------------------------------------------- */

/* A stream that has been in a capture belongs to it until its end, so a capture gets none: its own stream goes back
 * to the nodes where it branched. */
int shim_branch_make(shim_comm_t *comm, int side, void *stream, const shim_capture_t *capture, shim_branch_t *branch)
{
    branch->stream = stream;
    branch->capture = *capture;
    branch->begun = false;
    if (capture->id != 0)
        return shim_nodes_read(stream, &branch->nodes);
    cudaError_t error = need_side(&comm->order.side[side]);
    if (error != cudaSuccess)
        return cleared(error);
    branch->stream = comm->order.side[side];
    int failed = shim_capture_query(branch->stream, &branch->capture);
    return failed ? failed : shim_order_join(branch->stream, stream);
}

/* The captured stream goes on where the other way was left. */
static int change_ways(shim_branch_t *branch)
{
    shim_nodes_t other = {0};
    int error = shim_nodes_read(branch->stream, &other);
    if (error == 0)
        error = shim_nodes_write(branch->stream, &branch->nodes, false);
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
    return branch->capture.id != 0 ? shim_nodes_write(stream, &branch->nodes, true)
                                   : shim_order_join(stream, branch->stream);
}

void shim_order_forget(shim_comm_t *comm)
{
    shim_captured_forget(comm);
    if (comm->order.event)
        cudaEventDestroy(comm->order.event);
    for (int i = 0; i < 2; i++)
        if (comm->order.side[i])
            cudaStreamDestroy(comm->order.side[i]);
    comm->order = (shim_order_t){0};
}

#else /* no CUDA: nothing is ever attached on a GPU, and nothing has to be ordered */

int shim_device_enter(int device, int *previous)
{
    *previous = device;
    return 0;
}

void shim_device_leave(int device, int previous)
{
    (void)device, (void)previous;
}

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
#endif
