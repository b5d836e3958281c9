/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - Shunt's log, to stderr or SHUNT_DEBUG_FILE, never to stdout. Safe from any thread, but not in signal
 * handlers; preserves errno. Code on the fast path must test shim_log_on first. */
#ifndef SHUNT_SHIM_LOG_H
#define SHUNT_SHIM_LOG_H

#include <stdbool.h>

typedef enum shim_log_level {
    SHIM_LOG_NONE = 0,
    SHIM_LOG_WARN = 1,
    SHIM_LOG_INFO = 2,
    SHIM_LOG_TRACE = 3
} shim_log_level_t;

bool shim_log_on(shim_log_level_t level);
/* Writes one line; control characters become spaces. */
void shim_log(shim_log_level_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define shim_warn(...) shim_log(SHIM_LOG_WARN, __VA_ARGS__)
#define shim_info(...) shim_log(SHIM_LOG_INFO, __VA_ARGS__)
/* Evaluates its arguments only if traces are on. */
#define shim_trace(...)                            \
    do {                                           \
        if (shim_log_on(SHIM_LOG_TRACE))           \
            shim_log(SHIM_LOG_TRACE, __VA_ARGS__); \
    } while (0)

#endif
