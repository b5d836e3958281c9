/* SPDX-License-Identifier: Apache-2.0 */
/* handle.c - handles: the memory for a dispatch's routes, which its combine reads, and the choices of the next calls.
 * As in NVIDIA's library the choices' pointer is kept, not the choices. */
#include <stdlib.h>

#include "shim/base/log.h"
#include "shim/experts/check.h"

enum { ROUTES_ALIGNMENT = 256 };

static size_t bytes_of(const shim_experts_group_t *group, uint32_t top_k)
{
    return alg_experts_routes_bytes(&group->shape, top_k) + ROUTES_ALIGNMENT - 1; /* for memory of any alignment */
}

static ncclResult_t check_top_k(const shim_experts_group_t *group, int top_k)
{
    if (top_k >= 1 && (uint32_t)top_k <= group->shape.most_top_k)
        return ncclSuccess;
    return shim_experts_refuse(ncclInvalidArgument, "ncclEpInitHandle: top_k is %d, not 1 to %u", top_k,
                               group->shape.most_top_k);
}

ncclResult_t shim_experts_handle_bytes(shim_experts_group_t *group, int top_k, size_t *bytes)
{
    ncclResult_t result = check_top_k(group, top_k);
    if (result == ncclSuccess)
        *bytes = bytes_of(group, (uint32_t)top_k);
    return result;
}

static ncclResult_t own_memory(shim_experts_handle_t *handle, size_t bytes)
{
    const int error = handle->group->ops->memory(handle->group, &handle->memory, bytes);
    if (!error && handle->memory)
        return ncclSuccess;
    handle->memory = NULL;
    return shim_experts_refuse(ncclUnhandledCudaError,
                               "ncclEpInitHandle: no memory for a handle: %zu bytes, CUDA error %d", bytes, error);
}

static ncclResult_t callers_memory(const shim_experts_group_t *group, const ncclEpTensor_t *tensor, size_t bytes,
                                   void **memory)
{
    const size_t has = tensor->ndim == 1 && tensor->sizes ? tensor->sizes[0] : 0;
    const shim_experts_want_t want = {
        .name = "ncclEpInitHandle: handle_mem", .type = ncclUint8, .ndim = 1, .sizes = {has}};
    if (has < bytes)
        return shim_experts_refuse(ncclInvalidArgument,
                                   "ncclEpInitHandle: handle_mem has %zu bytes in one dimension, needed are %zu "
                                   "(ncclEpHandleMemSize)",
                                   has, bytes);
    return shim_experts_tensor(group, tensor, &want, memory);
}

static ncclResult_t take_memory(shim_experts_handle_t *handle, const ncclEpTensor_t *tensor)
{
    const size_t bytes = bytes_of(handle->group, handle->top_k);
    void *memory = NULL;
    ncclResult_t result = tensor ? callers_memory(handle->group, tensor, bytes, &memory) : own_memory(handle, bytes);
    if (result != ncclSuccess)
        return result;
    const uintptr_t at = (uintptr_t)(tensor ? memory : handle->memory);
    handle->routes = (void *)((at + ROUTES_ALIGNMENT - 1) & ~(uintptr_t)(ROUTES_ALIGNMENT - 1));
    return ncclSuccess;
}

ncclResult_t shim_experts_handle_create(shim_experts_group_t *group, ncclEpLayout_t layout, int top_k,
                                        const ncclEpTensor_t *memory, shim_experts_handle_t **handle)
{
    if (layout != NCCL_EP_LAYOUT_EXPERT_MAJOR && layout != NCCL_EP_LAYOUT_RANK_MAJOR)
        return shim_experts_refuse(ncclInvalidArgument,
                                   "ncclEpInitHandle: layout %d is not one of low latency: expert-major or rank-major",
                                   (int)layout);
    ncclResult_t result = check_top_k(group, top_k);
    if (result != ncclSuccess)
        return result;
    shim_experts_handle_t *made = calloc(1, sizeof(*made));
    if (!made)
        return shim_experts_refuse(ncclSystemError, "ncclEpInitHandle: no memory");
    made->group = group;
    made->rank_major = layout == NCCL_EP_LAYOUT_RANK_MAJOR;
    made->top_k = (uint32_t)top_k;
    result = take_memory(made, memory);
    if (result != ncclSuccess) {
        free(made);
        return result;
    }
    atomic_fetch_add(&group->references, 1);
    *handle = made;
    return ncclSuccess;
}

ncclResult_t shim_experts_handle_update(shim_experts_handle_t *handle, const ncclEpTensor_t *choices)
{
    const shim_experts_group_t *group = handle->group;
    if (!choices || choices->ndim != 2 || !choices->sizes)
        return shim_experts_refuse(ncclInvalidArgument, "ncclEpUpdateHandle: topk_idx is not a tensor [tokens][top_k]");
    const size_t tokens = choices->sizes[0];
    const bool wide = choices->datatype == ncclInt64;
    const shim_experts_want_t want = {.name = "ncclEpUpdateHandle: topk_idx",
                                      .type = wide ? ncclInt64 : ncclInt32,
                                      .ndim = 2,
                                      .sizes = {tokens, handle->top_k},
                                      .alignment = wide ? 8 : 4};
    void *data = NULL;
    if (!wide && choices->datatype != ncclInt32)
        return shim_experts_refuse(ncclInvalidArgument,
                                   "ncclEpUpdateHandle: topk_idx has type %d, not ncclInt32 or ncclInt64",
                                   (int)choices->datatype);
    if (tokens > group->shape.most_tokens)
        return shim_experts_refuse(ncclInvalidArgument,
                                   "ncclEpUpdateHandle: topk_idx has %zu tokens, more than "
                                   "max_dispatch_tokens_per_rank, %u",
                                   tokens, group->shape.most_tokens);
    ncclResult_t result = shim_experts_tensor(group, choices, &want, &data);
    if (result != ncclSuccess)
        return result;
    handle->choices = data;
    handle->tokens = (uint32_t)tokens;
    handle->wide = wide;
    handle->chosen = true;
    return ncclSuccess;
}

ncclResult_t shim_experts_handle_destroy(shim_experts_handle_t *handle)
{
    shim_experts_group_t *group = handle->group;
    pthread_mutex_lock(&group->lock);
    /* The open call's room stays taken: peers' data may still arrive, and rooms are taken in turn. */
    const bool loses = handle->is_open;
    group->lost = group->lost || loses;
    const bool failed = group->failure != ncclSuccess;
    pthread_mutex_unlock(&group->lock);
    if (loses && !failed)
        shim_warn("ncclEpHandleDestroy: the handle has a call that was sent and not completed; the group takes no "
                  "send_only calls from now on; call ncclEpComplete first");
    if (handle->memory)
        (void)group->ops->memory(group, &handle->memory, 0);
    free(handle);
    shim_experts_release(group);
    return ncclSuccess;
}
