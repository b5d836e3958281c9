/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.h - descriptors of tensors: the caller's own, and those of ncclEpTensorAlloc. The latter have the form of
 * NVIDIA's, for forwarded calls: another magic word, and in front of the descriptor a copy of the pointer to the sizes,
 * which shows whether the caller has replaced that pointer. The sizes follow the descriptor in the same allocation. */
#ifndef SHUNT_SHIM_EP_DESCRIPTOR_H
#define SHUNT_SHIM_EP_DESCRIPTOR_H

#include <stdbool.h>

#include "shim/experts/nccl_ep.h"

#define SHIM_EP_ALLOCATED 0xBEEFBEEFu /* the magic word */

typedef struct shim_ep_allocated {
    size_t *sizes; /* tensor.sizes must equal it; NVIDIA's calls read it */
    ncclEpTensor_t tensor;
    size_t size[];
} shim_ep_allocated_t;

static_assert(offsetof(shim_ep_allocated_t, tensor) == sizeof(size_t *), "NVIDIA's calls look for the copy in front");

/* The allocation of a tensor of ncclEpTensorAlloc. */
shim_ep_allocated_t *shim_ep_allocated(const ncclEpTensor_t *tensor);
/* Whether ncclEpTensorAlloc made it, with its pointer to the sizes unchanged. */
bool shim_ep_is_allocated(const ncclEpTensor_t *tensor);
/* Whether size and magic word are right; else a log line says what is wrong. `where` names the tensor's place. */
bool shim_ep_tensor_is_valid(const char *where, const ncclEpTensor_t *tensor);

#endif
