/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h - a communicator's calls under stream capture: their graph nodes, and the order between replays and eager
 * work.
 *
 * Conventions: order.h, which includes this header.
 */
#ifndef SHUNT_SHIM_CAPTURE_H
#define SHUNT_SHIM_CAPTURE_H

#include "shim/comm/comm.h"

/* An id that compares unequal to every id, itself included. */
#define SHIM_STREAM_UNKNOWN (~0ull)

typedef struct shim_capture {
    unsigned long long id;        /* 0: the stream is not being captured */
    unsigned long long stream_id; /* the stream's; unlike a handle it is never reused */
} shim_capture_t;

/* Nodes of a graph, in memory of the owner's; zeroed: none. */
typedef struct shim_nodes {
    struct CUgraphNode_st **node;
    size_t count, room;
} shim_nodes_t;

/* An error (the legacy stream while another stream of its context is captured; a stream that does not exist; an
 * invalidated capture) is cleared: the real NCCL will hit and report it. */
int shim_capture_query(void *stream, shim_capture_t *capture);

/* Before a call in a capture. The first one of a communicator there lets the graph hold a reference on the
 * communicator's state, and with comm->config.graph_mixing puts a wait for order.event before the call. */
int shim_captured_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call. With comm->config.graph_mixing the graph records order.event after it. */
int shim_captured_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* What share.c keeps of the last call in a capture that a call has entered; NULL: none has. */
shim_ahead_t *shim_captured_ahead(shim_comm_t *comm, const shim_capture_t *capture);
/* Free the records of captures; no graph holds a reference any more. */
void shim_captured_forget(shim_comm_t *comm);

/* The dependencies of the next node of a captured stream. */
int shim_nodes_read(void *stream, shim_nodes_t *nodes);
/* Set its dependencies to these; with `add`, in addition to the present ones. */
int shim_nodes_write(void *stream, const shim_nodes_t *nodes, bool add);

#endif
