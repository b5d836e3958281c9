/*
 * call.h - one of NCCL's calls that put work on a stream, from its entry point to its launch.
 *
 * The entry point fills in what it was given and makes the call. Shunt's own
 * algorithms are asked first; what they do not take is forwarded, in order with
 * what they did take.
 */
#ifndef SHUNT_SHIM_CALL_H
#define SHUNT_SHIM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/account/statistics.h"
#include "shim/call/order.h"
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
};

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

static inline ncclDataType_t shim_call_type(const shim_call_t *call)
{
    return (ncclDataType_t)call->alg.type;
}

/* Of the larger buffer of a rank, as all sizes in tables and limits; of a block where the ranks are not known. The type
 * is one. */
uint64_t shim_call_bytes(const shim_call_t *call);
/* For the statistics. */
shim_place_t shim_call_place(const shim_call_t *call);
/* No buffer that the collective uses on this rank is NULL. */
bool shim_call_has_buffers(const shim_call_t *call);

#endif
