/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - streams and capture: the order of one communicator's work over
 * several streams, ours and forwarded alike.
 *
 * NCCL lets the work of one communicator run in the order of the calls,
 * whatever their streams, and our kernels share one scratch, so they need the
 * same order. On one stream this costs the question whether the stream is being
 * captured, and outside captures an event after the call; with graphs that are
 * to be ordered with it, a wait before the call, too.
 *
 * Functions return a cudaError_t. The caller has made the communicator's
 * device current (shim_device_enter), and for those that take a communicator
 * holds its lock. In a build without CUDA they do nothing.
 */
#ifndef SHUNT_SHIM_ORDER_H
#define SHUNT_SHIM_ORDER_H

#include <stdbool.h>

#include "shim/comm/capture.h"

/* Make `device` current; *previous gets what shim_device_leave puts back. */
int shim_device_enter(int device, int *previous);
void shim_device_leave(int device, int previous);

/* Before a call on `stream`: let it wait for the communicator's last call. */
int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call: `stream` has the communicator's last work. pending: the real NCCL has not put its work on
 * the stream yet (non-blocking communicators), so there is nothing to record, and nothing of ours to wait for. */
int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending);

/* Let `waiter` wait for what is on `stream` now; both captured by the same graph, or neither. */
int shim_order_join(void *waiter, void *stream);

/* Work that runs beside what comes to a stream meanwhile. */
typedef struct shim_branch {
    void *stream; /* for the work: a stream of the communicator's, in a capture the one that it branched from */
    shim_capture_t capture;
    shim_nodes_t nodes; /* in a capture: what the way has come to that is not the stream's at present */
    bool begun;
} shim_branch_t;

/* It begins where `stream` is now, on side stream number `side`. The caller frees branch->nodes.node in the end. */
int shim_branch_make(shim_comm_t *comm, int side, void *stream, const shim_capture_t *capture, shim_branch_t *branch);
/* From here on what comes to branch->stream belongs to the branch ... */
int shim_branch_begin(shim_branch_t *branch);
/* ... from here on, in a capture, it does not any more (begin and pause may take turns) ... */
int shim_branch_pause(shim_branch_t *branch);
/* ... and here `stream` waits for it. */
int shim_branch_end(shim_branch_t *branch, void *stream);

/* The end of a communicator's state: free events, streams, and what is known of captures. */
void shim_order_forget(shim_comm_t *comm);

#endif
