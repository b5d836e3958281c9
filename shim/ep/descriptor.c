/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.c - see descriptor.h. */
#include "shim/ep/descriptor.h"

shim_ep_allocated_t *shim_ep_allocated(const ncclEpTensor_t *tensor)
{
    return (shim_ep_allocated_t *)((uintptr_t)tensor - offsetof(shim_ep_allocated_t, tensor));
}

bool shim_ep_is_allocated(const ncclEpTensor_t *tensor)
{
    return tensor->size >= NCCL_EP_TENSOR_V1 && tensor->magic == SHIM_EP_ALLOCATED &&
           tensor->sizes == shim_ep_allocated(tensor)->size;
}

bool shim_ep_tensor_is_valid(const ncclEpTensor_t *tensor)
{
    return (tensor->size >= NCCL_EP_TENSOR_V1 && tensor->magic == NCCL_EP_TENSOR_MAGIC) || shim_ep_is_allocated(tensor);
}
