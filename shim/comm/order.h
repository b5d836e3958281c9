/* SPDX-License-Identifier: Apache-2.0 */
/* order.h - keeps a communicator's calls, taken or forwarded, in order over several streams: NCCL does so, and Shunt's
 * kernels share one scratch.
 * Unless stated, functions return a cudaError_t, and those with a communicator need its lock, and its device current
 * (net_device_enter). Without CUDA they do nothing. */
#ifndef SHUNT_SHIM_ORDER_H
#define SHUNT_SHIM_ORDER_H

#include <stdbool.h>

#include "shim/comm/capture.h"

/* Before a call: `stream` waits for the communicator's last call. */
int shim_order_enter(shim_comm_t *comm, void *stream, const shim_capture_t *capture);
/* After the call. pending: the real NCCL has not put the work on the stream yet (non-blocking communicators). */
int shim_order_leave(shim_comm_t *comm, void *stream, const shim_capture_t *capture, bool pending);

/* Number of the pending call; 0: none. Read it before asking the real NCCL for its state. If NCCL then has nothing in
 * progress on the communicator, the call's work is on the call's stream, and shim_order_record_pending records the
 * event there. Call both without comm->lock; any device may be current. */
unsigned long long shim_order_pending(shim_comm_t *comm);
void shim_order_record_pending(shim_comm_t *comm, unsigned long long number);

/* `waiter` waits for the work now on `stream`. Both are in one capture, or neither is captured. */
int shim_order_join(void *waiter, void *stream);

/* Work that runs concurrently with later work of its stream. */
typedef struct shim_branch {
    void *stream; /* a side stream; in a capture the stream it branched from */
    shim_capture_t capture;
    shim_graph_nodes_t nodes; /* in a capture: the end of the inactive path */
    bool begun;
} shim_branch_t;

/* Branch off at `stream`'s present end. The caller frees branch->nodes.node. */
int shim_branch_make(shim_comm_t *comm, int side, void *stream, const shim_capture_t *capture, shim_branch_t *branch);
/* From here on work on branch->stream belongs to the branch; in a capture only until shim_branch_pause. Begin and pause
 * may alternate. */
int shim_branch_begin(shim_branch_t *branch);
int shim_branch_pause(shim_branch_t *branch);
/* `stream` waits for the branch. */
int shim_branch_end(shim_branch_t *branch, void *stream);

/* Free all when the state ends. lost: a device reset has destroyed events and streams (shim_comm_lost). */
void shim_order_forget(shim_comm_t *comm, bool lost);

#endif
