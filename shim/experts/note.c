/* SPDX-License-Identifier: Apache-2.0 */
/* note.c - groups' calls in the account: statistics, the record of calls, the trace. A group has its own record, like a
 * communicator: its kernels have their own control words, and its calls their own numbers. A staged call counts when it
 * is sent; ncclEpComplete only appears in the trace. */
#include "shim/account/statistics.h"
#include "shim/account/trace.h"
#include "shim/experts/group.h"

static const alg_algorithm_t g_served = {.name = shim_record_experts};

uint64_t shim_experts_note(shim_experts_handle_t *handle, const alg_experts_call_t *call, const void *stream)
{
    const shim_experts_group_t *group = handle->group;
    handle->captured = group->ops->captured(stream);
    const bool captured = handle->captured > 0, known = handle->captured >= 0;
    const uint32_t collective = call->combine ? RECORD_COMBINE : RECORD_DISPATCH;
    const shim_place_t place = shim_place(&group->extra->comm->plan->topology, ALG_TYPE_COUNT, captured);
    const sel_choice_t choice = {.algorithm = &g_served, .blocks = call->blocks, .threads = group->ops->threads};
    shim_count_taken(collective, place, shim_experts_bytes(call), &choice);
    const shim_record_call_t made = {.sign = {.collective = collective, .op = ALG_SUM, .count = call->tokens},
                                     .captured = captured,
                                     .flags = (call->phases == ALG_EXPERTS_SEND ? RECORD_STAGED : 0u) |
                                              (known ? 0u : RECORD_CAPTURE_UNKNOWN),
                                     .stream = stream,
                                     .algorithm = shim_record_experts};
    return shim_record_call(group->extra->record, &made);
}

void shim_experts_trace(const shim_experts_handle_t *handle, const char *function, const ncclEpTensor_t *tokens,
                        const void *stream, uint64_t start_ns, ncclResult_t result)
{
    const shim_comm_t *comm = handle->group->extra->comm;
    shim_trace_call_t event = {.start_ns = start_ns,
                               .function = function,
                               .comm = (void *)atomic_load(&comm->handle),
                               .stream = stream,
                               .decision = {.size = sizeof(event.decision)},
                               .count = handle->tokens,
                               .type = tokens ? (int32_t)tokens->datatype : -1,
                               .op = -1,
                               .rank = (int32_t)comm->rank,
                               .nranks = (int32_t)comm->nranks,
                               .result = (int32_t)result,
                               .captured = result == ncclSuccess ? handle->captured : -1};
    shim_statistics_fresh(&event.decision);
    shim_trace_end(&event);
}
