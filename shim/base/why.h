/* SPDX-License-Identifier: Apache-2.0 */
/* why.h - why a set-up declines: a reason of selector/reasons.def, and its text with arguments. */
#ifndef SHUNT_SHIM_WHY_H
#define SHUNT_SHIM_WHY_H

#include <stdbool.h>

#include "selector/reasons.h"

typedef struct shim_why {
    sel_reason_t reason; /* SEL_TAKEN: none */
    char text[160];
} shim_why_t;

/* The texts are constants, so that the compiler checks their arguments. */
#define SEL_REASON(code, level, text, advice) static const char shim_text_##code[] __attribute__((unused)) = text;
#include "selector/reasons.def"
#undef SEL_REASON
#define SHIM_WHY(code) SEL_FORWARD_##code, shim_text_##code

/* Example: shim_why_write(&why, SHIM_WHY(VERSION), rank, 0u). */
void shim_why_write(shim_why_t *why, sel_reason_t reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Faults are logged as warnings. */
bool shim_why_is_fault(sel_reason_t reason);

#endif
