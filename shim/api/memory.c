/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - ncclMemAlloc, ncclMemFree and buffer registration. On GPUs they are only forwarded. */
#include "shim/api/nccl.h"

SHIM_PUBLIC(ncclMemAlloc);
ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    const shim_real_t *nccl = shim_nccl("ncclMemAlloc");
    return nccl ? shim_nccl_answer(nccl->ncclMemAlloc(ptr, size)) : ncclSystemError;
}

SHIM_PUBLIC(ncclMemFree);
ncclResult_t ncclMemFree(void *ptr)
{
    const shim_real_t *nccl = shim_nccl("ncclMemFree");
    return nccl ? shim_nccl_answer(nccl->ncclMemFree(ptr)) : ncclSystemError;
}

SHIM_PUBLIC(ncclCommRegister);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    const shim_real_t *nccl = shim_nccl("ncclCommRegister");
    return nccl ? shim_nccl_answer(nccl->ncclCommRegister(comm, buff, size, handle)) : ncclSystemError;
}

SHIM_PUBLIC(ncclCommDeregister);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    const shim_real_t *nccl = shim_nccl("ncclCommDeregister");
    return nccl ? shim_nccl_answer(nccl->ncclCommDeregister(comm, handle)) : ncclSystemError;
}
