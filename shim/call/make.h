/* SPDX-License-Identifier: Apache-2.0 */
/* make.h - makes a call: takes it if possible, else forwards it in order with the taken ones. */
#ifndef SHUNT_SHIM_MAKE_H
#define SHUNT_SHIM_MAKE_H

#include "shim/call/call.h"

/* For the entry point `name`, whose parameters have NCCL's names; forward_<name> forwards the call. Designated
 * initialisers add arguments. */
#define SHIM_CALL(name, which, ...)                   \
    (&(shim_call_t){.function = #name,                \
                    .collective = which,              \
                    .forward = forward_##name,        \
                    .handle = comm,                   \
                    .stream = stream,                 \
                    .alg.type = (alg_type_t)datatype, \
                    __VA_ARGS__})

/* Defines forward_<name>, which passes NCCL these arguments of the call `c`. */
#define SHIM_HAND_ON(name, ...)                                                       \
    static ncclResult_t forward_##name(const shim_real_t *real, const shim_call_t *c) \
    {                                                                                 \
        return real->name(__VA_ARGS__);                                               \
    }

ncclResult_t shim_call_make(shim_call_t *call);

#endif
