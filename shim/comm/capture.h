/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - what stream capture makes of a communicator's calls: nodes of a
 * graph, and what keeps the order among the graph's replays and eager work.
 *
 * Conventions are those of order.h, which is the one to include.
 */
#ifndef SHUNT_SHIM_CAPTURE_H
#define SHUNT_SHIM_CAPTURE_H

#include "shim/comm/comm.h"

/* An id that is the same as no other, not even itself. */
#define SHIM_STREAM_UNKNOWN (~0ull)

typedef struct shim_capture {
    unsigned long long id;        /* 0: the stream is not being captured */
    void *graph;                  /* cudaGraph_t that the capture builds */
    unsigned long long stream_id; /* of the stream; unlike a handle it never comes again */
} shim_capture_t;

/* Nodes of a graph, in memory of the owner's; zeroed: none. */
typedef struct shim_nodes {
    struct CUgraphNode_st **node;
    size_t count, room;
} shim_nodes_t;

/* An error (the legacy stream while another stream of its context is captured; a stream that does not
 * exist; an invalidated capture) is cleared: let the real NCCL meet it and word it. */
int shim_capture_query(void *stream, shim_capture_t *capture);

/* Before a call in a capture. The first one of a communicator there lets the graph hold a reference on the
 * communicator's state, and with comm->config.graph_mixing puts a wait for order.event before the call. */
int shim_captured_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call. With comm->config.graph_mixing the graph records order.event after it. */
int shim_captured_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* No graph holds a reference any more: free what is known of captures. */
void shim_captured_forget(shim_comm_t *comm);

/* What the next node of a captured stream will depend on. */
int shim_nodes_read(void *stream, shim_nodes_t *nodes);
/* Let it depend on these, and with `add` on what it does already. */
int shim_nodes_write(void *stream, const shim_nodes_t *nodes, bool add);

#endif
