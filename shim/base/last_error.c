/* SPDX-License-Identifier: Apache-2.0 */
/* last_error.c - one text per process, as in NCCL: a watchdog thread may ask for another thread's error. */
#include "shim/base/last_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shim/base/log.h"
#include "transport/transport.h"

enum { TEXT_BYTES = 512 };

static net_lock_t g_lock = NET_LOCK_INITIALIZER;
static char g_text[TEXT_BYTES];

void shim_set_last_error(const char *format, ...)
{
    char text[TEXT_BYTES] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (text[0])
        shim_info("%s", text);
    net_lock_take(&g_lock);
    memcpy(g_text, text, sizeof(g_text));
    net_lock_give(&g_lock);
}

const char *shim_last_error(void)
{
    static _Thread_local char copy[TEXT_BYTES];
    net_lock_take(&g_lock);
    memcpy(copy, g_text, sizeof(copy));
    net_lock_give(&g_lock);
    return copy;
}
