/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c - handles: the routes of a group's tokens. A served handle follows nccl_ep's rules of low latency: a layout
 * by expert or by rank, a positive top_k, no layout information. */
#include <limits.h>

#include "shim/ep/decode.h"
#include "shim/ep/descriptor.h"
#include "shim/ep/names.h"
#include "shim/ep/object.h"

static bool has_low_latency(ncclEpLayout_t layout, int top_k)
{
    return (layout == NCCL_EP_LAYOUT_EXPERT_MAJOR || layout == NCCL_EP_LAYOUT_RANK_MAJOR) && top_k > 0;
}

ncclResult_t ncclEpHandleMemSize(ncclEpGroup_t group, ncclEpLayout_t layout, const ncclEpHandleConfig_t *config,
                                 size_t *bytes, int top_k)
{
    ncclEpHandleConfig_t taken;
    size_t needed = 0;
    if (!shim_ep_group_is_valid(group))
        return ncclInvalidArgument;
    if (!group->service)
        return shim_ep_real()->HandleMemSize(group->real, layout, config, bytes, top_k);
    if (!shim_ep_take_HandleConfig(&taken, config) || !bytes || !has_low_latency(layout, top_k))
        return ncclInvalidArgument;
    const ncclResult_t result = group->service->handle_bytes(group->served, top_k, &needed);
    if (result == ncclSuccess)
        *bytes = needed;
    return result;
}

static ncclResult_t init_served(ncclEpHandle_t handle, ncclEpLayout_t layout, const ncclEpHandleConfig_t *config,
                                int top_k, const ncclEpTensor_t *memory)
{
    ncclEpHandleConfig_t taken;
    ncclEpGroup_t group = handle->group;
    if (!shim_ep_take_HandleConfig(&taken, config) || !has_low_latency(layout, top_k) ||
        (memory && !shim_ep_tensor_is_valid("handle_mem", memory)))
        return ncclInvalidArgument;
    return group->service->handle_create(group->served, layout, top_k, memory, &handle->served);
}

ncclResult_t ncclEpInitHandle(ncclEpHandle_t *handle, ncclEpGroup_t group, ncclEpLayout_t layout,
                              const ncclEpHandleConfig_t *config, int top_k, const ncclEpTensor_t *memory)
{
    if (!handle || !shim_ep_group_is_valid(group))
        return ncclInvalidArgument;
    ncclEpHandle_t made = shim_ep_handle_make(group);
    if (!made)
        return ncclSystemError;
    const ncclResult_t result =
        group->service ? init_served(made, layout, config, top_k, memory)
                       : shim_ep_real()->InitHandle(&made->real, group->real, layout, config, top_k, memory);
    if (result == ncclSuccess)
        *handle = made;
    else
        shim_ep_handle_end(made);
    return result;
}

ncclResult_t ncclEpUpdateHandle(ncclEpHandle_t handle, const ncclEpTensor_t *choices, const ncclEpLayoutInfo_t *layout,
                                cudaStream_t stream)
{
    if (!shim_ep_handle_is_valid(handle))
        return ncclInvalidArgument;
    if (!handle->group->service)
        return shim_ep_real()->UpdateHandle(handle->real, choices, layout, stream);
    if (!choices || !shim_ep_tensor_is_valid("topk_idx", choices) || layout)
        return ncclInvalidArgument;
    return handle->group->service->handle_update(handle->served, choices);
}

static ncclResult_t create_served(ncclEpHandle_t handle, ncclEpLayout_t layout, const ncclEpTensor_t *choices,
                                  const ncclEpHandleConfig_t *config)
{
    if (!choices || !shim_ep_tensor_is_valid("topk_idx", choices) || choices->ndim != 2 || !choices->sizes ||
        choices->sizes[1] > INT_MAX)
        return ncclInvalidArgument;
    ncclResult_t result = init_served(handle, layout, config, (int)choices->sizes[1], NULL);
    if (result != ncclSuccess)
        return result;
    const shim_experts_service_t *service = handle->group->service;
    result = service->handle_update(handle->served, choices);
    if (result != ncclSuccess)
        service->handle_destroy(handle->served);
    return result;
}

ncclResult_t ncclEpCreateHandle(ncclEpHandle_t *handle, ncclEpGroup_t group, ncclEpLayout_t layout,
                                const ncclEpTensor_t *choices, const ncclEpLayoutInfo_t *info,
                                const ncclEpHandleConfig_t *config, cudaStream_t stream)
{
    if (!handle || !shim_ep_group_is_valid(group) || (group->service && info))
        return ncclInvalidArgument;
    ncclEpHandle_t made = shim_ep_handle_make(group);
    if (!made)
        return ncclSystemError;
    const ncclResult_t result =
        group->service ? create_served(made, layout, choices, config)
                       : shim_ep_real()->CreateHandle(&made->real, group->real, layout, choices, info, config, stream);
    if (result == ncclSuccess)
        *handle = made;
    else
        shim_ep_handle_end(made);
    return result;
}

ncclResult_t ncclEpHandleDestroy(ncclEpHandle_t handle)
{
    if (!handle)
        return ncclSuccess;
    if (!shim_ep_handle_is_valid(handle))
        return ncclInvalidArgument;
    const shim_experts_service_t *service = handle->group->service;
    const ncclResult_t result =
        service ? service->handle_destroy(handle->served) : shim_ep_real()->HandleDestroy(handle->real);
    const ncclResult_t end = shim_ep_handle_end(handle);
    return result == ncclSuccess ? end : result;
}
