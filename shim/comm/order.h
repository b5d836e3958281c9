/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - the order of one communicator's work over several streams, ours and forwarded alike: that of the calls, as
 * in NCCL, and since our kernels share one scratch. On one stream it costs a capture query and, outside captures, an
 * event after the call; with graphs to be ordered, also a wait before it.
 *
 * Functions return a cudaError_t. The communicator's device is current (net_device_enter); those that take a
 * communicator need its lock. Without CUDA they do nothing.
 */
#ifndef SHUNT_SHIM_ORDER_H
#define SHUNT_SHIM_ORDER_H

#include <stdbool.h>

#include "shim/comm/capture.h"

/* Before a call: `stream` waits for the communicator's last call. */
int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call. pending: the real NCCL has not put its work on the stream yet (non-blocking communicators);
 * shim_order_settle will record it. */
int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending);

/* Number of shim_order_leave's pending call; 0: none. If the real NCCL, asked after this, has nothing in progress on
 * the communicator, the call's work is on its stream: settle records it. Needs no lock; any device may be current. */
unsigned long long shim_order_pending(shim_comm_t *comm);
void shim_order_settle(shim_comm_t *comm, unsigned long long number);

/* `waiter` waits for the work now on `stream`; both in the same capture, or neither. */
int shim_order_join(void *waiter, void *stream);

/* A branch: work that runs concurrently with later work of its stream. */
typedef struct shim_branch {
    void *stream; /* one of the communicator's; in a capture the stream it branched from */
    shim_capture_t capture;
    shim_nodes_t nodes; /* in a capture: end of the inactive path */
    bool begun;
} shim_branch_t;

/* Branch from `stream`'s present end to side stream `side`. The caller frees branch->nodes.node. */
int shim_branch_make(shim_comm_t *comm, int side, void *stream, const shim_capture_t *capture, shim_branch_t *branch);
/* From here on work on branch->stream belongs to the branch, */
int shim_branch_begin(shim_branch_t *branch);
/* in a capture only until here (begin and pause may alternate); */
int shim_branch_pause(shim_branch_t *branch);
/* here `stream` waits for the branch. */
int shim_branch_end(shim_branch_t *branch, void *stream);

/* The state ends: free events, streams and captures' records. lost: a reset of the device took events and streams
 * (shim_comm_lost). */
void shim_order_forget(shim_comm_t *comm, bool lost);

#endif
