/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - whether a call's tensors are valid, and the kernels' view of them. For this folder only. NVIDIA's library
 * ends the program if they are not; here the call fails before a launch. Each function logs one line and returns what
 * the call returns. */
#ifndef SHUNT_SHIM_EXPERTS_CHECK_H
#define SHUNT_SHIM_EXPERTS_CHECK_H

#include "shim/experts/group.h"

/* A required tensor; `ndim` sizes. */
typedef struct shim_experts_want {
    const char *name;
    ncclDataType_t type;
    unsigned int ndim;
    size_t sizes[3];
    size_t alignment;
} shim_experts_want_t;

/* *data is NULL only for a tensor without elements. The real NCCL finds the address of a tensor in a window. */
ncclResult_t shim_experts_tensor(const shim_experts_group_t *group, const ncclEpTensor_t *tensor,
                                 const shim_experts_want_t *want, void **data);
/* Bytes of an element; 0: unknown. */
size_t shim_experts_type_bytes(ncclDataType_t type);

/* Fill in `call`, except phases, room, blocks and id. */
ncclResult_t shim_experts_check_dispatch(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                         const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                                         const ncclEpDispatchConfig_t *config, alg_experts_call_t *call);
ncclResult_t shim_experts_check_combine(const shim_experts_handle_t *handle, const ncclEpCombineInputs_t *inputs,
                                        const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                                        alg_experts_call_t *call);

#endif
