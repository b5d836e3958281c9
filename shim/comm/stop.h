/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h - makes Shunt's kernels leave when the program gives up a communicator. */
#ifndef SHUNT_SHIM_STOP_H
#define SHUNT_SHIM_STOP_H

#include "shim/comm/comm.h"

enum { SHIM_ABORT_DRAIN_MS = 2000 };

/* Stop the kernels of this communicator and of those that share resources with it. */
void shim_comm_stop(shim_comm_t *comm);
/* The same for a revoke or a shrink, after which NCCL's other communicators go on: only those with running calls. */
void shim_comm_interrupt(shim_comm_t *comm);
/* Take no more calls. Waits for a launch in progress, not for its kernel. */
void shim_comm_close(shim_comm_t *comm);
/* Wait for the stopped kernels if the call blocks. As in NCCL, none of them runs when the call returns, so the program
 * may free buffers. */
void shim_comm_wait_for_calls(shim_comm_t *comm, bool grouped);
/* Prepare for the exit of a process with GPUs (docs/lab/proofs.md): no further call begins, launches in progress end,
 * and a second later Shunt's kernels are stopped. */
void shim_comm_stop_at_exit(void);
/* Whether the exit has begun; calls then return ncclSystemError. */
bool shim_comm_exiting(void);

#endif
