/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - decides whether Shunt takes a call.
 */
#ifndef SHUNT_SHIM_ROUTE_H
#define SHUNT_SHIM_ROUTE_H

#include "shim/call/call.h"

/* CUDA, attached: launch the call, or queue it in a group. True if taken; *result is then the application's. False:
 * forward it, for call->reason, by call->source's rule, if any. */
bool shim_route_take(shim_call_t *call, ncclResult_t *result);

/* Host mode, valid, not empty: run the call, or queue it in a group. */
ncclResult_t shim_route_host(shim_call_t *call);

#endif
