/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - the launch of a taken call.
 */
#ifndef SHUNT_SHIM_LAUNCH_H
#define SHUNT_SHIM_LAUNCH_H

#include "shim/call/call.h"

typedef struct shim_launch {
    shim_comm_t *comm;
    const alg_algorithm_t *algorithm;
    const alg_call_t *call;
    void *stream;
    const shim_capture_t *capture;
    uint32_t beside; /* room (share.h) of the communicator's concurrent calls; 0: none */
    bool joined;     /* ordered by its group */
} shim_launch_t;

/* On GPUs, on the communicator's device and under its lock. An error ends the communicator, since a tried launch cannot
 * be taken back. */
ncclResult_t shim_launch(const shim_launch_t *launch);
/* Logs a failed CUDA call of ours; returns NCCL's error for it. */
ncclResult_t shim_launch_failed(int error, const char *what);

/* Run the call in this thread. A peer's death, an abort or the time limit end it: async error and ncclRemoteError. */
ncclResult_t shim_host_run(const shim_call_t *call);

#endif
