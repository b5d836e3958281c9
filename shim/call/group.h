/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - groups: depth, and the calls that Shunt takes inside one.
 *
 * All of it is thread-local, as NCCL's own group state is. Depth counts the
 * explicit calls of the application alone; it is never more than NCCL's.
 */
#ifndef SHUNT_SHIM_GROUP_H
#define SHUNT_SHIM_GROUP_H

#include "shim/call/call.h"

/* Open ncclGroupStart calls of this thread. */
unsigned shim_group_depth(void);

/* In a group, an error that is neither success nor in progress makes the outermost end return it and
 * cancel everything. Host mode: for every error that an API call returns. CUDA: for errors that Shunt
 * itself found (the real NCCL remembers its own). Outside a group it does nothing. Returns `result`. */
ncclResult_t shim_group_check(ncclResult_t result);

/* A stream of a communicator takes part in the group. ncclInvalidUsage if its capture state differs
 * from that of the communicator's other streams in the group, ncclSystemError if memory is short. */
ncclResult_t shim_group_use(shim_comm_t *comm, void *stream, const shim_capture_t *capture, shim_use_t use);

/* The communicator is dead and its handle will be freed: wait (at most 2 s) until no group end in another thread
 * polls the real NCCL about it. */
void shim_group_wait_for_polls(shim_comm_t *comm);

/* ncclCommFinalize in a group on GPUs: the communicator takes no calls behind the group's, and where it blocks, the
 * group's end waits for our kernels. False without memory. */
bool shim_group_finalize(shim_comm_t *comm);

/* Report that a message to the own rank has no matching send or receive of as many bytes; returns NCCL's error. */
ncclResult_t shim_group_self_fault(const char *function);

/* A call of an unattached communicator is forwarded: our work on its stream waits until the real NCCL has issued it. */
ncclResult_t shim_group_forwards(shim_comm_t *comm);
/* Queue a call that Shunt takes, after shim_group_use (host mode: without it). Copies `call`. */
ncclResult_t shim_group_queue(const shim_call_t *call);

#endif
