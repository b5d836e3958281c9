/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap.h - frees states without references.
 */
#ifndef SHUNT_SHIM_REAP_H
#define SHUNT_SHIM_REAP_H

#include "shim/comm/comm.h"

/* Free released states; their scratch is pooled, or waits for shim_comm_reap. Waits for no kernel: at an init's start
 * other ranks may wait for this one. */
void shim_comm_collect(void);
/* Also free scratch, and wait for kernels: for blocking inits and destroy. */
void shim_comm_reap(void);
/* Like shim_comm_reap, but frees no scratch if it would have to wait for a kernel: for an abort, a poll or a first
 * call. */
void shim_comm_reap_idle(void);
/* Release the state when its stopped kernels have ended. Takes the reference. */
void shim_comm_release_later(shim_comm_t *comm);

#endif
