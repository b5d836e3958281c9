/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - ncclMemAlloc, ncclMemFree and buffer registration. On GPUs they are only forwarded. */
#include "shim/api/nccl.h"

SHIM_PUBLIC(ncclMemAlloc);
ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    return shim_nccl_answer(shim_nccl()->ncclMemAlloc(ptr, size));
}

SHIM_PUBLIC(ncclMemFree);
ncclResult_t ncclMemFree(void *ptr)
{
    return shim_nccl_answer(shim_nccl()->ncclMemFree(ptr));
}

SHIM_PUBLIC(ncclCommRegister);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    return shim_nccl_answer(shim_nccl()->ncclCommRegister(comm, buff, size, handle));
}

SHIM_PUBLIC(ncclCommDeregister);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return shim_nccl_answer(shim_nccl()->ncclCommDeregister(comm, handle));
}
