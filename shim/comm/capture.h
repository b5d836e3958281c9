/* SPDX-License-Identifier: Apache-2.0 */
/* capture.h - captured calls: how replays of their graphs and eager calls are ordered. Conventions: order.h. */
#ifndef SHUNT_SHIM_CAPTURE_H
#define SHUNT_SHIM_CAPTURE_H

#include "shim/comm/comm.h"

/* The id of a stream that cannot be identified. It differs from every stream, even one with this id. */
#define SHIM_STREAM_UNKNOWN (~0ull)

typedef struct shim_capture {
    unsigned long long id;        /* 0: not capturing */
    unsigned long long stream_id; /* CUDA's id, never reused; in a capture, the stream's handle */
} shim_capture_t;

/* Nodes of a graph; zeroed: none. The owner frees `node`. */
typedef struct shim_nodes {
    struct CUgraphNode_st **node;
    size_t count, room;
} shim_graph_nodes_t;

/* Returns errors that the real NCCL will report, and clears them: no such stream, an invalidated capture, the legacy
 * stream beside a capture of its context. */
int shim_capture_query(void *stream, shim_capture_t *capture);

/* Before a call in a capture. From the first call on, the graph holds a reference on the communicator's state and, with
 * comm->config.graph_mixing, waits for order.event. */
int shim_captured_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call. With comm->config.graph_mixing the graph records order.event after it. */
int shim_captured_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* share.c's record of this capture's last call; NULL before shim_captured_enter. */
shim_ahead_t *shim_captured_ahead(shim_comm_t *comm, const shim_capture_t *capture);
/* Frees all captures. Call when no graph holds a reference any more. */
void shim_captured_forget(shim_comm_t *comm);

/* The nodes on which the captured stream's next node will depend. */
int shim_graph_nodes_read(void *stream, shim_graph_nodes_t *nodes);
/* Replaces these nodes; with `add`, adds to them. */
int shim_graph_nodes_write(void *stream, const shim_graph_nodes_t *nodes, bool add);

#endif
