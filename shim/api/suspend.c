/* SPDX-License-Identifier: Apache-2.0 */
/* suspend.c - ncclCommSuspend and ncclCommResume (NCCL 2.29.7). The real NCCL refuses a suspended communicator's calls,
 * so Shunt forwards them. Shunt frees its scratch and makes it again with NCCL's memory, at the same addresses
 * (grow.h). */
#include "shim/api/nccl.h"
#include "shim/base/last_error.h"
#include "shim/comm/grow.h"

SHIM_PUBLIC(ncclCommSuspend);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    const ncclResult_t result = shim_nccl()->ncclCommSuspend(comm, flags);
    const bool suspends = !shim_is_error(shim_nccl_answer(result)) && (flags & SHIM_SUSPEND_MEMORY);
    shim_comm_t *state = suspends ? shim_comm_acquire(comm) : NULL;
    if (state) {
        atomic_store(&state->suspended, true);
        shim_grow_suspend(state);
    }
    shim_comm_release(state);
    return result;
}

SHIM_PUBLIC(ncclCommResume);
ncclResult_t ncclCommResume(ncclComm_t comm)
{
    ncclResult_t result = shim_nccl()->ncclCommResume(comm);
    shim_comm_t *state = shim_is_error(shim_nccl_answer(result)) ? NULL : shim_comm_acquire(comm);
    if (state && !shim_grow_resume(state)) {
        shim_set_last_error("ncclCommResume: Shunt could not restore its memory; do not launch graphs with calls on "
                            "this communicator");
        result = ncclSystemError;
    }
    shim_comm_release(state);
    return result;
}
