/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain.h - the end of our kernels on a communicator, before its scratch goes.
 */
#ifndef SHUNT_SHIM_DRAIN_H
#define SHUNT_SHIM_DRAIN_H

#include "shim/comm/comm.h"

/* Wait until the communicator's eager calls have ended, at most `limit_ms` (0: no limit), also for a launch in
 * progress. False if that cannot be known (limit, capture, error, unrecorded call): the scratch must not be reused, nor
 * freed while kernels may run. Captured work needs no wait, since its graph holds a reference. Takes comm->lock. */
bool shim_drain(shim_comm_t *comm, uint32_t limit_ms);
/* False while eager calls are known to run or launch. Does not wait. */
bool shim_drained(shim_comm_t *comm);
/* Free order.c's part of the state. */
void shim_drain_forget(shim_comm_t *comm);

#endif
