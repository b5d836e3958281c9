/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - makes our kernels leave their waits when the program gives a
 * communicator up.
 */
#ifndef SHUNT_SHIM_STOP_H
#define SHUNT_SHIM_STOP_H

#include "shim/comm/comm.h"

enum { SHIM_ABORT_DRAIN_MS = 2000 };

/* Make our kernels leave their waits now, also those of communicators that share resources with this one. */
void shim_comm_stop(shim_comm_t *comm);
/* Take no more calls. Waits for a launch in progress, but not for its kernel. */
void shim_comm_close(shim_comm_t *comm);
/* Wait for the stopped kernels. As in NCCL, none may run any more when a blocking call returns, since the program
 * may then free its buffers. */
void shim_comm_wait_for_calls(shim_comm_t *comm, bool grouped);
/* On GPUs: when the process exits, no call begins any more, since CUDA's end would crash a thread within a launch, and
 * launches in progress end first. CUDA's own end may wait for kernels of ours whose peers exit, too, or whose next
 * calls other threads would have made. So a second after the exit began they leave their waits. Until then work of the
 * last calls may still end, as with NCCL. */
void shim_comm_stop_at_exit(void);
/* Whether the exit has begun. Calls then return ncclSystemError. */
bool shim_comm_exiting(void);

#endif
