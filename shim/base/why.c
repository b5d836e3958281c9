/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/base/why.h"

#include <stdarg.h>
#include <stdio.h>

#include "shim/base/log.h"

void shim_why_write(shim_why_t *why, sel_reason_t reason, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof(why->text), format, arguments);
    va_end(arguments);
    why->reason = reason;
}

bool shim_why_is_fault(sel_reason_t reason)
{
    static const shim_log_level_t levels[SEL_REASON_COUNT] = {
#define SEL_REASON(code, level, text, advice) [SEL_FORWARD_##code] = SHIM_LOG_##level,
#include "selector/reasons.def"
#undef SEL_REASON
    };
    return levels[reason] == SHIM_LOG_WARN;
}
