/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.h - one of NCCL's calls that put work on a stream, from its entry point to its launch.
 * The steps of its way share it.
 */
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
    /* From the entry point. In `alg` that is the buffers, count, type (any number that the program gave) and root
     * (likewise; or the peer). */
    const char *function; /* static */
    uint32_t collective;  /* an alg_collective_t, SHIM_SEND or SHIM_RECV */
    ncclResult_t (*forward)(const shim_real_t *real, const shim_call_t *call); /* the same to the real NCCL */
    const void *more; /* what `forward` needs beyond the rest. Such a call is never taken, and so never queued */
    ncclRedOp_t op;
    ncclComm_t handle;
    void *stream;

    /* On the way. */
    uint64_t start_ns;  /* 0: there is no trace */
    shim_comm_t *comm;  /* retained; NULL if Shunt does not know the handle */
    bool attached;      /* on a GPU */
    bool ordered;       /* forwarded: the stream waits for the communicator's last call */
    int reason;         /* for forwarding; a sel_reason_t or shim_reason_t */
    const char *source; /* of the rule that was asked; NULL: none */
    shim_capture_t capture;
    const alg_algorithm_t *algorithm; /* that takes it */
    alg_call_t alg;
    alg_message_t message; /* of a send or receive that is taken */
};

/* Whose work a stream has in a group. Of one communicator the three run beside one another. */
typedef enum shim_use {
    SHIM_USE_FORWARDED, /* the real NCCL's */
    SHIM_USE_COLLECTIVE,
    SHIM_USE_MESSAGE,
    SHIM_USES
} shim_use_t;

static inline ncclDataType_t shim_call_type(const shim_call_t *call)
{
    return (ncclDataType_t)call->alg.type;
}

/* Of the larger buffer of a rank, as all sizes in tables and limits; of a block where the ranks are not known. The type
 * is one. */
static inline uint64_t shim_call_bytes(const shim_call_t *call)
{
    uint64_t bytes = call->alg.count * alg_type_bytes(call->alg.type);
    if (call->comm != NULL && call->collective < ALG_COLLECTIVE_COUNT)
        bytes *= alg_collective_blocks((alg_collective_t)call->collective, call->comm->nranks);
    return bytes;
}

/* A send or a receive, of those that Shunt has an algorithm for. */
static inline bool shim_call_is_message(const shim_call_t *call)
{
    return (call->collective == SHIM_SEND || call->collective == SHIM_RECV) && call->more == NULL;
}

/* For the statistics. */
shim_place_t shim_call_place(const shim_call_t *call);

#endif
