/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - decides whether Shunt takes a call. */
#ifndef SHUNT_SHIM_ROUTE_H
#define SHUNT_SHIM_ROUTE_H

#include "shim/call/call.h"

/* For an attached communicator on CUDA: launches the call, or queues it in a group. True if taken, with the result in
 * *result. Otherwise call->reason says why, and call->source which table row decided. */
bool shim_route_take(shim_call_t *call, ncclResult_t *result);

/* CPU mode: runs a valid call that is not empty, or queues it in a group. */
ncclResult_t shim_route_cpu(shim_call_t *call);

#endif
