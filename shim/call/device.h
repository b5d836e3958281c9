/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - what differs between devices in calls. */
#ifndef SHUNT_SHIM_CALL_DEVICE_H
#define SHUNT_SHIM_CALL_DEVICE_H

#include "shim/call/call.h"

typedef struct shim_call_ops {
    ncclResult_t (*make)(shim_call_t *call);
    /* For the trace: 1, 0; -1: unknown. */
    int (*captured)(const shim_call_t *call, ncclResult_t result);
    ncclResult_t (*group_end)(ncclSimInfo_t *info);
    /* See api/nccl.h. */
    const shim_real_t *(*nccl)(void);
    ncclResult_t (*answer)(ncclResult_t result);
    shim_comm_t *(*comm)(ncclComm_t handle);
} shim_call_ops_t;

extern const shim_call_ops_t shim_call_cuda, shim_call_cpu;

/* Of the communicator's device; NULL: the process's. */
const shim_call_ops_t *shim_call_ops(const shim_comm_t *comm);

#endif
