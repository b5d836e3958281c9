/* SPDX-License-Identifier: Apache-2.0 */
/* drain.h - waits for a communicator's kernels before its scratch is freed. */
#ifndef SHUNT_SHIM_DRAIN_H
#define SHUNT_SHIM_DRAIN_H

#include "shim/comm/comm.h"

/* Wait for a launch in progress and for the eager calls, at most `limit_ms` (0: no limit). False if their end is not
 * known: then the scratch must not be reused, nor freed while kernels may run. Captured calls need no wait, because
 * their graph holds a reference. Takes comm->lock. */
bool shim_drain(shim_comm_t *comm, uint32_t limit_ms);
/* False while an eager call is known to run or to be launched; true if that is unknown. Does not wait. */
bool shim_drained(shim_comm_t *comm);
/* The same under comm->lock. */
bool shim_drained_held(const shim_comm_t *comm);
/* Free order.c's part of the state. */
void shim_drain_forget(shim_comm_t *comm);

#endif
