/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.h - descriptors of tensors: those that the caller made, and those of ncclEpTensorAlloc.
 */
#ifndef SHUNT_SHIM_EP_TENSOR_H
#define SHUNT_SHIM_EP_TENSOR_H

#include <stdbool.h>

#include "shim/experts/nccl_ep.h"

/* Whether size and magic word are right, and an allocated one still has its own array of sizes. */
bool shim_ep_tensor_is_valid(const ncclEpTensor_t *tensor);

#endif
