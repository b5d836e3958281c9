/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - groups: depth (of the application's own calls, so never more than NCCL's), and the calls that Shunt takes
 * in one. Thread-local, like NCCL's group state.
 */
#ifndef SHUNT_SHIM_GROUP_H
#define SHUNT_SHIM_GROUP_H

#include "shim/call/call.h"

/* This thread's open ncclGroupStart calls. */
unsigned shim_group_depth(void);

/* In a group, makes the outermost end return an error (not ncclInProgress) and cancel everything. Returns `result`.
 * Host mode: for each error that an API call returns. CUDA: for Shunt's own errors; the real NCCL remembers its own. */
ncclResult_t shim_group_check(ncclResult_t result);

/* The group uses this stream. ncclInvalidUsage if its capture state differs from that of the communicator's other
 * streams, ncclSystemError without memory. */
ncclResult_t shim_group_use(shim_comm_t *comm, void *stream, const shim_capture_t *capture, shim_use_t use);

/* Before a dead communicator's handle is freed: wait, at most 2 s, until no other thread polls the real NCCL about
 * it. */
void shim_group_wait_for_polls(shim_comm_t *comm);

/* ncclCommFinalize in a group on GPUs: no calls after it; a blocking communicator's group end waits for our kernels.
 * False without memory. */
bool shim_group_finalize(shim_comm_t *comm);

/* Reports that a message to the own rank has no counterpart of as many bytes; returns NCCL's error. */
ncclResult_t shim_group_self_fault(const char *function);

/* An unattached communicator's call is forwarded: our work on its stream waits until the real NCCL has issued it. */
ncclResult_t shim_group_forwards(shim_comm_t *comm);
/* Queue (copy) a taken call, on GPUs after shim_group_use. */
ncclResult_t shim_group_queue(const shim_call_t *call);

#endif
