/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - streams and capture: the order of one communicator's work over
 * several streams, ours and forwarded alike.
 *
 * NCCL lets the work of one communicator run in the order of the calls, whatever their streams, and our kernels share
 * one scratch, so they need the same order. On one stream this costs a capture query and, outside captures, an event
 * after the call; with graphs to be ordered with it, a wait before the call, too.
 *
 * Functions return a cudaError_t. The caller has made the communicator's
 * device current (net_device_enter), and for those that take a communicator
 * holds its lock. In a build without CUDA they do nothing.
 */
#ifndef SHUNT_SHIM_ORDER_H
#define SHUNT_SHIM_ORDER_H

#include <stdbool.h>

#include "shim/comm/capture.h"

/* Before a call on `stream`: make it wait for the communicator's last call. */
int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call: `stream` has the communicator's last work. pending: the real NCCL has not put its work on
 * the stream yet (non-blocking communicators), so there is nothing to record before shim_order_settle. */
int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending);

/* Number of the call that was pending at shim_order_leave, 0: none. Once the real NCCL, asked after this, says that
 * nothing of the communicator is in progress, that call's work is on its stream: record it there. No lock is held; any
 * device may be current. */
unsigned long long shim_order_pending(shim_comm_t *comm);
void shim_order_settle(shim_comm_t *comm, unsigned long long number);

/* Make `waiter` wait for the work now on `stream`; both captured by the same graph, or neither. */
int shim_order_join(void *waiter, void *stream);

/* A branch: work that runs concurrently with later work of a stream. */
typedef struct shim_branch {
    void *stream; /* the branch's stream: one of the communicator's; in a capture the one it branched from */
    shim_capture_t capture;
    shim_nodes_t nodes; /* in a capture: the end of the path that is not active at present */
    bool begun;
} shim_branch_t;

/* It begins where `stream` is now, on side stream number `side`. The caller frees branch->nodes.node in the end. */
int shim_branch_make(shim_comm_t *comm, int side, void *stream, const shim_capture_t *capture, shim_branch_t *branch);
/* From here on work put on branch->stream belongs to the branch ... */
int shim_branch_begin(shim_branch_t *branch);
/* ... in a capture, until here (begin and pause may alternate) ... */
int shim_branch_pause(shim_branch_t *branch);
/* ... and here `stream` waits for it. */
int shim_branch_end(shim_branch_t *branch, void *stream);

/* The end of a communicator's state: free events, streams, and records of captures. lost: a reset of the device has
 * taken the events and streams (shim_comm_lost). */
void shim_order_forget(shim_comm_t *comm, bool lost);

#endif
