/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - take a call or leave it: the choice.
 */
#ifndef SHUNT_SHIM_ROUTE_H
#define SHUNT_SHIM_ROUTE_H

#include "shim/call/call.h"

/* CUDA, an attached communicator: launch the call, or in a group queue it. True if it was taken;
 * *result is then for the application. False: forward it; call->reason says why, call->source whose rule it was,
 * if any. */
bool shim_route_take(shim_call_t *call, ncclResult_t *result);

/* Host mode, arguments checked, not empty: run the call to its end, or in a group queue it. */
ncclResult_t shim_route_host(shim_call_t *call);

#endif
