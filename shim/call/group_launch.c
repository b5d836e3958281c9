/* SPDX-License-Identifier: Apache-2.0 */
/* group_launch.c - the end of a group on CUDA (reasons: group.c). */
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/call/group_state.h"
#include "shim/call/launch.h"
#include "shim/comm/share.h"

static bool has_ours(const shim_stream_use_t *lead)
{
    return lead->track[SHIM_USE_COLLECTIVE].used || lead->track[SHIM_USE_MESSAGE].used;
}

/* The lead waits for the communicator's other streams. */
static int gather_streams(const shim_group_t *g, const shim_stream_use_t *lead)
{
    int error = 0;
    for (const shim_stream_use_t *use = lead + 1; use < g->uses + g->use_count && error == 0; use++)
        if (use->comm == lead->comm)
            error = shim_order_join(lead->stream, use->stream);
    return error;
}

static int spread_streams(const shim_group_t *g, const shim_stream_use_t *lead)
{
    int error = 0;
    for (const shim_stream_use_t *use = lead + 1; use < g->uses + g->use_count && error == 0; use++)
        if (use->comm == lead->comm)
            error = shim_order_join(use->stream, lead->stream);
    return error;
}

/* Runs before the real end: orders the group after earlier work. */
static int join_before(const shim_group_t *g, shim_stream_use_t *lead)
{
    int error = shim_order_enter(lead->comm, lead->stream, &lead->capture);
    if (error == 0)
        error = gather_streams(g, lead);
    if (error == 0 && lead->track[SHIM_USE_FORWARDED].used)
        error = spread_streams(g, lead);
    return error;
}

static bool shares_stream(const shim_group_t *g, const shim_stream_use_t *lead)
{
    for (const shim_stream_use_t *use = g->uses; use < g->uses + g->use_count; use++)
        if (use->comm != lead->comm && use->stream == lead->stream && use->comm->device == lead->comm->device &&
            shim_group_lead(g, use->comm) == use)
            return true;
    return false;
}

static int make_branch(shim_stream_use_t *lead, shim_use_t use, bool wanted)
{
    shim_track_t *track = &lead->track[use];
    track->branched = track->used && wanted;
    const int side = use == SHIM_USE_MESSAGE;
    return track->branched ? shim_branch_make(lead->comm, side, lead->stream, &lead->capture, &track->branch) : 0;
}

/* Runs after join_before of all communicators, since they may share a stream. */
static int branch_before(const shim_group_t *g, shim_stream_use_t *lead)
{
    const bool forwarded = lead->track[SHIM_USE_FORWARDED].used;
    const bool beside = forwarded || lead->track[SHIM_USE_COLLECTIVE].used;
    int error = make_branch(lead, SHIM_USE_COLLECTIVE, forwarded);
    return error != 0 ? error : make_branch(lead, SHIM_USE_MESSAGE, beside || shares_stream(g, lead));
}

static bool branches(const shim_group_t *g)
{
    for (uint32_t i = 0; i < g->use_count; i++)
        if (g->uses[i].track[SHIM_USE_COLLECTIVE].branched)
            return true;
    return false;
}

/* Runs after the real end, before collectives launch. */
static int branch_off(const shim_group_t *g, shim_stream_use_t *lead)
{
    (void)g;
    shim_track_t *track = &lead->track[SHIM_USE_COLLECTIVE];
    return track->branched ? shim_branch_begin(&track->branch) : 0;
}

static int branch_after(const shim_group_t *g, shim_stream_use_t *lead)
{
    (void)g;
    int error = 0;
    for (shim_track_t *track = lead->track; track < lead->track + SHIM_USES && error == 0; track++)
        if (track->branched)
            error = shim_branch_end(&track->branch, lead->stream);
    return error;
}

/* If all calls were forwarded, the real NCCL has joined their streams. */
static int join_after(const shim_group_t *g, shim_stream_use_t *lead)
{
    const bool both = lead->track[SHIM_USE_FORWARDED].used && has_ours(lead);
    int error = both ? gather_streams(g, lead) : 0;
    if (error == 0 && has_ours(lead))
        error = spread_streams(g, lead);
    if (error == 0)
        error = shim_order_leave(lead->comm, lead->stream, &lead->capture, false);
    shim_share_launched(lead->comm, true);
    return error;
}

typedef int (*step_t)(const shim_group_t *g, shim_stream_use_t *lead);

/* Runs instead of join_after, if the real NCCL's work is not on the streams yet. */
static int leave_pending(const shim_group_t *g, shim_stream_use_t *lead)
{
    (void)g;
    return shim_order_leave(lead->comm, lead->stream, &lead->capture, true);
}

/* Runs the steps on the communicator's device, under its lock, up to the first failure; with `all` to the end. */
static ncclResult_t run_steps(const shim_group_t *g, shim_stream_use_t *lead, const step_t *step, uint32_t steps,
                              bool all)
{
    net_visit_t visit;
    pthread_mutex_lock(&lead->comm->lock);
    int error = net_device_enter(&visit, lead->comm->device);
    if (error == 0) {
        for (uint32_t i = 0; i < steps && (all || error == 0); i++) {
            const int failed = step[i](g, lead);
            error = error == 0 ? failed : error;
        }
        net_device_leave(&visit);
    }
    if (error != 0 && all && has_ours(lead))
        lead->comm->order.lost = true; /* no event marks the end of launched work */
    pthread_mutex_unlock(&lead->comm->lock);
    if (error == 0)
        return ncclSuccess;
    ncclResult_t failed = shim_launch_failed(error, "ncclGroupEnd");
    if (has_ours(lead))
        shim_group_end_comm(lead->comm, failed);
    return failed;
}

/* Runs each step for all communicators before the next step. A failure does not stop other communicators, nor, with
 * `all`, later steps. Returns the first error. */
static ncclResult_t for_each_lead(const shim_group_t *g, const step_t *step, uint32_t steps, bool all)
{
    const uint32_t at_once = g->use_count == 1 ? steps : 1; /* entering a device is slow */
    ncclResult_t result = ncclSuccess;
    for (uint32_t s = 0; s < steps && (all || result == ncclSuccess); s += at_once)
        for (uint32_t i = 0; i < g->use_count; i++) {
            shim_stream_use_t *lead = &g->uses[i];
            if (shim_group_lead(g, lead->comm) != lead)
                continue;
            const ncclResult_t ran = run_steps(g, lead, step + s, at_once, all);
            result = result == ncclSuccess ? ran : result;
        }
    return result;
}

ncclResult_t shim_group_gather(shim_group_t *g)
{
    static const step_t steps[] = {join_before, branch_before};
    return for_each_lead(g, steps, 2, false);
}

/* Another thread's abort sets the phase, waits for polls in progress, then frees the handle. So count the poll before
 * reading the phase. */
static ncclResult_t poll_real(const shim_real_t *real, shim_comm_t *comm, ncclResult_t *state)
{
    ncclResult_t result = ncclInvalidUsage;
    atomic_fetch_add(&comm->polls, 1);
    if (atomic_load(&comm->phase) != SHIM_COMM_DEAD)
        result = real->ncclCommGetAsyncError(atomic_load(&comm->handle), state);
    else
        shim_set_last_error("ncclGroupEnd: the communicator was aborted while its calls waited");
    atomic_fetch_sub(&comm->polls, 1);
    return result;
}

/* A thread of the real NCCL issues non-blocking communicators' work. Shunt's work must come after it, as on every
 * rank. */
static ncclResult_t wait_for(const shim_real_t *real, shim_comm_t *comm)
{
    ncclResult_t state = ncclInProgress;
    for (unsigned round = 0; state == ncclInProgress; round++) {
        if (round > 0)
            shim_group_nap(round);
        const ncclResult_t result = poll_real(real, comm, &state);
        if (result != ncclSuccess)
            return result;
    }
    return state;
}

static ncclResult_t wait_forwarded(const shim_group_t *g, const shim_real_t *real)
{
    ncclResult_t result = ncclSuccess;
    for (uint32_t i = 0; i < g->use_count && result == ncclSuccess; i++)
        if (g->uses[i].track[SHIM_USE_FORWARDED].used && !g->uses[i].comm->all_block)
            result = wait_for(real, g->uses[i].comm);
    for (uint32_t i = 0; i < g->unattached_count && result == ncclSuccess; i++)
        result = wait_for(real, g->unattached[i]);
    return result;
}

static ncclResult_t launch_on(const shim_stream_use_t *lead, const shim_queued_t *queued, const shim_track_t *track,
                              uint32_t beside)
{
    const shim_launch_t launch = {.comm = queued->comm,
                                  .algorithm = queued->call.algorithm,
                                  .call = &queued->call.alg,
                                  .stream = track->branched ? track->branch.stream : lead->stream,
                                  .capture = track->branched ? &track->branch.capture : &lead->capture,
                                  .beside = beside,
                                  .joined = true};
    pthread_mutex_lock(&queued->comm->lock);
    ncclResult_t result = shim_launch(&launch);
    pthread_mutex_unlock(&queued->comm->lock);
    return result;
}

/* Pauses the branch: later work on the lead's stream must not wait for messages yet. */
static ncclResult_t launch_messages(shim_stream_use_t *lead, const shim_queued_t *queued)
{
    shim_track_t *track = &lead->track[SHIM_USE_MESSAGE];
    int error = track->branched ? shim_branch_begin(&track->branch) : 0;
    if (error != 0)
        return shim_launch_failed(error, "ncclGroupEnd");
    ncclResult_t result = launch_on(lead, queued, track, lead->track[SHIM_USE_COLLECTIVE].room);
    error = track->branched ? shim_branch_pause(&track->branch) : 0;
    return result == ncclSuccess && error != 0 ? shim_launch_failed(error, "ncclGroupEnd") : result;
}

static ncclResult_t launch_one(const shim_group_t *g, const shim_queued_t *queued)
{
    shim_stream_use_t *lead = shim_group_lead(g, queued->comm);
    net_visit_t visit;
    int error = net_device_enter(&visit, queued->comm->device);
    if (error != 0)
        return shim_launch_failed(error, "ncclGroupEnd");
    ncclResult_t result = shim_group_is_message(queued) ? launch_messages(lead, queued)
                                                        : launch_on(lead, queued, &lead->track[SHIM_USE_COLLECTIVE],
                                                                    lead->track[SHIM_USE_MESSAGE].room);
    net_device_leave(&visit);
    return result;
}

ncclResult_t shim_group_launch(shim_group_t *g, const shim_real_t *real, bool in_progress)
{
    static const step_t pending[] = {leave_pending}, before[] = {branch_off}, after[] = {branch_after, join_after};
    if (in_progress && g->call_count == 0)
        return for_each_lead(g, pending, 1, true);
    ncclResult_t result = wait_forwarded(g, real);
    if (result == ncclSuccess && branches(g))
        result = for_each_lead(g, before, 1, false);
    uint32_t launched = 0;
    while (launched < g->call_count && result == ncclSuccess) {
        result = launch_one(g, &g->calls[launched]);
        launched += result == ncclSuccess;
    }
    shim_group_end_comms(g, launched, result);
    const ncclResult_t ordered = for_each_lead(g, after, 2, true);
    return result != ncclSuccess ? result : ordered;
}
