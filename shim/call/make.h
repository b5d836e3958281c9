/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make.h - makes a call: Shunt takes it if it can, else it is forwarded, in order with the taken ones.
 */
#ifndef SHUNT_SHIM_MAKE_H
#define SHUNT_SHIM_MAKE_H

#include "shim/call/call.h"

/* A call of the function `name`, whose entry point has NCCL's names of parameters; forward_<name> forwards it.
 * Designated initialisers add other arguments. */
#define SHIM_CALL(name, which, ...)                   \
    (&(shim_call_t){.function = #name,                \
                    .collective = which,              \
                    .forward = forward_##name,        \
                    .handle = comm,                   \
                    .stream = stream,                 \
                    .alg.type = (alg_type_t)datatype, \
                    __VA_ARGS__})

/* Returns the program's result. */
ncclResult_t shim_call_make(shim_call_t *call);

#endif
