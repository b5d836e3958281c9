/* SPDX-License-Identifier: Apache-2.0 */
/* reasons.h - why a call is taken, or a call or a communicator forwarded (reasons.def). */
#ifndef SHUNT_SELECTOR_REASONS_H
#define SHUNT_SELECTOR_REASONS_H

typedef enum sel_reason {
    SEL_TAKEN = 0,
#define SEL_REASON(code, level, text, advice) SEL_FORWARD_##code,
#include "selector/reasons.def"
#undef SEL_REASON
    SEL_REASON_COUNT
} sel_reason_t;

enum { SEL_CODE_BYTES = 16 };
/* Static: "FEW_HERE"; "TAKEN". */
const char *sel_reason_code(sel_reason_t reason);
/* For a call, static: "forwarded: why". */
const char *sel_reason_text(sel_reason_t reason);

#endif
