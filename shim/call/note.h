/* SPDX-License-Identifier: Apache-2.0 */
/*
 * note.h - calls in their communicator's record (shim/record/).
 */
#ifndef SHUNT_SHIM_NOTE_H
#define SHUNT_SHIM_NOTE_H

#include "shim/call/call.h"

/* A non-empty call begins: it has its algorithm, or will be forwarded. Once a call. */
void shim_note_call(shim_call_t *call);
/* It failed on this rank, after shim_note_call. */
void shim_note_failure(const shim_call_t *call);

#endif
