/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - calls on the CPU device: checked, then run in this thread, or queued in a group. */
#include "shim/call/call.h"

#include "shim/account/ranges.h"
#include "shim/base/last_error.h"
#include "shim/base/settings.h"
#include "shim/call/device.h"
#include "shim/call/group.h"
#include "shim/call/launch.h"
#include "shim/call/note.h"
#include "shim/comm/failure.h"
#include "shim/cpu/check.h"
#include "shim/cpu/cpu.h"
#include "shim/cpu/table.h"

static ncclResult_t result_of(shim_comm_t *comm, int status)
{
    switch (status) {
    case ALG_STATUS_OK:
        return ncclSuccess;
    case ALG_STATUS_TIMEOUT:
    case ALG_STATUS_PEER_DEAD:
    case ALG_STATUS_PEER_LEFT:
        shim_comm_fail_call(comm, (uint32_t)status);
        return ncclRemoteError;
    default:
        atomic_store(&comm->reusable, false);
        if (atomic_load(&comm->async_error) != ncclSuccess) /* SHUNT_MISMATCH_ERROR has set it */
            return (ncclResult_t)atomic_load(&comm->async_error);
        shim_set_last_error("the communicator was aborted or revoked during a call");
        return ncclSystemError;
    }
}

ncclResult_t shim_cpu_run(const shim_call_t *call)
{
    shim_comm_t *comm = call->comm;
    ncclResult_t result = ncclSystemError;
    pthread_mutex_t *lock = shim_call_is_message(call) ? &comm->message_lock : &comm->lock;
    pthread_mutex_lock(lock);
    if (atomic_load(&comm->phase) == SHIM_COMM_ATTACHED) {
        atomic_fetch_add(&comm->calls_begun, 1);
        alg_team_t team = shim_launch_team(comm, call->algorithm, &call->alg);
        team.limit = alg_limit(shim_setting_timeout_ns(comm->ops->timeout_ms), call->alg.id);
        shim_nodes_call(comm->nodes, &team, &call->alg, false);
        int status = call->algorithm->launch_cpu(&team, &call->alg);
        if (status == ALG_STATUS_OK)
            shim_record_ended(comm->record, call->alg.id);
        if (status == ALG_STATUS_OK)
            shim_nodes_flush(comm->nodes); /* the process may end after the call */
        atomic_fetch_add(&comm->calls_ended, 1);
        result = result_of(comm, status);
    } else {
        shim_set_last_error("the communicator has failed or ended before its call could run");
        int error = atomic_load(&comm->async_error);
        result = error != ncclSuccess ? (ncclResult_t)error : ncclSystemError;
    }
    pthread_mutex_unlock(lock);
    return result;
}

static ncclResult_t run_or_queue(shim_call_t *call)
{
    const sel_choice_t choice = shim_call_choose(call);
    if (choice.algorithm == NULL) {
        shim_set_last_error("%s: the CPU device cannot serve this call, and there is no NCCL to forward it to (%s)",
                            call->function, sel_reason_text(choice.reason));
        return ncclInvalidUsage;
    }
    if (!shim_call_has_memory(call)) {
        shim_set_last_error(
            "%s: a rank has no memory for the scratch that this call needs, or the communicator has ended",
            call->function);
        return ncclSystemError;
    }
    shim_count_taken(call->collective, shim_call_place(call), shim_call_bytes(call), &choice);
    shim_note_call(call);
    /* As in NCCL, a single rank's collectives run at once, even in a group. */
    const bool queued = shim_group_depth() > 0 && (call->comm->nranks > 1 || shim_call_is_message(call));
    if (!queued)
        shim_call_list(call);
    const bool ranged = shim_call_begin_range(call);
    const ncclResult_t result = queued ? shim_group_queue(call) : shim_cpu_run(call);
    if (ranged)
        shim_range_end();
    return result;
}

/* With one rank every collective is an all-reduce, of bytes if the collective does not reduce. */
static ncclResult_t run_alone(const shim_call_t *call)
{
    shim_call_t alone = *call;
    if (!alg_collective_reduces(alone.alg.collective)) {
        alone.alg.count *= alg_type_bytes(alone.alg.type);
        alone.alg.type = ALG_UINT8;
    }
    alone.alg.collective = ALG_ALL_REDUCE;
    return run_or_queue(&alone);
}

static ncclResult_t route(shim_call_t *call)
{
    const bool message = shim_call_is_message(call);
    if (message && call->alg.root == call->comm->rank && shim_group_depth() == 0)
        return shim_group_self_fault(call->function);
    if (!shim_call_set(call)) {
        shim_set_last_error("%s: count is too large for any memory", call->function);
        return ncclInvalidArgument;
    }
    return call->comm->nranks == 1 && !message ? run_alone(call) : run_or_queue(call);
}

static ncclResult_t make(shim_call_t *call)
{
    ncclResult_t result = shim_cpu_check_call(call);
    call->attached = result == ncclSuccess;
    if (result == ncclSuccess && atomic_load(&call->comm->suspended)) {
        shim_set_last_error("%s: the communicator is suspended", call->function);
        result = ncclInvalidUsage;
    }
    if (result == ncclSuccess && call->more != NULL) {
        shim_set_last_error("%s: the CPU device has no such call", call->function);
        result = ncclInvalidUsage;
    }
    if (result == ncclSuccess && call->alg.count > 0)
        result = route(call);
    return shim_group_check(result);
}

static int captured(shim_call_t *call, ncclResult_t result)
{
    (void)call, (void)result;
    return 0;
}

static ncclResult_t answer(ncclResult_t result)
{
    return result;
}

static shim_comm_t *no_state(ncclComm_t handle)
{
    (void)handle;
    return NULL;
}

const shim_call_ops_t shim_call_cpu = {.make = make,
                                       .captured = captured,
                                       .group_end = shim_cpu_group_end,
                                       .nccl = shim_cpu_nccl,
                                       .answer = answer,
                                       .comm = no_state};
