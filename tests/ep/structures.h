/* SPDX-License-Identifier: Apache-2.0 */
/* structures.h - valid arguments of nccl_ep's functions, for programs that test them. */
#ifndef SHUNT_TESTS_EP_STRUCTURES_H
#define SHUNT_TESTS_EP_STRUCTURES_H

#include "shim/experts/nccl_ep.h"

/* A structure with the head that NVIDIA's header gives it, and fields. */
#define EP(type, ...) ((type){.size = sizeof(type), .magic = NCCL_EP_MAGIC, ##__VA_ARGS__})

static inline ncclEpTensor_t ep_tensor(void *data, size_t sizes[2])
{
    return (ncclEpTensor_t){.size = sizeof(ncclEpTensor_t),
                            .magic = NCCL_EP_TENSOR_MAGIC,
                            .ndim = 2,
                            .datatype = ncclInt32,
                            .data = data,
                            .sizes = sizes};
}

/* Pointers that are passed on only. */
#define COMM ((ncclComm_t)0x3001)
#define STREAM ((cudaStream_t)0x4001)

#endif
