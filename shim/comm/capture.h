/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - calls under stream capture: graph nodes, and the order of replays and eager work. Conventions: order.h.
 */
#ifndef SHUNT_SHIM_CAPTURE_H
#define SHUNT_SHIM_CAPTURE_H

#include "shim/comm/comm.h"

/* Equals no stream's id, not even itself. */
#define SHIM_STREAM_UNKNOWN (~0ull)

typedef struct shim_capture {
    unsigned long long id;        /* 0: not capturing */
    unsigned long long stream_id; /* never reused; in a capture the handle */
} shim_capture_t;

/* Nodes of a graph; zeroed: none. The owner frees `node`. */
typedef struct shim_nodes {
    struct CUgraphNode_st **node;
    size_t count, room;
} shim_nodes_t;

/* Clears errors (the legacy stream beside a capture of its context; no such stream; an invalidated capture): the real
 * NCCL meets and reports them. */
int shim_capture_query(void *stream, shim_capture_t *capture);

/* Before a call in a capture. The communicator's first call there makes the graph hold a reference on the state and,
 * with comm->config.graph_mixing, wait for order.event. */
int shim_captured_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call. With comm->config.graph_mixing the graph records order.event after it. */
int shim_captured_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* share.c's record of this capture's last call; NULL before shim_captured_enter. */
shim_ahead_t *shim_captured_ahead(shim_comm_t *comm, const shim_capture_t *capture);
/* Free the captures' records; no graph may hold a reference. */
void shim_captured_forget(shim_comm_t *comm);

/* Read the nodes on which the captured stream's next node will depend. */
int shim_nodes_read(void *stream, shim_nodes_t *nodes);
/* Set those nodes; with `add`, add to them. */
int shim_nodes_write(void *stream, const shim_nodes_t *nodes, bool add);

#endif
