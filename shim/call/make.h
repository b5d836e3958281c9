/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make.h - the way of a call.
 *
 * The entry point fills in what it was given and makes the call. Shunt's own
 * algorithms are asked first; what they do not take is forwarded, in order with
 * what they did take.
 */
#ifndef SHUNT_SHIM_MAKE_H
#define SHUNT_SHIM_MAKE_H

#include "shim/call/call.h"

/* A call of the function `name`, whose parameters are called as NCCL calls them; forward_<name> hands it on. The
 * designated fields that follow say what else it was given. */
#define SHIM_CALL(name, which, ...)                   \
    (&(shim_call_t){.function = #name,                \
                    .collective = which,              \
                    .forward = forward_##name,        \
                    .handle = comm,                   \
                    .stream = stream,                 \
                    .alg.type = (alg_type_t)datatype, \
                    __VA_ARGS__})

/* Make it, and give what the program gets. */
ncclResult_t shim_call_make(shim_call_t *call);

#endif
