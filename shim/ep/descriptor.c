/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/ep/descriptor.h"

#include "shim/ep/log.h"

shim_ep_allocated_t *shim_ep_allocated(const ncclEpTensor_t *tensor)
{
    return (shim_ep_allocated_t *)((uintptr_t)tensor - offsetof(shim_ep_allocated_t, tensor));
}

bool shim_ep_is_allocated(const ncclEpTensor_t *tensor)
{
    return tensor->size >= NCCL_EP_TENSOR_V1 && tensor->magic == SHIM_EP_ALLOCATED &&
           tensor->sizes == shim_ep_allocated(tensor)->size;
}

bool shim_ep_tensor_is_valid(const char *where, const ncclEpTensor_t *tensor)
{
    if ((tensor->size >= NCCL_EP_TENSOR_V1 && tensor->magic == NCCL_EP_TENSOR_MAGIC) || shim_ep_is_allocated(tensor))
        return true;
    if (tensor->size >= NCCL_EP_TENSOR_V1 && tensor->magic == SHIM_EP_ALLOCATED)
        shim_ep_warn("%s: the pointer to the sizes of a tensor of ncclEpTensorAlloc was replaced: the call returns "
                     "ncclInvalidArgument; change the sizes in place",
                     where);
    else
        shim_ep_warn("%s: a tensor has size %u and magic word 0x%x, not a size of at least %zu and 0x%x: the call "
                     "returns ncclInvalidArgument; set both as nccl_ep.h says, or use ncclEpTensorAlloc",
                     where, tensor->size, tensor->magic, (size_t)NCCL_EP_TENSOR_V1, NCCL_EP_TENSOR_MAGIC);
    return false;
}
