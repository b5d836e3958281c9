/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - groups: taken calls are queued until the outermost ncclGroupEnd.
 *
 * On CUDA the real NCCL's group end runs first, because only it detects errors in forwarded calls; Shunt's calls launch
 * only if it succeeds. All streams of a communicator join before and after. Shunt's work runs on one of them, the lead,
 * concurrently with the real NCCL's: another rank may make these calls without a group, in either order, so neither may
 * wait for the other. For the same reason messages run concurrently with collectives, and a communicator's messages are
 * one call in which none holds up another.
 *
 * Messages launch first. Collectives launch communicator by communicator, sorted by key, because ranks may create
 * communicators in different orders. Several ranks of one communicator in this thread launch in turn, call by call
 * (docs/lab/proofs.md).
 *
 * A failure to launch ends the communicator, which would run one call behind its peers (docs/design.md). Errors of the
 * program do not end it, since they are usually the same on every rank.
 */
#include "shim/call/group.h"

#include <stdlib.h>
#include <string.h>

#include "shim/account/trace.h"
#include "shim/base/last_error.h"
#include "shim/call/device.h"
#include "shim/call/group_state.h"
#include "shim/comm/drain.h"
#include "shim/comm/stop.h"
#include "shim/names/names.h"
#include "shim/real/real.h"
#include "shim/setup/attach.h"

enum { MOST_NAPS = 10000 };        /* two seconds */
enum { SIMULATE_VERSION = 22200 }; /* the first NCCL with ncclGroupSimulateEnd */

unsigned shim_group_depth(void)
{
    return shim_group.depth;
}

ncclResult_t shim_group_check(ncclResult_t result)
{
    if (shim_group.depth > 0 && result != ncclSuccess && result != ncclInProgress)
        shim_group.error = result;
    return result;
}

static bool is_used(const shim_comm_t *comm, void *stream)
{
    for (uint32_t i = shim_group.use_count; i > 0; i--)
        if (shim_group.uses[i - 1].comm == comm && shim_group.uses[i - 1].stream == stream)
            return true;
    return false;
}

ncclResult_t shim_group_use(shim_comm_t *comm, void *stream, const shim_capture_t *capture, shim_use_t use)
{
    shim_stream_use_t *lead = shim_group_lead(&shim_group, comm);
    if (lead != NULL && lead->capture.id != capture->id) {
        shim_set_last_error(
            "the streams of one communicator in a group must all be captured by the same graph, or none");
        return ncclInvalidUsage;
    }
    if (lead == NULL || !is_used(comm, stream)) {
        if (!shim_group_grow((void **)&shim_group.uses, shim_group.use_count, &shim_group.use_room,
                             sizeof(shim_stream_use_t)))
            return shim_group_out_of_memory(comm);
        shim_comm_retain(comm);
        shim_group.uses[shim_group.use_count++] =
            (shim_stream_use_t){.comm = comm, .stream = stream, .capture = *capture};
        lead = shim_group_lead(&shim_group, comm);
    }
    lead->track[use].used = true;
    return ncclSuccess;
}

ncclResult_t shim_group_queue(const shim_call_t *call)
{
    if (!shim_group_grow((void **)&shim_group.calls, shim_group.call_count, &shim_group.call_room,
                         sizeof(shim_queued_t)))
        return shim_group_out_of_memory(call->comm);
    shim_comm_retain(call->comm);
    shim_group.calls[shim_group.call_count] =
        (shim_queued_t){.comm = call->comm, .call = *call, .index = shim_group.call_count};
    shim_group.call_count++;
    return ncclSuccess;
}

void shim_group_wait_for_polls(shim_comm_t *comm)
{
    for (unsigned round = 0; atomic_load(&comm->polls) > 0 && round < MOST_NAPS; round++)
        shim_group_nap(round);
}

/* After an error that Shunt found: an invalid call makes the real NCCL cancel its part of the group. */
static void poison_real(const shim_real_t *real)
{
    real->ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, NULL, NULL);
}

/* The real NCCL estimates the whole group, so it also gets the calls that Shunt would run. */
static void queue_in_real(const shim_real_t *real)
{
    for (uint32_t i = 0; i < shim_group.call_count; i++) {
        shim_call_t call = shim_group.calls[i].call;
        if (call.alg.op == ALG_PREMUL_SUM)
            call.op = ncclSum; /* the operator may have been destroyed */
        call.forward(real, &call);
    }
}

static ncclResult_t real_end(const shim_real_t *real, ncclSimInfo_t *info)
{
    return info != NULL ? real->ncclGroupSimulateEnd(info) : real->ncclGroupEnd();
}

static bool forwards_captured(const shim_group_t *g)
{
    for (uint32_t i = 0; i < g->use_count; i++)
        if (g->uses[i].capture.id != 0 && g->uses[i].track[SHIM_USE_FORWARDED].used)
            return true;
    return false;
}

/* Uses relaxed capture mode if the real NCCL may have to connect during a capture (forward.c). */
static ncclResult_t real_outer_end(const shim_real_t *real, ncclSimInfo_t *info)
{
    const bool captured = forwards_captured(&shim_group);
    const int mode = captured ? net_capture_relax() : 0;
    ncclResult_t result = real_end(real, info);
    if (captured)
        net_capture_restore(mode);
    return result;
}

ncclResult_t shim_group_forwards(shim_comm_t *comm)
{
    shim_group_t *g = &shim_group;
    if (comm->all_block || (g->unattached_count > 0 && g->unattached[g->unattached_count - 1] == comm))
        return ncclSuccess;
    if (!shim_group_grow((void **)&g->unattached, g->unattached_count, &g->unattached_room, sizeof(g->unattached[0])))
        return shim_group_out_of_memory(comm);
    shim_comm_retain(comm);
    g->unattached[g->unattached_count++] = comm;
    return ncclSuccess;
}

bool shim_group_finalize(shim_comm_t *comm)
{
    shim_group_t *g = &shim_group;
    if (!shim_group_grow((void **)&g->finalized, g->finalized_count, &g->finalized_room, sizeof(g->finalized[0])))
        return false;
    shim_comm_retain(comm);
    g->finalized[g->finalized_count++] = comm;
    return true;
}

static void finish_finalized(const shim_group_t *g)
{
    for (uint32_t i = 0; i < g->finalized_count; i++) {
        if (g->finalized[i]->config.blocking)
            shim_drain(g->finalized[i], 0);
        shim_comm_close(g->finalized[i]);
    }
}

void shim_group_note_failure(const shim_group_t *g)
{
    for (uint32_t i = 0; i < g->use_count; i++)
        shim_record_doubt(g->uses[i].comm->record);
    for (uint32_t i = 0; i < g->call_count; i++)
        shim_record_doubt(g->calls[i].comm->record);
}

ncclResult_t shim_group_end_cuda(ncclSimInfo_t *info)
{
    const shim_real_t *real = shim_real_need("ncclGroupEnd");
    bool simulate = info != NULL;
    if (real == NULL)
        return ncclSystemError;
    if (simulate && real->version < SIMULATE_VERSION)
        return real->ncclGroupSimulateEnd(info); /* refused; the group stays open */
    if (shim_group.depth != 1) { /* an inner end, or an end without start, which the real NCCL refuses */
        if (shim_group.depth > 0)
            shim_group.depth--;
        return real_end(real, info);
    }
    if (shim_group.error == ncclSuccess && !simulate)
        shim_group_check(shim_group_join(&shim_group));
    if (shim_group.error == ncclSuccess && !simulate)
        shim_group_check(shim_group_gather(&shim_group));
    ncclResult_t own = shim_group.error;
    if (own != ncclSuccess)
        poison_real(real);
    else if (simulate)
        queue_in_real(real);
    ncclResult_t result = real_outer_end(real, info);
    shim_group.depth = 0;
    if (own != ncclSuccess)
        result = own;
    result = shim_attach_after_group(result);
    if (!simulate && (result == ncclSuccess || result == ncclInProgress)) {
        ncclResult_t launched = shim_group_launch(&shim_group, real, result == ncclInProgress);
        if (launched != ncclSuccess)
            result = launched;
    } else if (!simulate && result != ncclInvalidArgument && result != ncclInvalidUsage) {
        shim_group_end_comms(&shim_group, 0, result);
    }
    finish_finalized(&shim_group);
    if (simulate || shim_is_error(result))
        shim_group_note_failure(&shim_group);
    shim_group_drop(&shim_group);
    return result;
}

SHIM_PUBLIC(ncclGroupStart);
ncclResult_t ncclGroupStart(void)
{
    const ncclResult_t result = shim_call_ops(NULL)->nccl()->ncclGroupStart();
    if (result == ncclSuccess)
        shim_group.depth++;
    return result;
}

SHIM_PUBLIC(ncclGroupEnd);
ncclResult_t ncclGroupEnd(void)
{
    bool outermost = shim_group.depth == 1;
    uint64_t start_ns = outermost ? shim_trace_begin() : 0;
    ncclResult_t result = shim_call_ops(NULL)->group_end(NULL);
    if (start_ns != 0)
        shim_trace_end(&(shim_trace_call_t){
            .start_ns = start_ns, .function = "ncclGroupEnd", .type = -1, .result = (int32_t)result});
    return result;
}

/* As in NCCL, a NULL argument means ncclGroupEnd. */
SHIM_PUBLIC(ncclGroupSimulateEnd);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    return shim_call_ops(NULL)->group_end(simInfo);
}
