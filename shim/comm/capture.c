/* SPDX-License-Identifier: Apache-2.0 */
/* capture.c - as in NCCL, one node of a graph waits for the communicator's event before the first call, and another
 * records the event after the last call (docs/lab/proofs.md). During a capture no node may be removed, and the last
 * call is not known. So the first call makes the record node, and each call moves that node's edges, so that it follows
 * this call. No call depends on it. A graph that allocates memory lets no edge be removed; there each call adds a
 * record node behind the previous record node. The last call's nodes are stored, not its stream, which may be
 * destroyed. Even on the same stream the next call does not always depend on these nodes, because the program may have
 * set the stream back. So the graph is searched, and an edge is added only if there is no path: a second edge to a
 * kernel would prevent dependent launch. The driver's callback may take no lock. It only lists captures of destroyed
 * graphs, and the next captured call frees them. */
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
    struct shim_captured *next_gone;
    shim_comm_t *comm;
    unsigned long long id;
    unsigned long long stream_id;
    cudaGraph_t graph;
    shim_graph_nodes_t last;
    shim_ahead_t ahead;
    cudaGraphNode_t record; /* depends on `last`; NULL before the first call's end or without graph mixing */
};

/* Clears the last error of Shunt's runtime, which is linked statically. The program's last error stays. */
static int cleared(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return (int)error;
}

int shim_capture_query(void *stream, shim_capture_t *capture)
{
    unsigned long long id, stream_id = SHIM_STREAM_UNKNOWN;
    int error = net_stream_capture(stream, &id);
    /* cudaStreamPerThread is another stream in each thread. A capturing stream cannot be destroyed, so its handle
     * identifies it. */
    if (error == 0 && stream != (void *)cudaStreamPerThread) {
        if (id != 0)
            stream_id = (uintptr_t)stream;
        else
            error = net_stream_id(stream, &stream_id);
    }
    if (error == 0)
        *capture = (shim_capture_t){.id = id, .stream_id = stream_id};
    return error;
}

static cudaError_t nodes_room(shim_graph_nodes_t *nodes, size_t count)
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

/* Queries that return edge data. From CUDA 12.3 on a driver refuses the plain query if an edge has data; older drivers
 * have only the plain one. */
#if CUDART_VERSION >= 13000
#define CAPTURE_FRONT cudaStreamGetCaptureInfo
#define NODE_DEPENDENCIES cudaGraphNodeGetDependencies
#elif CUDART_VERSION >= 12030
#define CAPTURE_FRONT cudaStreamGetCaptureInfo_v3
#define NODE_DEPENDENCIES cudaGraphNodeGetDependencies_v2
#endif

static cudaError_t capture_front(void *stream, enum cudaStreamCaptureStatus *status, const cudaGraphNode_t **node,
                                 size_t *count)
{
    cudaError_t error = cudaErrorCallRequiresNewerDriver;
#if CUDART_VERSION >= 12030
    const cudaGraphEdgeData *edges; /* unused: plain edges, at least as strong, replace these */
    error = CAPTURE_FRONT(stream, status, NULL, NULL, node, &edges, count);
#endif
#if CUDART_VERSION < 13000
    if (cleared(error) == cudaErrorCallRequiresNewerDriver)
        error = cudaStreamGetCaptureInfo_v2(stream, status, NULL, NULL, node, count);
#endif
    return error;
}

int shim_graph_nodes_read(void *stream, shim_graph_nodes_t *nodes)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *node = NULL;
    size_t count = 0;
    cudaError_t error = capture_front(stream, &status, &node, &count);
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

int shim_graph_nodes_write(void *stream, const shim_graph_nodes_t *nodes, bool add)
{
    if (add && nodes->count == 0)
        return 0;
    unsigned flags = add ? cudaStreamAddCaptureDependencies : cudaStreamSetCaptureDependencies;
    return cleared(cudaStreamUpdateCaptureDependencies(stream, nodes->node, NO_EDGES nodes->count, flags));
}

enum {
    SEARCHED = 128, /* limit of nodes held at once */
    ASKED = 4096    /* limit of nodes whose dependencies are queried */
};

static size_t node_dependencies(cudaGraphNode_t node, cudaGraphNode_t *list)
{
    size_t count = SEARCHED;
    cudaError_t error = cudaErrorCallRequiresNewerDriver;
#if CUDART_VERSION >= 12030
    cudaGraphEdgeData edges[SEARCHED];
    error = NODE_DEPENDENCIES(node, list, edges, &count);
#endif
#if CUDART_VERSION < 13000
    if (cleared(error) == cudaErrorCallRequiresNewerDriver) {
        count = SEARCHED;
        error = cudaGraphNodeGetDependencies(node, list, &count);
    }
#endif
    if (cleared(error) != 0)
        return 0;
    return count < SEARCHED ? count : SEARCHED;
}

static bool among(const cudaGraphNode_t *list, size_t count, cudaGraphNode_t node)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == node)
            return true;
    return false;
}

/* Whether each of `nodes` is one of `later` or precedes one. Searches breadth-first; along a single path, perhaps of
 * thousands of nodes, it forgets visited nodes. Returns false at a limit: a needless edge only costs time. */
static bool come_before(const shim_graph_nodes_t *nodes, const shim_graph_nodes_t *later)
{
    cudaGraphNode_t seen[SEARCHED], next[SEARCHED];
    const cudaGraphNode_t *list = later->node;
    size_t length = later->count, count = 0, found = 0;
    for (size_t at = 0, asked = 0;; at++, asked++) {
        for (size_t i = 0; i < length && count < SEARCHED; i++) {
            if (among(seen, count, list[i]))
                continue;
            seen[count++] = list[i];
            found += among(nodes->node, nodes->count, list[i]);
        }
        if (found == nodes->count || at == count || count == SEARCHED || asked == ASKED)
            return found == nodes->count;
        if (found == 0 && at + 1 == count) { /* not after a match: a node might be counted twice */
            seen[0] = seen[at];
            count = 1;
            at = 0;
        }
        length = node_dependencies(seen[at], next);
        list = next;
    }
}

enum { FIRST_CHAINS = 16 };

static void captured_free(shim_captured_t *captured)
{
    free(captured->last.node);
    free(captured);
}

static shim_captured_t **chain_of(const shim_order_t *order, unsigned long long id)
{
    return &order->captured[id * UINT64_C(0x9e3779b97f4a7c15) >> 32 & (order->chains - 1)];
}

static void link_in(shim_order_t *order, shim_captured_t *captured)
{
    shim_captured_t **chain = chain_of(order, captured->id);
    captured->next = *chain;
    *chain = captured;
}

static void link_out(shim_order_t *order, const shim_captured_t *captured)
{
    shim_captured_t **link = chain_of(order, captured->id);
    while (*link != captured)
        link = &(*link)->next;
    *link = captured->next;
    order->captures--;
}

static bool need_chains(shim_order_t *order)
{
    if (order->captures < order->chains)
        return true;
    shim_captured_t **old = order->captured;
    const uint32_t old_chains = order->chains, chains = old_chains > 0 ? 2 * old_chains : FIRST_CHAINS;
    shim_captured_t **grown = calloc(chains, sizeof(*grown));
    if (!grown)
        return false;
    order->captured = grown;
    order->chains = chains;
    for (uint32_t i = 0; i < old_chains; i++)
        for (shim_captured_t *captured = old[i], *next; captured; captured = next) {
            next = captured->next;
            link_in(order, captured);
        }
    free(old);
    return true;
}

/* Called by the driver: may not call CUDA. */
static void CUDART_CB graph_gone(void *argument)
{
    shim_captured_t *captured = argument;
    shim_comm_t *comm = captured->comm;
    captured->next_gone = atomic_load(&comm->order.gone);
    while (!atomic_compare_exchange_weak(&comm->order.gone, &captured->next_gone, captured))
        ;
    /* Another thread may now free `captured`. */
    atomic_fetch_sub(&comm->order.graphs, 1);
    shim_comm_release(comm);
}

/* The graph and its instances hold a reference on the communicator, since they may replay Shunt's kernels. */
static cudaError_t retain(shim_captured_t *captured)
{
    cudaUserObject_t object;
    shim_comm_retain(captured->comm);
    atomic_fetch_add(&captured->comm->order.graphs, 1);
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
    shim_captured_t *captured = atomic_load(&order->gone) ? atomic_exchange(&order->gone, NULL) : NULL;
    while (captured) {
        shim_captured_t *next = captured->next_gone;
        link_out(order, captured);
        captured_free(captured);
        captured = next;
    }
}

static shim_captured_t *find(shim_order_t *order, unsigned long long id)
{
    free_gone(order);
    shim_captured_t *captured = order->captured ? *chain_of(order, id) : NULL;
    while (captured && captured->id != id)
        captured = captured->next;
    return captured;
}

static cudaError_t read_graph(void *stream, cudaGraph_t *graph)
{
    enum cudaStreamCaptureStatus status;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, NULL, graph, NULL, NULL, NULL);
#else
    cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, NULL, graph, NULL, NULL);
#endif
    const bool ended = error == cudaSuccess && status != cudaStreamCaptureStatusActive;
    return ended ? cudaErrorStreamCaptureInvalidated : error;
}

static int begin(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    cudaGraph_t graph;
    cudaError_t error = read_graph(stream, &graph);
    if (error != cudaSuccess)
        return cleared(error);
    shim_order_t *order = &comm->order;
    shim_captured_t *captured = need_chains(order) ? calloc(1, sizeof(*captured)) : NULL;
    if (!captured)
        return cudaErrorMemoryAllocation;
    captured->comm = comm;
    captured->id = capture->id;
    captured->stream_id = capture->stream_id;
    captured->graph = graph;
    link_in(order, captured);
    order->captures++;
    error = retain(captured);
    if (error != cudaSuccess || !comm->config.graph_mixing)
        return cleared(error);
    order->mixed = true;
    cudaGraphNode_t wait;
    error = cudaGraphAddEventWaitNode(&wait, captured->graph, NULL, 0, order->event);
    const int failed = error == cudaSuccess
                           ? shim_graph_nodes_write(stream, &(shim_graph_nodes_t){.node = &wait, .count = 1}, true)
                           : cleared(error);
    /* The wait node is stored as the last call, so calls on all streams of the capture follow it. */
    return failed ? failed : shim_graph_nodes_read(stream, &captured->last);
}

static int is_behind(const shim_captured_t *captured, void *stream, bool *behind)
{
    shim_graph_nodes_t front = {0};
    const int error = shim_graph_nodes_read(stream, &front);
    *behind = error == 0 && come_before(&captured->last, &front);
    free(front.node);
    return error;
}

int shim_captured_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_captured_t *captured = find(&comm->order, capture->id);
    if (!captured)
        return begin(comm, stream, capture);
    bool same = captured->stream_id == capture->stream_id && capture->stream_id != SHIM_STREAM_UNKNOWN;
    captured->stream_id = capture->stream_id;
    bool behind = false;
    const int error = same ? is_behind(captured, stream, &behind) : 0;
    return error != 0 || behind ? error : shim_graph_nodes_write(stream, &captured->last, true);
}

static cudaError_t link_record(const shim_captured_t *captured, bool add)
{
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < captured->last.count && error == cudaSuccess; i++)
        error = (add ? cudaGraphAddDependencies : cudaGraphRemoveDependencies)(captured->graph, &captured->last.node[i],
                                                                               &captured->record, NO_EDGES 1);
    return error;
}

static cudaError_t add_record(shim_captured_t *captured, void *event)
{
    cudaGraphNode_t before = captured->record;
    cudaError_t error = cudaGraphAddEventRecordNode(&captured->record, captured->graph, captured->last.node,
                                                    captured->last.count, event);
    if (error == cudaSuccess && before)
        error = cudaGraphAddDependencies(captured->graph, &before, &captured->record, NO_EDGES 1);
    return error;
}

int shim_captured_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture)
{
    shim_captured_t *captured = find(&comm->order, capture->id);
    if (!captured)
        return 0;
    const bool moves = captured->record && cleared(link_record(captured, false)) == cudaSuccess;
    cudaError_t error = (cudaError_t)shim_graph_nodes_read(stream, &captured->last);
    if (error == cudaSuccess && moves)
        error = link_record(captured, true);
    else if (error == cudaSuccess && comm->config.graph_mixing)
        error = add_record(captured, comm->order.event);
    return cleared(error);
}

shim_ahead_t *shim_captured_ahead(shim_comm_t *comm, const shim_capture_t *capture)
{
    shim_captured_t *captured = find(&comm->order, capture->id);
    return captured ? &captured->ahead : NULL;
}

void shim_captured_forget(shim_comm_t *comm)
{
    for (uint32_t i = 0; i < comm->order.chains; i++)
        for (shim_captured_t *captured = comm->order.captured[i], *next; captured; captured = next) {
            next = captured->next;
            captured_free(captured);
        }
    free(comm->order.captured);
    comm->order.captured = NULL;
    comm->order.chains = comm->order.captures = 0;
    atomic_store(&comm->order.gone, NULL);
}

#else

int shim_capture_query(void *stream, shim_capture_t *capture)
{
    (void)stream;
    *capture = (shim_capture_t){0};
    return 0;
}

shim_ahead_t *shim_captured_ahead(shim_comm_t *comm, const shim_capture_t *capture)
{
    (void)comm, (void)capture;
    return NULL;
}

#endif
