/*
 * memory.c - ncclMemAlloc, ncclMemFree and buffer registration.
 *
 * On GPUs all four are the real NCCL's. On the host device memory is plain
 * memory, and there is nothing to gain from registering it: a registration
 * succeeds and its handle is NULL, as NCCL's is where it has no use for one.
 */
#include <stdlib.h>

#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/call/check.h"
#include "shim/call/group.h"
#include "shim/real/real.h"

enum { ALIGNMENT = 4096 };

static const shim_real_t *real_nccl(void)
{
    const shim_real_t *real = shim_real();
    shim_set_last_error("%s", real ? "" : shim_real_failure()); /* what fails now is the real one's to word */
    return real;
}

static ncclResult_t refuse(ncclResult_t result, const char *text)
{
    shim_set_last_error("%s", text);
    return shim_group_check(result);
}

SHIM_PUBLIC(ncclMemAlloc);
ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    if (!shim_host_mode()) {
        const shim_real_t *real = real_nccl();
        return real ? real->ncclMemAlloc(ptr, size) : ncclSystemError;
    }
    if (!ptr)
        return refuse(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, size ? size : 1) != 0)
        return refuse(ncclSystemError, "ncclMemAlloc: out of memory");
    *ptr = memory;
    return ncclSuccess;
}

SHIM_PUBLIC(ncclMemFree);
ncclResult_t ncclMemFree(void *ptr)
{
    if (!shim_host_mode()) {
        const shim_real_t *real = real_nccl();
        return real ? real->ncclMemFree(ptr) : ncclSystemError;
    }
    free(ptr);
    return ncclSuccess;
}

SHIM_PUBLIC(ncclCommRegister);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    if (!shim_host_mode()) {
        const shim_real_t *real = real_nccl();
        return real ? real->ncclCommRegister(comm, buff, size, handle) : ncclSystemError;
    }
    ncclResult_t result = shim_host_check_comm(comm, "ncclCommRegister");
    if (result != ncclSuccess)
        return shim_group_check(result);
    if (!buff || !handle)
        return refuse(ncclInvalidArgument, "ncclCommRegister: buff or handle is NULL");
    *handle = NULL;
    return ncclSuccess;
}

SHIM_PUBLIC(ncclCommDeregister);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    if (!shim_host_mode()) {
        const shim_real_t *real = real_nccl();
        return real ? real->ncclCommDeregister(comm, handle) : ncclSystemError;
    }
    ncclResult_t result = shim_host_check_comm(comm, "ncclCommDeregister");
    if (result == ncclSuccess && handle)
        return refuse(ncclInvalidArgument, "ncclCommDeregister: no such registration");
    return shim_group_check(result);
}
