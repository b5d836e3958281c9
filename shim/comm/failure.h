/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - a communicator in which Shunt itself found a failure.
 */
#ifndef SHUNT_SHIM_FAILURE_H
#define SHUNT_SHIM_FAILURE_H

#include "shim/comm/comm.h"

/* Every later call returns `result`. The first failure wins. */
void shim_comm_fail(shim_comm_t *comm, ncclResult_t result, const char *text);
/* The same with ncclRemoteError, for a call's kernel that ended with this status. */
void shim_comm_fail_call(shim_comm_t *comm, uint32_t status);
/* The same with ncclInvalidUsage, for all communicators with shim_record_mismatched. */
void shim_comm_fail_mismatched(void);

#endif
