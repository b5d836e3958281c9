/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - the launch of a call that was taken.
 */
#ifndef SHUNT_SHIM_LAUNCH_H
#define SHUNT_SHIM_LAUNCH_H

#include "shim/call/call.h"

/* A taken call about to be launched. */
typedef struct shim_launch {
    shim_comm_t *comm;
    const alg_algorithm_t *algorithm;
    const alg_call_t *call;
    void *stream;
    const shim_capture_t *capture;
    uint32_t beside; /* room (share.h) of the communicator's calls that run at the same time; 0: there are none */
    bool joined;     /* its group orders it on the communicator */
} shim_launch_t;

/* On GPUs. The communicator's device is current, its lock is held. Once a launch was tried there is no way back: an
 * error ends the communicator. */
ncclResult_t shim_launch(const shim_launch_t *launch);
/* Log a failed CUDA call of ours; returns NCCL's error for it. */
ncclResult_t shim_launch_failed(int error, const char *what);

/* Run one call of an attached communicator to its end in this thread, watched: the death of a peer, an
 * abort or the time limit end it, set the communicator's async error and give ncclRemoteError. */
ncclResult_t shim_host_run(const shim_call_t *call);

#endif
