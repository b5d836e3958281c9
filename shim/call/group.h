/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - groups: their depth (of the application's calls, so never above NCCL's), and the calls that Shunt takes in
 * one. Thread-local, like NCCL's.
 */
#ifndef SHUNT_SHIM_GROUP_H
#define SHUNT_SHIM_GROUP_H

#include "shim/call/call.h"

unsigned shim_group_depth(void);

/* In a group, makes the outermost end return the error (ncclInProgress is none) and cancel the group. Returns `result`.
 * Host mode: for every error of an API call. CUDA: for Shunt's own; the real NCCL remembers its own. */
ncclResult_t shim_group_check(ncclResult_t result);

/* Adds the stream to the group. ncclInvalidUsage if its capture differs from that of the communicator's other streams,
 * ncclSystemError without memory. */
ncclResult_t shim_group_use(shim_comm_t *comm, void *stream, const shim_capture_t *capture, shim_use_t use);

/* Waits, at most 2 s, until no other thread polls the real NCCL about a dead communicator, before its handle is
 * freed. */
void shim_group_wait_for_polls(shim_comm_t *comm);

/* ncclCommFinalize in a group on GPUs: no calls may follow; the group's end waits for Shunt's kernels if the
 * communicator blocks. False without memory. */
bool shim_group_finalize(shim_comm_t *comm);

/* Sets the last error: a rank's message to itself has no counterpart of as many bytes; returns NCCL's error. */
ncclResult_t shim_group_self_fault(const char *function);

/* Notes an unattached communicator's forwarded call: Shunt launches only after the real NCCL has issued it. */
ncclResult_t shim_group_forwards(shim_comm_t *comm);
/* Queues a copy of a taken call; on GPUs after shim_group_use. */
ncclResult_t shim_group_queue(const shim_call_t *call);

#endif
