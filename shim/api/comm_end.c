/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm_end.c - the entry points that end communicators.
 *
 * On GPUs each one detaches Shunt's state and forwards the call. No lock is held
 * while a call is forwarded, for it may wait for other ranks, or be the abort that
 * ends such a wait.
 *
 * A destroy must leave nothing of ours behind the handle, whose address the real
 * NCCL may give to the next communicator. Its scratch goes back to the pool only
 * if it ended in good order: our own kernels have ended (drained), none was
 * aborted or timed out. Peers' kernels cannot touch it any more: a kernel ends
 * only after it has got everything that its peers sent in that call, so once
 * ours have ended, no store of theirs is on its way; what still runs there polls
 * its own scratch. And nobody re-arms a pooled scratch before all ranks have
 * said, in the next set-up, that theirs is idle too.
 */
#include "shim/account/trace.h"
#include "shim/api/nccl.h"
#include "shim/base/device.h"
#include "shim/call/group.h"
#include "shim/comm/drain.h"
#include "shim/comm/reap.h"
#include "shim/comm/stop.h"
#include "shim/setup/attach.h"

/* Take no more calls. Waits for a launch that is under way, but not for its kernel. */
static void kill_state(shim_comm_t *comm)
{
    pthread_mutex_lock(&comm->lock);
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    pthread_mutex_unlock(&comm->lock);
}

/* Nothing has gone wrong on this rank. */
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
    const shim_real_t *nccl = shim_nccl("ncclCommFinalize");
    if (!nccl)
        return ncclSystemError;
    shim_comm_t *state = shim_nccl_comm(comm);
    /* Finalize flushes what was issued. One that must not block leaves that to ncclCommGetAsyncError. */
    if (state && state->config.blocking && shim_group_depth() == 0)
        shim_drain(state, 0);
    if (state && shim_comm_find(comm) != state) { /* an abort from another thread has ended it */
        shim_comm_release(state);
        return ncclSuccess;
    }
    ncclResult_t result = shim_nccl_answer(nccl->ncclCommFinalize(comm));
    if (state && (result == ncclSuccess || result == ncclInProgress)) {
        shim_attach_cancel(comm);
        kill_state(state);
        atomic_store(&state->finalized, true);
    }
    shim_comm_release(state);
    return result;
}

/* NCCL refused (the communicator is not ready) and the handle lives on: so does its state, or this
 * rank would route calls in another way than its peers. */
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
    shim_trace_flush(); /* the process may end without its exit handlers */
    const shim_real_t *nccl = shim_nccl("ncclCommDestroy");
    if (!nccl)
        return ncclSystemError;
    shim_attach_cancel(comm);
    shim_comm_t *state = shim_nccl_comm(comm);
    if (!state)
        return shim_nccl_answer(nccl->ncclCommDestroy(comm));
    bool grouped = shim_group_depth() > 0;
    int phase = atomic_load(&state->phase);
    kill_state(state);
    /* Still in the table while it drains, so that an abort from another thread can end that. */
    bool drained = grouped || shim_drain(state, 0);
    atomic_store(&state->reusable, drained && in_good_order(state));
    /* An abort from another thread ended the wait: it frees the handle, too. */
    bool aborted = !shim_comm_drop(state, comm);
    ncclResult_t result = aborted ? ncclSuccess : shim_nccl_answer(nccl->ncclCommDestroy(comm));
    if (result == ncclInvalidArgument)
        revive(state, comm, phase);
    if (grouped && result == ncclSuccess)
        shim_attach_defer_release(state);
    else if (drained)
        shim_comm_release(state);
    else
        shim_comm_release_later(state); /* its kernels may still run */
    shim_comm_reap();
    return result;
}

SHIM_PUBLIC(ncclCommAbort);
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    const shim_real_t *nccl = shim_nccl("ncclCommAbort");
    if (!nccl)
        return ncclSystemError;
    shim_comm_t *state = shim_nccl_comm(comm);
    if (state)
        shim_comm_stop(state);
    if (!shim_host_mode())
        shim_attach_cancel(comm);
    if (!state)
        return shim_nccl_answer(nccl->ncclCommAbort(comm));
    shim_comm_drop(state, comm);
    shim_group_let_polls_end(state);
    ncclResult_t result = shim_nccl_answer(nccl->ncclCommAbort(comm));
    if (shim_group_depth() > 0)
        shim_attach_defer_release(state);
    else if (shim_drain(state, SHIM_ABORT_DRAIN_MS))
        shim_comm_release(state);
    else
        shim_comm_release_later(state);
    shim_comm_reap();
    return result;
}

static void give_up(shim_comm_t *comm, ncclComm_t handle)
{
    shim_comm_stop(comm);
    shim_attach_cancel(handle);
}

SHIM_PUBLIC(ncclCommRevoke);
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    const shim_real_t *nccl = shim_nccl("ncclCommRevoke");
    if (!nccl)
        return ncclSystemError;
    /* Only what NCCL will do too. The state stays, for the key of a shrink. */
    if (revokeFlags != 0 || !shim_real_symbol(nccl, "ncclCommRevoke"))
        return shim_nccl_answer(nccl->ncclCommRevoke(comm, revokeFlags));
    shim_comm_t *state = shim_nccl_comm(comm);
    /* NCCL refuses to revoke what was finalized or revoked before: our kernels go on then. It cannot simply be asked
     * first: a revoke waits for NCCL's own kernels, which may stand behind one of ours that waits. */
    bool refused = state && (atomic_load(&state->finalized) || atomic_load(&state->revoked));
    if (state && !refused)
        give_up(state, comm);
    ncclResult_t result = shim_nccl_answer(nccl->ncclCommRevoke(comm, revokeFlags));
    if (state && !shim_is_error(result)) {
        if (refused)
            give_up(state, comm);
        atomic_store(&state->revoked, true);
        shim_comm_let_end(state, shim_group_depth() > 0);
    }
    shim_comm_release(state);
    return result;
}
