/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap.h - frees states without references.
 */
#ifndef SHUNT_SHIM_REAP_H
#define SHUNT_SHIM_REAP_H

#include "shim/comm/comm.h"

/* Free released states; their scratch goes to the pool, or waits for shim_comm_reap. For the start of an init: it waits
 * for no kernel, since other ranks may wait for this one in the real init. */
void shim_comm_collect(void);
/* The same, and free scratch, which waits for kernels. Called in blocking inits and destroy. */
void shim_comm_reap(void);
/* The same in an abort, a poll or a first call: only if no kernel can run for which it would wait. */
void shim_comm_reap_idle(void);
/* Its kernels were told to leave but still run: release the state when they have ended. Takes the reference. */
void shim_comm_release_later(shim_comm_t *comm);

#endif
