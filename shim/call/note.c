/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/call/note.h"

#include "shim/call/group.h"

/* Handles of operators that the program made differ between ranks. */
static uint32_t operator_of(const shim_call_t *call)
{
    const bool reduces =
        call->collective < ALG_COLLECTIVE_COUNT && alg_collective_reduces((alg_collective_t)call->collective);
    return !reduces ? ALG_SUM : (unsigned)call->op < (unsigned)ncclNumOps ? (uint32_t)call->op : ALG_PREMUL_SUM;
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
