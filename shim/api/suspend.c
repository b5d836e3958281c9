/*
 * suspend.c - ncclCommSuspend and ncclCommResume (NCCL 2.29.7).
 *
 * Between the two a communicator must not be used. Shunt takes no calls on it
 * then: the real NCCL tells who makes one. Shunt's scratch stays where it is,
 * for its peers have it mapped.
 */
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/comm/comm.h"
#include "shim/names/names.h"
#include "shim/real/real.h"

/* NULL: there is nobody to ask, and *result is the answer. */
static const shim_real_t *real_or(const char *function, ncclResult_t *result)
{
    *result = ncclInvalidUsage;
    if (shim_host_mode()) {
        shim_real_say_missing(function);
        return NULL;
    }
    const shim_real_t *real = shim_real();
    if (!real)
        shim_set_last_error("%s: %s", function, shim_real_failure());
    return real;
}

/* The real NCCL's answer. */
static ncclResult_t answered(ncclComm_t comm, bool suspended, ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress) {
        shim_set_last_error("%s", ""); /* its text is the last now */
        return result;
    }
    shim_comm_t *state = shim_comm_acquire(comm);
    if (state)
        atomic_store(&state->suspended, suspended);
    shim_comm_release(state);
    return result;
}

SHIM_PUBLIC(ncclCommSuspend);
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    ncclResult_t result;
    const shim_real_t *real = real_or("ncclCommSuspend", &result);
    return real ? answered(comm, true, real->ncclCommSuspend(comm, flags)) : result;
}

SHIM_PUBLIC(ncclCommResume);
ncclResult_t ncclCommResume(ncclComm_t comm)
{
    ncclResult_t result;
    const shim_real_t *real = real_or("ncclCommResume", &result);
    return real ? answered(comm, false, real->ncclCommResume(comm)) : result;
}
