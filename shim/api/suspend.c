/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspend.c - ncclCommSuspend and ncclCommResume (NCCL 2.29.7).
 *
 * A suspended communicator must not be used. Shunt forwards calls on it, and the real NCCL refuses them. Shunt's
 * scratch stays, since its peers have it mapped.
 */
#include "shim/api/nccl.h"

/* The real NCCL's answer. */
static ncclResult_t answered(ncclComm_t comm, bool suspended, ncclResult_t result)
{
    shim_comm_t *state = shim_is_error(shim_nccl_answer(result)) ? NULL : shim_nccl_comm(comm);
    if (state)
        atomic_store(&state->suspended, suspended);
    shim_comm_release(state);
    return result;
}

SHIM_PUBLIC(ncclCommSuspend);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    const shim_real_t *nccl = shim_nccl("ncclCommSuspend");
    return nccl ? answered(comm, true, nccl->ncclCommSuspend(comm, flags)) : ncclSystemError;
}

SHIM_PUBLIC(ncclCommResume);
ncclResult_t ncclCommResume(ncclComm_t comm)
{
    const shim_real_t *nccl = shim_nccl("ncclCommResume");
    return nccl ? answered(comm, false, nccl->ncclCommResume(comm)) : ncclSystemError;
}
