/*
 * route.h - take a call or leave it: the choice, and the launch.
 */
#ifndef SHUNT_SHIM_ROUTE_H
#define SHUNT_SHIM_ROUTE_H

#include "shim/comm.h"
#include "shim/order.h"

/* An all-reduce as the application asked for it. */
typedef struct shim_request {
    const void *input;
    void *output;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
} shim_request_t;

/* CUDA, an attached communicator: launch the call, or in a group queue it. True if it was taken;
 * *result is then for the application. False: forward it; *reason says why, *source whose rule it was, if any. */
bool shim_route_take(shim_comm_t *comm, const shim_request_t *request, void *stream, ncclResult_t *result, int *reason,
                     const char **source);

/* Host mode, arguments checked: run the call to its end, or in a group queue it. */
ncclResult_t shim_route_host(shim_comm_t *comm, const shim_request_t *request);

/* Launch a call that was taken. The communicator's device is current, its lock is held. */
ncclResult_t shim_route_launch(shim_comm_t *comm, const alg_algorithm_t *algorithm, const alg_call_t *call,
                               void *stream, const shim_capture_t *capture);

/* A CUDA call of ours failed: word it, and give what NCCL gives. */
ncclResult_t shim_route_cuda_failed(int error, const char *what);

#endif
