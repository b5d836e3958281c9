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

#endif
