/* SPDX-License-Identifier: Apache-2.0 */
/* comm_ask.c - entry points that query a communicator. */
#include "shim/api/nccl.h"
#include "shim/base/device.h"
#include "shim/comm/drain.h"
#include "shim/comm/failure.h"
#include "shim/comm/order.h"
#include "shim/setup/attach.h"

static ncclResult_t own_error(shim_comm_t *comm)
{
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    int phase = atomic_load(&comm->phase);
    if (error != ncclSuccess || phase != SHIM_COMM_ATTACHED)
        return error;
    uint32_t status = __atomic_load_n(&alg_scratch_control(comm->scratch)->status, __ATOMIC_ACQUIRE);
    if (status == ALG_STATUS_OK)
        return ncclSuccess;
    shim_comm_fail_call(comm, status);
    return ncclRemoteError;
}

static unsigned long long pending_of(ncclComm_t comm)
{
    shim_comm_t *state = shim_nccl_comm(comm);
    const unsigned long long number = state ? shim_order_pending(state) : 0;
    shim_comm_release(state);
    return number;
}

SHIM_PUBLIC(ncclCommGetAsyncError);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    const unsigned long long late = pending_of(comm);
    ncclResult_t result = shim_nccl()->ncclCommGetAsyncError(comm, asyncError);
    if (result != ncclSuccess || !asyncError || shim_cpu_mode())
        return result;
    bool ready = *asyncError == ncclSuccess;
    if (!ready && *asyncError != ncclInProgress)
        shim_attach_cancel(comm);
    /* Advance all pending set-ups: another rank of this thread may wait for one of them. */
    bool pending = shim_attach_poll(ready ? comm : NULL);
    if (!ready)
        return ncclSuccess;
    if (pending) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    shim_comm_t *state = shim_nccl_comm(comm);
    if (state) {
        shim_order_record_pending(state, late);
        *asyncError = own_error(state);
        if (*asyncError == ncclSuccess && atomic_load(&state->finalized) && !shim_drained(state))
            *asyncError = ncclInProgress;
        shim_comm_release(state);
    }
    return ncclSuccess;
}

SHIM_PUBLIC(ncclCommCount);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return shim_nccl_answer(shim_nccl()->ncclCommCount(comm, count));
}

SHIM_PUBLIC(ncclCommCuDevice);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return shim_nccl_answer(shim_nccl()->ncclCommCuDevice(comm, device));
}

SHIM_PUBLIC(ncclCommUserRank);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return shim_nccl_answer(shim_nccl()->ncclCommUserRank(comm, rank));
}
