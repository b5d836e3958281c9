/* SPDX-License-Identifier: Apache-2.0 */
/* note.h - writes calls into the communicator's record and the trace. */
#ifndef SHUNT_SHIM_NOTE_H
#define SHUNT_SHIM_NOTE_H

#include "shim/call/call.h"

/* Call once for each non-empty call, when it is known whether Shunt takes it. */
void shim_note_call(shim_call_t *call);
/* A noted call failed on this rank. */
void shim_note_failure(const shim_call_t *call);
/* For calls with a start_ns. captured: as in shim_call_ops_t. */
void shim_note_trace(const shim_call_t *call, int captured, ncclResult_t result);

#endif
