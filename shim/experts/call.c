/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - dispatch, combine and complete: checked, and launched on the program's stream. All ranks make a group's
 * calls in one order, and the program orders its streams, as NVIDIA's library demands: no event is recorded. Staged
 * calls (send_only) use the staged rooms (algorithms/experts/room.h) in turn; kernels count staged calls. */

#include "shim/account/ranges.h"
#include "shim/account/trace.h"
#include "shim/comm/share.h"
#include "shim/experts/check.h"

const char *shim_experts_name(const alg_experts_call_t *call)
{
    return call->phases == ALG_EXPERTS_RECEIVE ? "ncclEpComplete" : call->combine ? "ncclEpCombine" : "ncclEpDispatch";
}

/* After a failure all later calls of the group fail: this rank's next call would be paired with a different call of its
 * peers. */
static ncclResult_t fail(shim_experts_group_t *group, ncclResult_t result, const char *name, const char *text)
{
    group->failure = result;
    return shim_experts_refuse(result, "%s: %s; the group's calls fail from now on", name, text);
}

static const char *text_of(const shim_experts_group_t *group, uint32_t status)
{
    switch (status) {
    case ALG_STATUS_TIMEOUT:
        return group->replays && group->taken
                   ? "a call waited too long for its peers (timeout_ns, SHUNT_TIMEOUT_MS), or a replayed one for "
                     "a call of this rank that is open: ncclEpComplete it before a graph with send_only calls is "
                     "replayed"
                   : "a call waited too long for its peers (timeout_ns, SHUNT_TIMEOUT_MS)";
    case ALG_STATUS_PEER_LEFT:
        return "a peer left a call before its end";
    case ALG_STATUS_PEER_DEAD:
        return "a peer that the call needs has left, or its process is gone";
    default:
        return "the communicator was aborted during a call";
    }
}

ncclResult_t shim_experts_fail_status(shim_experts_group_t *group, const char *name, uint32_t status)
{
    const bool aborted = status == ALG_STATUS_ABORTED;
    return fail(group, aborted ? ncclSystemError : ncclRemoteError, name, text_of(group, status));
}

/* True also for a destroyed communicator: its handle is then unknown or another communicator's. */
static bool has_ended(shim_comm_t *comm)
{
    return atomic_load(&comm->phase) != SHIM_COMM_ATTACHED || shim_comm_find(atomic_load(&comm->handle)) != comm;
}

static ncclResult_t check_group(shim_experts_group_t *group, const char *name)
{
    alg_control_t *control = alg_scratch_control(group->extra->scratch);
    const uint32_t status = __atomic_load_n(&control->status, __ATOMIC_ACQUIRE);
    if (atomic_load(&group->destroyed))
        return shim_experts_refuse(ncclInvalidUsage, "%s: the group was destroyed", name);
    if (group->failure != ncclSuccess)
        return shim_experts_refuse(group->failure, "%s: the group has already failed; destroy it", name);
    if (status != ALG_STATUS_OK)
        return shim_experts_fail_status(group, name, status);
    if (__atomic_load_n(&control->abort, __ATOMIC_ACQUIRE))
        return shim_experts_fail_status(group, name, ALG_STATUS_ABORTED);
    if (has_ended(group->extra->comm))
        return shim_experts_refuse(ncclInvalidUsage, "%s: the group's communicator has failed or ended", name);
    return ncclSuccess;
}

/* Refuses a staged call if its room is in use by the host's count. Replays of graphs do not change that count. */
static ncclResult_t check_room(const shim_experts_group_t *group, const alg_experts_call_t *call)
{
    if (group->lost)
        return shim_experts_refuse(
            ncclInvalidUsage,
            "%s: send_only: a handle was destroyed before its call was completed; the group takes "
            "no more such calls; create another group",
            shim_experts_name(call));
    if (!(group->taken >> group->sends % group->staged & 1))
        return ncclSuccess;
    return shim_experts_refuse(ncclInvalidUsage,
                               "%s: send_only: a call that was sent %u such calls ago is not completed; call "
                               "ncclEpComplete",
                               shim_experts_name(call), group->staged);
}

void shim_experts_begin(shim_experts_handle_t *handle, alg_team_t *team, alg_experts_call_t *call, cudaStream_t stream)
{
    if (call->phases != ALG_EXPERTS_RECEIVE)
        call->id = shim_experts_note(handle, call, stream);
    team->limit = alg_limit(handle->group->timeout_ns, call->id);
}

static ncclResult_t launch(shim_experts_handle_t *handle, alg_experts_call_t *call, cudaStream_t stream)
{
    shim_experts_group_t *group = handle->group;
    alg_team_t team = *alg_scratch_team(group->extra->scratch);
    call->blocks = group->blocks;
    /* A grid launched early waits on the GPU, and may keep other communicators' grids out (share.c). */
    if (!shim_share_is_lone(group->extra->comm))
        team.dependent_launch = 0;
    const bool ranged = shim_ranges_wanted() && shim_range_begin(shim_experts_name(call), shim_experts_bytes(call));
    const ncclResult_t result = group->ops->run(handle, &team, call, stream);
    if (ranged)
        shim_range_end();
    if (result != ncclSuccess)
        shim_record_doubt(group->extra->record);
    return result;
}

/* Under the group's lock. */
static ncclResult_t make_call(shim_experts_handle_t *handle, alg_experts_call_t *call, bool staged, cudaStream_t stream)
{
    shim_experts_group_t *group = handle->group;
    call->phases = staged ? ALG_EXPERTS_SEND : ALG_EXPERTS_BOTH;
    ncclResult_t result = staged ? check_room(group, call) : ncclSuccess;
    if (result == ncclSuccess)
        result = launch(handle, call, stream);
    if (result == ncclSuccess && !call->combine) {
        handle->dispatched = true;
        handle->dispatched_tokens = call->tokens;
    }
    if (result != ncclSuccess || !staged)
        return result;
    group->replays = group->replays || handle->captured != 0;
    handle->room = (uint32_t)(group->sends++ % group->staged);
    group->taken |= 1u << handle->room;
    handle->open = *call;
    handle->is_open = true;
    return ncclSuccess;
}

static ncclResult_t check_open(const shim_experts_handle_t *handle, const char *name)
{
    if (!handle->is_open)
        return ncclSuccess;
    return shim_experts_refuse(
        ncclInvalidUsage, "%s: the handle has a call that was sent and not completed: call ncclEpComplete first", name);
}

/* A combine must be of as many tokens as the last dispatch: the peers return those tokens. */
static ncclResult_t check_dispatched(const shim_experts_handle_t *handle)
{
    if (handle->dispatched && handle->dispatched_tokens == handle->tokens)
        return ncclSuccess;
    return shim_experts_refuse(
        ncclInvalidUsage, "ncclEpCombine: the handle's last dispatch was not of %u tokens: call ncclEpDispatch first",
        handle->tokens);
}

ncclResult_t shim_experts_dispatch(shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                   const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                                   const ncclEpDispatchConfig_t *config, cudaStream_t stream)
{
    alg_experts_call_t call;
    const uint64_t start_ns = shim_trace_begin();
    pthread_mutex_lock(&handle->group->lock);
    ncclResult_t result = check_group(handle->group, "ncclEpDispatch");
    if (result == ncclSuccess)
        result = check_open(handle, "ncclEpDispatch");
    if (result == ncclSuccess)
        result = shim_experts_check_dispatch(handle, inputs, outputs, layout, config, &call);
    if (result == ncclSuccess)
        result = make_call(handle, &call, config->send_only != 0, stream);
    if (start_ns != 0)
        shim_experts_trace(handle, "ncclEpDispatch", inputs->tokens, stream, start_ns, result);
    pthread_mutex_unlock(&handle->group->lock);
    return result;
}

ncclResult_t shim_experts_combine(shim_experts_handle_t *handle, const ncclEpCombineInputs_t *inputs,
                                  const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                                  cudaStream_t stream)
{
    alg_experts_call_t call;
    const uint64_t start_ns = shim_trace_begin();
    pthread_mutex_lock(&handle->group->lock);
    ncclResult_t result = check_group(handle->group, "ncclEpCombine");
    if (result == ncclSuccess)
        result = check_open(handle, "ncclEpCombine");
    if (result == ncclSuccess)
        result = shim_experts_check_combine(handle, inputs, outputs, config, &call);
    if (result == ncclSuccess)
        result = check_dispatched(handle);
    if (result == ncclSuccess)
        result = make_call(handle, &call, config->send_only != 0, stream);
    if (start_ns != 0)
        shim_experts_trace(handle, "ncclEpCombine", inputs->tokens, stream, start_ns, result);
    pthread_mutex_unlock(&handle->group->lock);
    return result;
}

/* Without an open call it does nothing, as in NVIDIA's library. */
ncclResult_t shim_experts_complete(shim_experts_handle_t *handle, cudaStream_t stream)
{
    shim_experts_group_t *group = handle->group;
    const uint64_t start_ns = shim_trace_begin();
    pthread_mutex_lock(&group->lock);
    ncclResult_t result = handle->is_open ? check_group(group, "ncclEpComplete") : ncclSuccess;
    if (handle->is_open && result == ncclSuccess) {
        handle->open.phases = ALG_EXPERTS_RECEIVE;
        result = launch(handle, &handle->open, stream);
        handle->is_open = false;
        if (result == ncclSuccess)
            group->taken &= ~(1u << handle->room);
    }
    if (start_ns != 0)
        shim_experts_trace(handle, "ncclEpComplete", NULL, stream, start_ns, result);
    pthread_mutex_unlock(&group->lock);
    return result;
}
