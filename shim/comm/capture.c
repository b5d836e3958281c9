/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.c - see capture.h.
 *
 * A replay makes no calls, so what orders it must lie in its graph. As with
 * NCCL that is one node that waits for the communicator's event before the
 * first call, and one that records it after the last: so each launch waits for
 * what was launched or called before it, and eager calls wait for the launch.
 *
 * While a capture is under way no node may be removed from its graph, and
 * nobody says which call is the last. So the record node is made with the first
 * call, and its edges are moved on with each one. It lies beside the calls, not
 * among them, and costs them nothing.
 *
 * The last call is remembered by its nodes, because its stream may be gone
 * when the next call comes.
 *
 * Memory: what is known of a capture is freed when its graph is gone and the
 * next capture begins, or with the communicator.
 */
#include "shim/comm/capture.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if CUDART_VERSION >= 13000
#define NO_EDGES NULL,
#else
#define NO_EDGES
#endif

struct shim_captured {
    struct shim_captured *next;
    shim_comm_t *comm;
    unsigned long long id;
    unsigned long long stream_id; /* that the last call was on */
    cudaGraph_t graph;
    shim_nodes_t last;      /* nodes of the last call */
    cudaGraphNode_t record; /* depends on them; NULL before the first call has ended, or without mixing */
    atomic_bool gone;       /* set by the driver: the graph and all that was made of it */
};

/* The runtime is linked in statically, so its last error is ours alone; still, none is left behind. */
static int cleared(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return (int)error;
}

int shim_capture_query(void *stream, shim_capture_t *capture)
{
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0, stream_id = SHIM_STREAM_UNKNOWN;
    cudaGraph_t graph = NULL;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, NULL);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, NULL, NULL);
#endif
    if (error == cudaSuccess && status == cudaStreamCaptureStatusInvalidated)
        error = cudaErrorStreamCaptureInvalidated;
    if (error != cudaSuccess)
        return cleared(error);
    const bool active = status == cudaStreamCaptureStatusActive;
    /* cudaStreamPerThread is one name for many streams. A stream that is being captured is there, and is asked for
     * nothing else: its handle names it within the capture. */
    if (stream != (void *)cudaStreamPerThread) {
        if (active)
            stream_id = (uintptr_t)stream;
        else if ((error = cudaStreamGetId(stream, &stream_id)) != cudaSuccess)
            return cleared(error);
    }
    *capture = (shim_capture_t){.id = active ? id : 0, .graph = active ? graph : NULL, .stream_id = stream_id};
    return 0;
}

/* ---- Nodes ---------------------------------------------------------------------------- */

static cudaError_t nodes_room(shim_nodes_t *nodes, size_t count)
{
    if (count <= nodes->room)
        return cudaSuccess;
    struct CUgraphNode_st **grown = realloc(nodes->node, count * sizeof(*grown));
    if (!grown)
        return cudaErrorMemoryAllocation;
    nodes->node = grown;
    nodes->room = count;
    return cudaSuccess;
}

/* The edges are asked for because with some the query fails without; a plain edge is never weaker than they are. */
int shim_nodes_read(void *stream, shim_nodes_t *nodes)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *node = NULL;
    size_t count = 0;
#if CUDART_VERSION >= 12030
    const cudaGraphEdgeData *edges;
#endif
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &node, &edges, &count);
#elif CUDART_VERSION >= 12030
    cudaError_t error = cudaStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &node, &edges, &count);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, NULL, &node, &count);
#endif
    if (error == cudaSuccess && status != cudaStreamCaptureStatusActive)
        error = cudaErrorStreamCaptureInvalidated;
    if (error == cudaSuccess)
        error = nodes_room(nodes, count);
    if (error != cudaSuccess)
        return cleared(error);
    if (count > 0)
        memcpy(nodes->node, node, count * sizeof(*node));
    nodes->count = count;
    return 0;
}

int shim_nodes_write(void *stream, const shim_nodes_t *nodes, bool add)
{
    if (add && nodes->count == 0)
        return 0;
    unsigned flags = add ? cudaStreamAddCaptureDependencies : cudaStreamSetCaptureDependencies;
    return cleared(cudaStreamUpdateCaptureDependencies(stream, nodes->node, NO_EDGES nodes->count, flags));
}

/* ---- The captures of a communicator ----------------------------------------------------- */

static void captured_free(shim_captured_t *captured)
{
    free(captured->last.node);
    free(captured);
}

/* Called by the driver, which allows no CUDA call here. */
static void CUDART_CB graph_gone(void *argument)
{
    shim_captured_t *captured = argument;
    shim_comm_t *comm = captured->comm;
    atomic_store(&captured->gone, true); /* it may be freed from here on */
    shim_comm_release(comm);
}

/* The graph, and what is made of it, keeps the communicator's state alive as long as it may replay our kernels. */
static cudaError_t retain(shim_captured_t *captured)
{
    cudaUserObject_t object;
    shim_comm_retain(captured->comm);
    cudaError_t error = cudaUserObjectCreate(&object, captured, graph_gone, 1, cudaUserObjectNoDestructorSync);
    if (error != cudaSuccess) {
        graph_gone(captured);
        return error;
    }
    error = cudaGraphRetainUserObject(captured->graph, object, 1, cudaGraphUserObjectMove);
    if (error != cudaSuccess)
        cudaUserObjectRelease(object, 1); /* calls graph_gone */
    return error;
}

static void free_gone(shim_order_t *order)
{
    shim_captured_t **link = &order->captured;
    while (*link) {
        shim_captured_t *captured = *link;
        if (atomic_load(&captured->gone)) {
            *link = captured->next;
            captured_free(captured);
        } else {
            link = &captured->next;
        }
    }
}

/* NULL: no call of the communicator in that capture yet. What is found comes first from then on. */
static shim_captured_t *find(shim_order_t *order, unsigned long long id)
{
    for (shim_captured_t **link = &order->captured; *link; link = &(*link)->next) {
        shim_captured_t *captured = *link;
        if (captured->id != id || atomic_load(&captured->gone))
            continue;
        *link = captured->next;
        captured->next = order->captured;
        order->captured = captured;
        return captured;
    }
    return NULL;
}

static int begin(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_order_t *order = &comm->order;
    free_gone(order);
    shim_captured_t *captured = calloc(1, sizeof(*captured));
    if (!captured)
        return cudaErrorMemoryAllocation;
    captured->comm = comm;
    captured->id = capture->id;
    captured->stream_id = capture->stream_id;
    captured->graph = capture->graph;
    captured->next = order->captured;
    order->captured = captured;
    cudaError_t error = retain(captured);
    if (error != cudaSuccess || !comm->config.graph_mixing)
        return cleared(error);
    order->mixed = true;
    error = cudaStreamWaitEvent(stream, order->event, cudaEventWaitExternal);
    /* Whatever its stream, a call of this capture comes after the wait. */
    return error == cudaSuccess ? shim_nodes_read(stream, &captured->last) : cleared(error);
}

int shim_captured_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_captured_t *captured = find(&comm->order, capture->id);
    if (!captured)
        return begin(comm, stream, capture);
    bool same = captured->stream_id == capture->stream_id && capture->stream_id != SHIM_STREAM_UNKNOWN;
    captured->stream_id = capture->stream_id;
    return same ? 0 : shim_nodes_write(stream, &captured->last, true);
}

/* Add or remove the edges from the last call to the record node. */
static cudaError_t link_record(const shim_captured_t *captured, bool add)
{
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < captured->last.count && error == cudaSuccess; i++)
        error = (add ? cudaGraphAddDependencies : cudaGraphRemoveDependencies)(captured->graph, &captured->last.node[i],
                                                                               &captured->record, NO_EDGES 1);
    return error;
}

int shim_captured_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_captured_t *captured = find(&comm->order, capture->id);
    if (!captured)
        return 0; /* it could not be entered */
    cudaError_t error = captured->record ? link_record(captured, false) : cudaSuccess;
    if (error == cudaSuccess)
        error = (cudaError_t)shim_nodes_read(stream, &captured->last);
    if (error == cudaSuccess && captured->record)
        error = link_record(captured, true);
    else if (error == cudaSuccess && comm->config.graph_mixing)
        error = cudaGraphAddEventRecordNode(&captured->record, captured->graph, captured->last.node,
                                            captured->last.count, comm->order.event);
    return cleared(error);
}

void shim_captured_forget(shim_comm_t *comm)
{
    while (comm->order.captured) {
        shim_captured_t *captured = comm->order.captured;
        comm->order.captured = captured->next;
        captured_free(captured);
    }
}

#else

int shim_capture_query(void *stream, shim_capture_t *capture)
{
    (void)stream;
    *capture = (shim_capture_t){0};
    return 0;
}

#endif
