/* SPDX-License-Identifier: Apache-2.0 */
/* reasons.c - see reasons.h. */
#include "selector/reasons.h"

static const struct {
    const char *code, *text;
} reasons[SEL_REASON_COUNT] = {
    [SEL_TAKEN] = {"TAKEN", "taken: chosen by the table or SHUNT_ALGO"},
#define SEL_REASON(code, level, text, advice) [SEL_FORWARD_##code] = {#code, "forwarded: " text},
#include "selector/reasons.def"
#undef SEL_REASON
};

#define SEL_REASON(code, level, text, advice) _Static_assert(sizeof(#code) <= SEL_CODE_BYTES, #code);
#include "selector/reasons.def"
#undef SEL_REASON

const char *sel_reason_code(sel_reason_t reason)
{
    return (unsigned)reason < SEL_REASON_COUNT ? reasons[reason].code : "?";
}

const char *sel_reason_text(sel_reason_t reason)
{
    return (unsigned)reason < SEL_REASON_COUNT ? reasons[reason].text : "?";
}
