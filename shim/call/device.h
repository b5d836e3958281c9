/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - what differs between devices in calls. */
#ifndef SHUNT_SHIM_CALL_DEVICE_H
#define SHUNT_SHIM_CALL_DEVICE_H

#include "shim/call/call.h"

typedef struct shim_call_ops {
    ncclResult_t (*make)(shim_call_t *call);
    /* For the trace: 1, 0; -1: unknown. */
    int (*captured)(shim_call_t *call, ncclResult_t result);
    ncclResult_t (*group_end)(ncclSimInfo_t *info);
    /* See api/nccl.h. */
    const shim_real_t *(*nccl)(void);
    ncclResult_t (*answer)(ncclResult_t result);
    shim_comm_t *(*comm)(ncclComm_t handle);
} shim_call_ops_t;

extern const shim_call_ops_t shim_call_cuda, shim_call_cpu;

/* Of the communicator's device; NULL: the process's. */
const shim_call_ops_t *shim_call_ops(const shim_comm_t *comm);

/* Gives a call on CUDA to the real NCCL. */
ncclResult_t shim_call_forward(shim_call_t *call);

/* Steps of a call. Whether all buffers that this rank uses are set. */
bool shim_call_has_buffers(const shim_call_t *call);
/* True if the call is certainly valid and not an empty collective. */
bool shim_call_set(shim_call_t *call);
/* Sets call->capture; false: CUDA cannot tell. Asks once a call: a capture begins and ends between calls. */
bool shim_call_sees_capture(shim_call_t *call);
/* If no algorithm is chosen, call->reason says why. */
sel_choice_t shim_call_choose(shim_call_t *call);
/* Whether all ranks have the scratch that the call needs; may wait for it (grow.h). */
bool shim_call_has_memory(shim_call_t *call);
shim_place_t shim_call_place(const shim_call_t *call);
void shim_call_list(shim_call_t *call);
bool shim_call_begin_range(const shim_call_t *call);

#endif
