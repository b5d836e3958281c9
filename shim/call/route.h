/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - decides whether Shunt takes a call.
 */
#ifndef SHUNT_SHIM_ROUTE_H
#define SHUNT_SHIM_ROUTE_H

#include "shim/call/call.h"

/* CUDA, an attached communicator: launch the call, or in a group queue it. True if it was taken; *result is then the
 * application's result. False: forward it; call->reason says why, call->source names the rule's source, if any. */
bool shim_route_take(shim_call_t *call, ncclResult_t *result);

/* Host mode, arguments checked, not empty: run the call to its end, or in a group queue it. */
ncclResult_t shim_route_host(shim_call_t *call);

#endif
