/* SPDX-License-Identifier: Apache-2.0 */
/* conf.h - Shunt's configuration files: the user's and /etc/shunt.conf (docs/settings.md). A faulty line is reported
 * with file, line and column, and skipped. */
#ifndef SHUNT_SHIM_CONF_H
#define SHUNT_SHIM_CONF_H

#include <stddef.h>
#include <stdint.h>

enum {
#define SHIM_SETTING(kind, field, variable, fallback, initial, unit, allowed, help) SHIM_SETTING_##field,
#include "shim/base/settings.def"
#undef SHIM_SETTING
    SHIM_SETTING_COUNT
};

typedef struct shim_conf_value {
    const char *text; /* NULL: not set in the file */
    uint32_t line, column;
} shim_conf_value_t;

typedef struct shim_conf {
    const char *path;
    shim_conf_value_t value[SHIM_SETTING_COUNT];
} shim_conf_t;

enum { SHIM_CONF_FILES = 2, SHIM_CONF_MOST_FAULTS = 8 /* reported per file */ };

typedef void (*shim_conf_complain_t)(const char *line);

/* Parses `size` bytes in place. Values point into `text`, which must outlive them; text[size] must be writable. Any
 * bytes are allowed. The caller has set conf->path and zeroed the values. */
void shim_conf_parse(shim_conf_t *conf, char *text, size_t size, shim_conf_complain_t complain);

/* Reads both files, the user's first; values live as long as the process. */
void shim_conf_read(shim_conf_t conf[SHIM_CONF_FILES], shim_conf_complain_t complain);

#endif
