/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - our kernels leave their waits, because the program gives a
 * communicator up.
 */
#ifndef SHUNT_SHIM_STOP_H
#define SHUNT_SHIM_STOP_H

#include "shim/comm/comm.h"

enum { SHIM_ABORT_DRAIN_MS = 2000 };

/* Let our kernels leave their waits now, those of communicators that share resources with this one too. */
void shim_comm_stop(shim_comm_t *comm);
/* They were told to stop. As of NCCL's own none runs any more when a call that blocks returns: the program may free
 * its buffers. */
void shim_comm_let_end(shim_comm_t *comm, bool grouped);

#endif
