/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain.h - the end of our kernels on a communicator, before its scratch goes.
 */
#ifndef SHUNT_SHIM_DRAIN_H
#define SHUNT_SHIM_DRAIN_H

#include "shim/comm/comm.h"

/* Wait until the eager calls of this communicator have ended: at most `limit_ms` (also for a launch in progress), 0: no
 * limit. False if that cannot be known (a capture is under way, an error, a call that could not be recorded, the
 * limit): its scratch must not be used again, and while kernels may run it must not be freed either. Captured work
 * needs no wait: its graph holds a reference. Takes comm->lock. */
bool shim_drain(shim_comm_t *comm, uint32_t limit_ms);
/* False while eager calls are known to run or are being launched. Does not wait. */
bool shim_drained(shim_comm_t *comm);
/* Free order.c's part of the communicator's state. */
void shim_drain_forget(shim_comm_t *comm);

#endif
