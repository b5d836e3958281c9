/* SPDX-License-Identifier: Apache-2.0 */
/* launch.h - launches taken calls. */
#ifndef SHUNT_SHIM_LAUNCH_H
#define SHUNT_SHIM_LAUNCH_H

#include "shim/call/call.h"

typedef struct shim_launch {
    shim_comm_t *comm;
    const alg_algorithm_t *algorithm;
    const alg_call_t *call;
    void *stream;
    const shim_capture_t *capture;
    uint32_t beside; /* room (share.c) of the communicator's concurrent call; 0: none */
    bool joined;     /* the group orders the call */
} shim_launch_t;

/* On GPUs, under the communicator's lock, with its device current. An error ends the communicator: kernels may have
 * launched. */
ncclResult_t shim_launch(const shim_launch_t *launch);
/* Logs a failed CUDA call; returns NCCL's error. */
ncclResult_t shim_launch_failed(int error, const char *what);
/* The ranks and memory that a call's kernel sees. */
alg_team_t shim_launch_team(const shim_comm_t *comm, const alg_algorithm_t *algorithm, const alg_call_t *call);

#endif
