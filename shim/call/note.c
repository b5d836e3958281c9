/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/call/note.h"

#include "shim/account/trace.h"
#include "shim/call/group.h"

/* Handles of operators that the program made differ between ranks. */
static uint32_t operator_of(const shim_call_t *call)
{
    return !shim_call_reduces(call)                    ? ALG_SUM
           : (unsigned)call->op < (unsigned)ncclNumOps ? (uint32_t)call->op
                                                       : ALG_PREMUL_SUM;
}

void shim_note_call(shim_call_t *call)
{
    if (call->comm == NULL || call->comm->record == NULL)
        return;
    const bool taken = call->algorithm != NULL, known = call->attached;
    const shim_record_call_t made = {.sign = {.collective = call->collective,
                                              .type = (uint32_t)call->alg.type,
                                              .op = operator_of(call),
                                              .count = call->alg.count},
                                     .captured = call->capture.id != 0,
                                     .flags = (taken ? 0u : RECORD_FORWARDED) |
                                              (shim_group_depth() > 0 ? RECORD_GROUPED : 0u) |
                                              (known ? 0u : RECORD_CAPTURE_UNKNOWN),
                                     .place = call->alg.root,
                                     .stream = call->stream,
                                     .algorithm = taken ? call->algorithm->name : NULL};
    call->alg.id = shim_record_call(call->comm->record, &made);
    call->recorded = true;
}

void shim_note_failure(const shim_call_t *call)
{
    if (call->recorded)
        shim_record_doubt(call->comm->record);
}

void shim_note_trace(const shim_call_t *call, int captured, ncclResult_t result)
{
    const bool known = call->comm != NULL;
    shim_trace_call_t event = {.start_ns = call->start_ns,
                               .function = call->function,
                               .comm = call->handle,
                               .stream = call->stream,
                               .decision = {.size = sizeof(event.decision)},
                               .count = call->alg.count,
                               .type = (int32_t)call->alg.type,
                               .op = shim_call_reduces(call) ? (int32_t)call->op : -1,
                               .rank = known ? (int32_t)call->comm->rank : -1,
                               .nranks = known ? (int32_t)call->comm->nranks : -1,
                               .result = (int32_t)result,
                               .captured = captured};
    shim_statistics_fresh(&event.decision);
    shim_trace_end(&event);
}
