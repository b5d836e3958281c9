/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap.h - the end of states that nobody refers to.
 */
#ifndef SHUNT_SHIM_REAP_H
#define SHUNT_SHIM_REAP_H

#include "shim/comm/comm.h"

/* Free what was released. Called at the start of init and after destroy and abort. */
void shim_comm_reap(void);
/* Its kernels were told to leave, and have not yet: release it when they have (reap.c). Takes the reference. */
void shim_comm_release_later(shim_comm_t *comm);

#endif
