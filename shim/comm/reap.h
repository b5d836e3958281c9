/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap.h - frees states without references.
 */
#ifndef SHUNT_SHIM_REAP_H
#define SHUNT_SHIM_REAP_H

#include "shim/comm/comm.h"

/* Free released states. Called at the start of init and after destroy and abort. */
void shim_comm_reap(void);
/* Its kernels were told to leave but still run: release the state when they have ended. Takes the reference. */
void shim_comm_release_later(shim_comm_t *comm);

#endif
