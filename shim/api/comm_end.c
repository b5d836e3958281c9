/* SPDX-License-Identifier: Apache-2.0 */
/* comm_end.c - entry points that end communicators. On GPUs each detaches Shunt's state and forwards without a lock,
 * since the real call may wait for other ranks, or be the abort that ends such a wait. The scratch is pooled only after
 * a clean end: kernels drained, none aborted or timed out. Peers' kernels may still access it (message credits, reads
 * of pinned memory), so the next set-up re-arms it only once all ranks have reported that their own scratch is idle.
 * After an abort it is retired (algorithms/scratch_end.c). */
#include "shim/account/trace.h"
#include "shim/api/nccl.h"
#include "shim/base/device.h"
#include "shim/call/group.h"
#include "shim/comm/drain.h"
#include "shim/comm/reap.h"
#include "shim/comm/stop.h"
#include "shim/setup/attach.h"

static bool in_good_order(shim_comm_t *comm)
{
    if (!comm->scratch || atomic_load(&comm->async_error) != ncclSuccess)
        return false;
    alg_control_t *control = alg_scratch_control(comm->scratch);
    return __atomic_load_n(&control->abort, __ATOMIC_ACQUIRE) == 0 &&
           __atomic_load_n(&control->status, __ATOMIC_ACQUIRE) == ALG_STATUS_OK;
}

SHIM_PUBLIC(ncclCommFinalize);
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    shim_comm_t *state = shim_nccl_comm(comm);
    const bool grouped = shim_group_depth() > 0;
    /* Waits for issued work, as NCCL does. Otherwise the group's end or ncclCommGetAsyncError waits. */
    if (state && state->config.blocking && !grouped)
        shim_drain(state, 0);
    if (state && (atomic_load(&state->aborted) || shim_comm_find(comm) != state)) { /* another thread has ended it */
        shim_comm_release(state);
        return ncclSuccess;
    }
    ncclResult_t result = shim_nccl_answer(shim_nccl()->ncclCommFinalize(comm));
    if (state && (result == ncclSuccess || result == ncclInProgress)) {
        shim_attach_cancel(comm);
        if (!grouped || !shim_group_finalize(state))
            shim_comm_close(state);
        atomic_store(&state->finalized, true);
    }
    shim_comm_release(state);
    return result;
}

/* NCCL refused the destroy: keep handle and state. Without the state this rank would route calls unlike its peers, and
 * an abort would not stop Shunt's kernels. */
static void revive(shim_comm_t *comm, ncclComm_t handle, int phase)
{
    if (shim_comm_find(handle))
        return;
    atomic_store(&comm->reusable, false);
    int dead = SHIM_COMM_DEAD;
    atomic_compare_exchange_strong(&comm->phase, &dead, phase);
    shim_comm_insert(comm);
}

SHIM_PUBLIC(ncclCommDestroy);
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    const shim_real_t *nccl = shim_nccl();
    shim_attach_cancel(comm);
    shim_comm_t *state = shim_nccl_comm(comm);
    if (!state) {
        shim_trace_flush();
        return shim_nccl_answer(nccl->ncclCommDestroy(comm));
    }
    bool grouped = shim_group_depth() > 0;
    int phase = atomic_load(&state->phase);
    shim_comm_close(state);
    /* The state stays in the table while it drains, so another thread's abort can end the wait. */
    bool drained = grouped || shim_drain(state, 0);
    shim_trace_flush(); /* exit handlers may not run, and a reset device loses kernels' times */
    atomic_store(&state->reusable, drained && in_good_order(state));
    /* Another thread's abort ended the wait, and frees the handle. */
    bool aborted = atomic_load(&state->aborted) || !shim_comm_drop(state, comm);
    ncclResult_t result = aborted ? ncclSuccess : shim_nccl_answer(nccl->ncclCommDestroy(comm));
    /* NCCL refuses a communicator that is not ready. In a group, whose end does the work, any error is a refusal. */
    const bool refused = result == ncclInvalidArgument || (grouped && shim_is_error(result));
    if (refused)
        revive(state, comm, phase);
    if (grouped && !refused)
        shim_attach_defer_release(state);
    else if (drained)
        shim_comm_release(state);
    else
        shim_comm_release_later(state);
    shim_comm_reap();
    return result;
}

/* During process exit other threads may still use the communicator, so the real NCCL does not free it. */
static ncclResult_t abort_at_exit(shim_comm_t *comm)
{
    shim_drain(comm, SHIM_ABORT_DRAIN_MS);
    shim_comm_release(comm);
    return ncclSuccess;
}

SHIM_PUBLIC(ncclCommAbort);
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const shim_real_t *nccl = shim_nccl();
    shim_comm_t *state = shim_nccl_comm(comm);
    if (state) {
        atomic_store(&state->aborted, true);
        shim_comm_stop(state);
    }
    if (!shim_cpu_mode()) /* its abort cancels once it has the state */
        shim_attach_cancel(comm);
    if (state && shim_comm_exiting())
        return abort_at_exit(state);
    if (!state)
        return shim_nccl_answer(nccl->ncclCommAbort(comm));
    shim_comm_drop(state, comm);
    shim_group_wait_for_polls(state);
    ncclResult_t result = shim_nccl_answer(nccl->ncclCommAbort(comm));
    if (shim_group_depth() > 0)
        shim_attach_defer_release(state);
    else if (shim_drain(state, SHIM_ABORT_DRAIN_MS))
        shim_comm_release(state);
    else
        shim_comm_release_later(state);
    shim_trace_flush(); /* as in a destroy */
    shim_comm_reap_idle();
    return result;
}

static void give_up(shim_comm_t *comm, ncclComm_t handle)
{
    shim_comm_interrupt(comm);
    shim_attach_cancel(handle);
}

SHIM_PUBLIC(ncclCommRevoke);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    const shim_real_t *nccl = shim_nccl();
    /* Stop Shunt's kernels only if NCCL will revoke. The state stays: a shrink's key depends on it. */
    if (revokeFlags != 0 || !shim_real_symbol(nccl, "ncclCommRevoke"))
        return shim_nccl_answer(nccl->ncclCommRevoke(comm, revokeFlags));
    shim_comm_t *state = shim_nccl_comm(comm);
    /* NCCL does not revoke a finalized or revoked communicator, so Shunt's kernels continue. Otherwise stop them before
     * forwarding: the revoke waits for NCCL's kernels, which may queue behind a waiting kernel of Shunt. */
    bool refused = state && (atomic_load(&state->finalized) || atomic_load(&state->revoked));
    if (state && !refused)
        give_up(state, comm);
    ncclResult_t result = shim_nccl_answer(nccl->ncclCommRevoke(comm, revokeFlags));
    if (state && !shim_is_error(result)) {
        if (refused)
            give_up(state, comm);
        atomic_store(&state->revoked, true);
        atomic_store(&state->async_error, ncclSuccess); /* NCCL is ready for a shrink, whatever failed before */
        shim_comm_wait_for_calls(state, shim_group_depth() > 0);
    }
    shim_comm_release(state);
    return result;
}
