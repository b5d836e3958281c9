/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.c - ncclEpTensorAlloc and ncclEpTensorDestroy, for all groups, served or forwarded.
 *
 * An allocated descriptor has the form that NVIDIA's library gives its own, since forwarded calls hand it over as it
 * is: another magic word, and in front of the descriptor a copy of the pointer to the sizes, by which a call sees that
 * the caller has replaced that pointer. The array of sizes follows the descriptor, in the same piece of memory.
 */
#include "shim/ep/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "shim/ep/decode.h"
#include "shim/ep/names.h"

#define ALLOCATED 0xBEEFBEEFu /* the magic word */

typedef struct allocated {
    size_t *sizes; /* as tensor.sizes must be */
    ncclEpTensor_t tensor;
    size_t size[];
} allocated_t;

static_assert(offsetof(allocated_t, tensor) == sizeof(size_t *), "NVIDIA's calls look for the copy in front");

static allocated_t *allocated_of(const ncclEpTensor_t *tensor)
{
    return (allocated_t *)((char *)(uintptr_t)tensor - offsetof(allocated_t, tensor));
}

static bool is_allocated(const ncclEpTensor_t *tensor)
{
    return tensor->size >= NCCL_EP_TENSOR_V1 && tensor->magic == ALLOCATED &&
           allocated_of(tensor)->sizes == tensor->sizes && tensor->sizes == allocated_of(tensor)->size;
}

bool shim_ep_tensor_is_valid(const ncclEpTensor_t *tensor)
{
    return (tensor->size >= NCCL_EP_TENSOR_V1 && tensor->magic == NCCL_EP_TENSOR_MAGIC) || is_allocated(tensor);
}

ncclResult_t ncclEpTensorAlloc(ncclEpTensor_t **tensor, unsigned int ndim, ncclDataType_t datatype, const size_t *sizes,
                               const ncclEpTensorAllocConfig_t *config)
{
    ncclEpTensorAllocConfig_t taken;
    if (!shim_ep_take_TensorAllocConfig(&taken, config) || !tensor || !sizes || ndim == 0)
        return ncclInvalidArgument;
    allocated_t *made = calloc(1, sizeof(*made) + ndim * sizeof(*made->size));
    if (!made)
        return ncclSystemError;
    memcpy(made->size, sizes, ndim * sizeof(*sizes));
    made->sizes = made->size;
    made->tensor = (ncclEpTensor_t){
        .size = sizeof(made->tensor), .magic = ALLOCATED, .ndim = ndim, .datatype = datatype, .sizes = made->size};
    *tensor = &made->tensor;
    return ncclSuccess;
}

ncclResult_t ncclEpTensorDestroy(ncclEpTensor_t *tensor)
{
    if (!tensor)
        return ncclSuccess;
    if (!is_allocated(tensor))
        return ncclInvalidArgument;
    tensor->magic = 0; /* a second destruction is refused, as long as the memory is not used again */
    free(allocated_of(tensor));
    return ncclSuccess;
}
