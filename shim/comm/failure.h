/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.h - a communicator that Shunt itself found broken.
 */
#ifndef SHUNT_SHIM_FAILURE_H
#define SHUNT_SHIM_FAILURE_H

#include "shim/comm/comm.h"

/* The communicator is broken: every later call returns `result`. The first failure wins. */
void shim_comm_fail(shim_comm_t *comm, ncclResult_t result, const char *text);
/* What a kernel's status, other than OK, says of its peers. */
const char *shim_comm_status_text(uint32_t status);

#endif
