/* SPDX-License-Identifier: Apache-2.0 */
/* reasons.h - why a call is taken or forwarded (reasons.def). */
#ifndef SHUNT_SELECTOR_REASONS_H
#define SHUNT_SELECTOR_REASONS_H

typedef enum sel_reason {
    SEL_TAKEN = 0,
#define SEL_REASON(code, text) SEL_FORWARD_##code,
#include "selector/reasons.def"
#undef SEL_REASON
    SEL_REASON_COUNT
} sel_reason_t;

/* "forwarded: why", static. */
const char *sel_reason_text(sel_reason_t reason);

#endif
