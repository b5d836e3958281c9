/* SPDX-License-Identifier: Apache-2.0 */
/* failure.h - marks a communicator in which Shunt found a failure. */
#ifndef SHUNT_SHIM_FAILURE_H
#define SHUNT_SHIM_FAILURE_H

#include "shim/comm/comm.h"

/* All later calls return the first failure's `result`. */
void shim_comm_fail(shim_comm_t *comm, ncclResult_t result, const char *text);
/* The same with ncclRemoteError, after a kernel has ended with this status. */
void shim_comm_fail_call(shim_comm_t *comm, uint32_t status);
/* The same with ncclInvalidUsage, for all communicators that shim_record_mismatched reports. */
void shim_comm_fail_mismatched(void);

#endif
