/*
 * route.h - take a call or leave it: the choice, and the launch.
 */
#ifndef SHUNT_SHIM_ROUTE_H
#define SHUNT_SHIM_ROUTE_H

#include "shim/call/call.h"

/* CUDA, an attached communicator: launch the call, or in a group queue it. True if it was taken;
 * *result is then for the application. False: forward it; call->reason says why, call->source whose rule it was,
 * if any. */
bool shim_route_take(shim_call_t *call, ncclResult_t *result);

/* Host mode, arguments checked, not empty: run the call to its end, or in a group queue it. */
ncclResult_t shim_route_host(shim_call_t *call);

/* A call that was taken, on its way to the device. */
typedef struct shim_launch {
    shim_comm_t *comm;
    const alg_algorithm_t *algorithm;
    const alg_call_t *call;
    void *stream;
    const shim_capture_t *capture;
    uint32_t beside; /* blocks of the communicator's calls that run at the same time; 0: there are none */
    bool joined;     /* by the group: what is before it and after it on the communicator */
} shim_launch_t;

/* The communicator's device is current, its lock is held. */
ncclResult_t shim_route_launch(const shim_launch_t *launch);

/* A CUDA call of ours failed: word it, and give what NCCL gives. */
ncclResult_t shim_route_cuda_failed(int error, const char *what);

#endif
