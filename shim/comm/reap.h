/* SPDX-License-Identifier: Apache-2.0 */
/* reap.h - frees states without references. */
#ifndef SHUNT_SHIM_REAP_H
#define SHUNT_SHIM_REAP_H

#include "shim/comm/comm.h"

/* Free released states; their scratch is pooled, or waits for shim_comm_reap. Waits for no kernel, so an init may begin
 * with it while other ranks wait for this one. */
void shim_comm_collect(void);
/* The same, but also wait for kernels and free scratch. For blocking inits and destroys. */
void shim_comm_reap(void);
/* Like shim_comm_reap, but free no scratch where that would wait for a kernel. For an abort, a poll or a first call. */
void shim_comm_reap_idle(void);
/* Takes over the reference, and drops it once the stopped kernels have ended. */
void shim_comm_release_later(shim_comm_t *comm);

#endif
