/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - calls under stream capture: graph nodes, and the order of replays and eager work. Conventions: order.h,
 * which includes this header.
 */
#ifndef SHUNT_SHIM_CAPTURE_H
#define SHUNT_SHIM_CAPTURE_H

#include "shim/comm/comm.h"

/* Unequal to every id, itself included. */
#define SHIM_STREAM_UNKNOWN (~0ull)

typedef struct shim_capture {
    unsigned long long id;        /* 0: not capturing */
    unsigned long long stream_id; /* never reused, unlike a handle */
} shim_capture_t;

/* Nodes of a graph. The owner frees `node`; zeroed: none. */
typedef struct shim_nodes {
    struct CUgraphNode_st **node;
    size_t count, room;
} shim_nodes_t;

/* Errors (the legacy stream while another stream of its context is captured; no such stream; an invalidated capture)
 * are cleared: the real NCCL will hit and report them. */
int shim_capture_query(void *stream, shim_capture_t *capture);

/* Before a call in a capture. The communicator's first one there makes the graph hold a reference on the state, and
 * with comm->config.graph_mixing wait for order.event. */
int shim_captured_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call. With comm->config.graph_mixing the graph records order.event after it. */
int shim_captured_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* share.c's record of the last call in a capture that a call has entered; NULL: none. */
shim_ahead_t *shim_captured_ahead(shim_comm_t *comm, const shim_capture_t *capture);
/* Free the captures' records, when no graph holds a reference any more. */
void shim_captured_forget(shim_comm_t *comm);

/* Dependencies of the next node of a captured stream. */
int shim_nodes_read(void *stream, shim_nodes_t *nodes);
/* Set them; with `add`, keep the present ones too. */
int shim_nodes_write(void *stream, const shim_nodes_t *nodes, bool add);

#endif
