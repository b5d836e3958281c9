/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap.h - frees states without references.
 */
#ifndef SHUNT_SHIM_REAP_H
#define SHUNT_SHIM_REAP_H

#include "shim/comm/comm.h"

/* Free released states; their scratch is pooled, or waits for shim_comm_reap. For the start of an init: waits for no
 * kernel, since other ranks may wait for this one in the real init. */
void shim_comm_collect(void);
/* Also free scratch, waiting for kernels. For blocking inits and destroy. */
void shim_comm_reap(void);
/* The same only if no kernel can run that it would wait for. For an abort, a poll or a first call. */
void shim_comm_reap_idle(void);
/* Kernels told to leave still run: release the state when they have ended. Takes the reference. */
void shim_comm_release_later(shim_comm_t *comm);

#endif
