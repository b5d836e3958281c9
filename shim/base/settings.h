/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - the settings, read on first use, never in a constructor (sources: docs/settings.md). A wrong value gives
 * one log line and the default. Settings never change afterwards, and any thread may read them. */
#ifndef SHUNT_SHIM_SETTINGS_H
#define SHUNT_SHIM_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shunt.h"

typedef enum shim_device { SHIM_DEVICE_AUTO = 0, SHIM_DEVICE_CUDA = 1, SHIM_DEVICE_CPU = 2 } shim_device_t;

typedef enum shim_tune { SHIM_TUNE_AUTO = 0, SHIM_TUNE_NEVER = 1, SHIM_TUNE_ALWAYS = 2 } shim_tune_t;

#define SHIM_TIMEOUT_AUTO UINT32_MAX

typedef shim_device_t shim_kind_DEVICE_t;
typedef shim_tune_t shim_kind_TUNE_t;
typedef bool shim_kind_SWITCH_t;
typedef const char *shim_kind_TEXT_t;   /* "" when empty, never NULL */
typedef const char *shim_kind_POLICY_t; /* checked by sel_policy_check */
typedef uint64_t shim_kind_SIZE_t;
typedef uint32_t shim_kind_COUNT_t;
typedef uint32_t shim_kind_LIMIT_t;   /* ms */
typedef uint32_t shim_kind_TIMEOUT_t; /* ms, or SHIM_TIMEOUT_AUTO (shim_setting_timeout_ns) */
typedef shim_log_level_t shim_kind_LEVEL_t;

typedef struct shim_settings {
#define SHIM_SETTING(kind, field, variable, fallback, initial, unit, allowed, help) shim_kind_##kind##_t field;
#include "shim/base/settings.def"
#undef SHIM_SETTING
} shim_settings_t;

/* Never NULL. */
const shim_settings_t *shim_settings(void);

/* SHUNT_NCCL_PATH; NULL: not set. */
const char *shim_setting_nccl_path(void);
/* Longest wait for another rank inside a call, in ns; 0: no limit. usual_ms: the default. */
uint64_t shim_setting_timeout_ns(uint32_t usual_ms);

bool shim_setting_stats(void);

/* Row `index` for shunt_setting; false past the end. */
bool shim_setting_row(uint32_t index, shunt_setting_t *row);

/* Fills in %h (host name), %p (process id) and %%. False: the path does not fit. */
bool shim_setting_expand(const char *pattern, char *path, size_t capacity);
/* Opens the expanded path for appending: see shim_file_open. */
int shim_setting_open(const char *pattern, const char **why);

#endif
