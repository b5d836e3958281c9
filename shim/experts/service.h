/* SPDX-License-Identifier: Apache-2.0 */
/* service.h - the experts' calls that libnccl.so.2 serves for libnccl_ep.so.0 (docs/lab/experts.md), of the same
 * version. Functions return what NCCL's function of that name returns, and log one line for each error. The caller has
 * checked sizes and magic words: structures are complete, with defaults where the program set nothing. */
#ifndef SHUNT_SHIM_EXPERTS_SERVICE_H
#define SHUNT_SHIM_EXPERTS_SERVICE_H

#include "shim/experts/nccl_ep.h"

enum { SHIM_EXPERTS_VERSION = 1 };

typedef struct shim_experts_group shim_experts_group_t;
typedef struct shim_experts_handle shim_experts_handle_t;

typedef struct shim_experts_service {
    uint32_t version;
    /* Collective. All ranks agree whether the group is served; if not, *group is NULL and *why a text that lives as
     * long as the process. An error is a failure of this rank alone. */
    ncclResult_t (*create)(ncclComm_t comm, const ncclEpGroupConfig_t *config, shim_experts_group_t **group,
                           const char **why);
    /* Local. Destroy the group's handles first. */
    ncclResult_t (*destroy)(shim_experts_group_t *group);
    ncclResult_t (*handle_bytes)(shim_experts_group_t *group, int top_k, size_t *bytes);
    /* Local. memory: NULL, or the caller's. */
    ncclResult_t (*handle_create)(shim_experts_group_t *group, ncclEpLayout_t layout, int top_k,
                                  const ncclEpTensor_t *memory, shim_experts_handle_t **handle);
    ncclResult_t (*handle_update)(shim_experts_handle_t *handle, const ncclEpTensor_t *choices);
    ncclResult_t (*handle_destroy)(shim_experts_handle_t *handle);
    ncclResult_t (*dispatch)(shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                             const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                             const ncclEpDispatchConfig_t *config, cudaStream_t stream);
    ncclResult_t (*combine)(shim_experts_handle_t *handle, const ncclEpCombineInputs_t *inputs,
                            const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                            cudaStream_t stream);
    ncclResult_t (*complete)(shim_experts_handle_t *handle, cudaStream_t stream);
} shim_experts_service_t;

#define SHIM_EXPERTS_CALLS(CALL) \
    CALL(create)                 \
    CALL(destroy)                \
    CALL(handle_bytes)           \
    CALL(handle_create)          \
    CALL(handle_update)          \
    CALL(handle_destroy)         \
    CALL(dispatch)               \
    CALL(combine)                \
    CALL(complete)

/* Exported by libnccl.so.2. NULL for another version. */
const shim_experts_service_t *shuntExperts(uint32_t version);

#endif
