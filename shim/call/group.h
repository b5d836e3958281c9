/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - a thread's group: how deep the program has nested it, and the calls that Shunt takes. */
#ifndef SHUNT_SHIM_GROUP_H
#define SHUNT_SHIM_GROUP_H

#include "shim/call/call.h"

unsigned shim_group_depth(void);

/* In a group, makes the outermost end return this error and cancel the group (ncclInProgress is no error). Returns
 * `result`. On CUDA for Shunt's own errors only: the real NCCL remembers its own. */
ncclResult_t shim_group_check(ncclResult_t result);

/* Adds the stream to the group. ncclInvalidUsage if its capture differs from that of the communicator's other streams;
 * ncclSystemError without memory. */
ncclResult_t shim_group_use(shim_comm_t *comm, void *stream, const shim_capture_t *capture, shim_use_t use);

/* Call before a dead communicator's handle is freed. Waits, at most 2 s, for other threads' polls of the real NCCL. */
void shim_group_wait_for_polls(shim_comm_t *comm);

/* For ncclCommFinalize in a group on GPUs: the group's end closes the communicator; for a blocking one it first waits
 * for Shunt's kernels. False without memory. */
bool shim_group_finalize(shim_comm_t *comm);

/* For a rank's message to itself without a counterpart of the same size: sets the last error's text, returns NCCL's
 * error. */
ncclResult_t shim_group_self_fault(const char *function);

/* Notes an unattached communicator's call: Shunt launches only after the real NCCL has issued it. */
ncclResult_t shim_group_forwards(shim_comm_t *comm);
/* Queues a copy of the call; on GPUs after shim_group_use. */
ncclResult_t shim_group_queue(const shim_call_t *call);

#endif
