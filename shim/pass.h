/*
 * pass.h - one of NCCL's calls that move data on a stream, on its way through Shunt.
 *
 * The caller fills in what the call was given, opens the pass (or begins it, if
 * Shunt has no algorithm for it), forwards it, and is done with it or closes it.
 */
#ifndef SHUNT_SHIM_PASS_H
#define SHUNT_SHIM_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/comm.h"
#include "shim/order.h"
#include "shim/real.h"
#include "shim/statistics.h"
#include "shim/trace.h"

typedef struct shim_pass {
    const char *function;
    shim_collective_t collective;
    const void *send, *recv;
    size_t count;
    ncclDataType_t type;
    const ncclRedOp_t *op; /* NULL: the call has none */
    const int *root;       /* likewise; a peer is checked as a root is */
    ncclComm_t handle;
    void *stream;
    uint64_t start_ns; /* 0: there is no trace */

    shim_comm_t *comm;  /* retained; NULL if Shunt does not know the handle */
    bool attached;      /* on a GPU */
    bool ordered;       /* the stream waits for the communicator's last call */
    int reason;         /* for forwarding; a sel_reason_t or shim_reason_t */
    const char *source; /* of the rule that was asked; NULL: none */
    ncclResult_t refusal;
    shim_capture_t capture;
} shim_pass_t;

/* Find the communicator, and settle its set-up if that is pending. */
void shim_pass_open(shim_pass_t *pass);
/* The real NCCL to forward to; NULL: the call is refused, and pass->refusal is the answer. No lock is
 * held while it is forwarded. */
const shim_real_t *shim_pass_forward(shim_pass_t *pass);
/* Both, for a call that Shunt has no algorithm for. Host mode refuses it, after its arguments were checked. */
const shim_real_t *shim_pass_begin(shim_pass_t *pass);
/* After the real NCCL's answer, or the refusal: closed, and what the program gets. */
ncclResult_t shim_pass_done(shim_pass_t *pass, ncclResult_t result);
/* The end of a pass that was not forwarded. Returns result. */
ncclResult_t shim_pass_close(shim_pass_t *pass, ncclResult_t result);

/* The body of a function that is forwarded, whose parameters are called as NCCL calls them. */
#define SHIM_PASS(name, which, from, to, how_many, operator, rank) \
    shim_pass_t pass = {.function = #name,                         \
                        .collective = which,                       \
                        .send = from,                              \
                        .recv = to,                                \
                        .count = how_many,                         \
                        .type = datatype,                          \
                        .op = operator,                            \
                        .root = rank,                              \
                        .handle = comm,                            \
                        .stream = stream,                          \
                        .start_ns = shim_trace_begin()};           \
    const shim_real_t *real = shim_pass_begin(&pass)

#define SHIM_PASS_ON(name, ...) return shim_pass_done(&pass, real == NULL ? pass.refusal : real->name(__VA_ARGS__))

#endif
