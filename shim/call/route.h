/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - decides whether Shunt takes a call. */
#ifndef SHUNT_SHIM_ROUTE_H
#define SHUNT_SHIM_ROUTE_H

#include "shim/call/call.h"

/* For an attached communicator on CUDA: launches the call, or queues it in a group. True if taken, with the result in
 * *result. Otherwise call->reason says why, and call->source which table row decided. */
bool shim_route_take(shim_call_t *call, ncclResult_t *result);

/* The steps of shim_route_take, for cpu/. This one: whether all buffers that this rank uses are set. */
bool shim_route_has_buffers(const shim_call_t *call);
/* True if the call is certainly valid and not an empty collective. */
bool shim_route_set(shim_call_t *call);
sel_choice_t shim_route_choose(shim_call_t *call);
/* Whether all ranks have the scratch that the call needs; may wait for it (grow.h). */
bool shim_route_has_memory(shim_call_t *call);
void shim_route_list(shim_call_t *call);
bool shim_route_begin_range(const shim_call_t *call);

#endif
