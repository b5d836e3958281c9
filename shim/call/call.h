/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - a call that puts work on a stream, from its entry point to its launch. */
#ifndef SHUNT_SHIM_CALL_H
#define SHUNT_SHIM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/account/statistics.h"
#include "shim/comm/capture.h"
#include "shim/comm/comm.h"
#include "shim/real/real.h"

typedef struct shim_call shim_call_t;
struct shim_call {
    /* The entry point sets these, and in `alg` buffers, count, type, and root or peer (not checked yet). */
    const char *function; /* static */
    uint32_t collective;  /* alg_collective_t, SHIM_SEND or SHIM_RECV */
    ncclResult_t (*forward)(const shim_real_t *real, const shim_call_t *call);
    const void *more;     /* more arguments for `forward`; a call with these is never taken */
    uint64_t tag;         /* for the real NCCL's profiler; 0: none */
    unsigned tag_version; /* of the tag's configuration */
    ncclRedOp_t op;
    ncclComm_t handle;
    void *stream;

    uint64_t start_ns;   /* 0: no trace */
    shim_comm_t *comm;   /* retained; NULL: unknown handle */
    bool attached;       /* the communicator is attached, and not suspended; CPU mode: the call is valid */
    bool ordered;        /* forwarded, in no group; shim_order_enter has made its stream wait */
    sel_reason_t reason; /* why the call is forwarded */
    const char *source;  /* source of the row that decided; NULL: none */
    bool asked, seen;    /* shim_call_sees_capture */
    shim_capture_t capture;
    const alg_algorithm_t *algorithm;
    alg_call_t alg;
    bool recorded;
    alg_message_t message; /* of a taken send or receive */
};

/* Kinds of work in a group; those of one communicator run concurrently. */
typedef enum shim_use {
    SHIM_USE_FORWARDED, /* by the real NCCL */
    SHIM_USE_COLLECTIVE,
    SHIM_USE_MESSAGE,
    SHIM_USES
} shim_use_t;

static inline ncclDataType_t shim_call_type(const shim_call_t *call)
{
    return (ncclDataType_t)call->alg.type;
}

/* Bytes of a rank's larger buffer, the unit of tables and limits; without a communicator, bytes of one block. The type
 * must be valid. */
static inline uint64_t shim_call_bytes(const shim_call_t *call)
{
    uint64_t bytes = call->alg.count * alg_type_bytes(call->alg.type);
    if (call->comm != NULL && call->collective < ALG_COLLECTIVE_COUNT)
        bytes *= alg_collective_blocks((alg_collective_t)call->collective, call->comm->nranks);
    return bytes;
}

static inline bool shim_call_reduces(const shim_call_t *call)
{
    return call->collective < ALG_COLLECTIVE_COUNT && alg_collective_reduces((alg_collective_t)call->collective);
}

static inline bool shim_call_is_message(const shim_call_t *call)
{
    return (call->collective == SHIM_SEND || call->collective == SHIM_RECV) && call->more == NULL;
}

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
