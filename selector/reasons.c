/* SPDX-License-Identifier: Apache-2.0 */
/* reasons.c - see reasons.h. */
#include "selector/reasons.h"

const char *sel_reason_text(sel_reason_t reason)
{
    static const char *const text[SEL_REASON_COUNT] = {
        [SEL_TAKEN] = "taken: the choice of table or policy",
#define SEL_REASON(code, why) [SEL_FORWARD_##code] = "forwarded: " why,
#include "selector/reasons.def"
#undef SEL_REASON
    };
    return (unsigned)reason < SEL_REASON_COUNT ? text[reason] : "?";
}
