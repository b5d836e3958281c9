/*
 * order.c - the order of one communicator's work over several streams.
 *
 * An event follows every call outside captures. It is recorded at the call,
 * because later the stream may be gone, and the driver does not survive a
 * question about a stream that was destroyed. The event belongs to the
 * communicator's state. Captured work is ordered among itself, inside its
 * capture: an event that was recorded in one world must not be waited for in
 * the other.
 */
#include "shim/order.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>

/* The legacy stream has two names. */
static cudaStream_t canonical(void *stream)
{
    return stream == (void *)cudaStreamLegacy ? NULL : (cudaStream_t)stream;
}

/* cudaStreamPerThread is one name for many streams. */
static bool same_stream(void *a, void *b)
{
    return canonical(a) == canonical(b) && a != (void *)cudaStreamPerThread;
}

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

int shim_capture_query(void *stream, shim_capture_t *capture)
{
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    cudaGraph_t graph = NULL;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(canonical(stream), &status, &id, &graph, NULL, NULL, NULL);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(canonical(stream), &status, &id, &graph, NULL, NULL);
#endif
    if (error == cudaSuccess && status == cudaStreamCaptureStatusInvalidated)
        error = cudaErrorStreamCaptureInvalidated;
    if (error != cudaSuccess)
        return cleared(error);
    bool active = status == cudaStreamCaptureStatusActive;
    *capture = (shim_capture_t){.id = active ? id : 0, .graph = active ? graph : NULL};
    return 0;
}

/* Making an event must not break a capture that another thread has begun in global mode. */
static cudaError_t event_create(cudaEvent_t *event)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaError_t error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
}

int shim_order_join(void *waiter, void *stream)
{
    if (same_stream(waiter, stream))
        return 0;
    cudaEvent_t event;
    cudaError_t error = event_create(&event);
    if (error != cudaSuccess)
        return cleared(error);
    error = cudaEventRecord(event, canonical(stream));
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(canonical(waiter), event, 0);
    cudaEventDestroy(event); /* lives on until nobody waits for it */
    return cleared(error);
}

static int record(shim_order_t *order, void *stream)
{
    cudaEvent_t event = order->event;
    if (event == NULL) {
        cudaError_t error = event_create(&event);
        if (error != cudaSuccess)
            return cleared(error);
        order->event = event;
    }
    cudaError_t error = cudaEventRecord(event, canonical(stream));
    order->recorded = error == cudaSuccess;
    return cleared(error);
}

/* NULL: no call of the communicator in that capture yet. */
static shim_captured_t *captured_in(shim_order_t *order, unsigned long long id)
{
    for (unsigned i = 0; i < SHIM_CAPTURES; i++)
        if (order->captured[i].id == id)
            return &order->captured[i];
    return NULL;
}

int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_order_t *order = &comm->order;
    if (capture->id != 0) {
        const shim_captured_t *last = captured_in(order, capture->id);
        bool other = last != NULL && canonical(last->stream) != canonical(stream);
        return other ? shim_order_join(stream, last->stream) : 0;
    }
    if (!order->recorded || same_stream(order->last_stream, stream))
        return 0;
    return cleared(cudaStreamWaitEvent(canonical(stream), order->event, 0));
}

int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending)
{
    shim_order_t *order = &comm->order;
    if (capture->id != 0) {
        shim_captured_t *last = captured_in(order, capture->id);
        if (last == NULL)
            last = &order->captured[order->next_captured++ % SHIM_CAPTURES];
        *last = (shim_captured_t){capture->id, stream};
        return 0;
    }
    if (pending)
        return 0; /* what was recorded before still has to be waited for, and drained */
    order->last_stream = stream;
    return record(order, stream);
}

/* Called by the driver, which allows no CUDA call here. */
static void CUDART_CB graph_gone(void *comm)
{
    shim_comm_release(comm);
}

int shim_order_retain(shim_comm_t *comm, const shim_capture_t *capture)
{
    if (capture->id == 0 || comm->retained_capture == capture->id)
        return 0;
    cudaUserObject_t object;
    shim_comm_retain(comm);
    cudaError_t error = cudaUserObjectCreate(&object, comm, graph_gone, 1, cudaUserObjectNoDestructorSync);
    if (error != cudaSuccess) {
        shim_comm_release(comm);
        return cleared(error);
    }
    error = cudaGraphRetainUserObject(capture->graph, object, 1, cudaGraphUserObjectMove);
    if (error != cudaSuccess) {
        cudaUserObjectRelease(object, 1);
        return cleared(error);
    }
    comm->retained_capture = capture->id;
    return 0;
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

int shim_capture_query(void *stream, shim_capture_t *capture)
{
    (void)stream;
    *capture = (shim_capture_t){0};
    return 0;
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

int shim_order_retain(shim_comm_t *comm, const shim_capture_t *capture)
{
    (void)comm, (void)capture;
    return 0;
}
#endif
