/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - a communicator in which Shunt itself found a failure.
 */
#ifndef SHUNT_SHIM_FAILURE_H
#define SHUNT_SHIM_FAILURE_H

#include "shim/comm/comm.h"

/* The communicator is broken: every later call returns `result`. The first failure wins. */
void shim_comm_fail(shim_comm_t *comm, ncclResult_t result, const char *text);
/* The meaning of a kernel's status other than OK. */
const char *shim_comm_status_text(uint32_t status);

#endif
