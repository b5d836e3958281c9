/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - finds environment variables that are mistaken for settings, and unsets those that must not affect
 * measurements before `shunt run`.
 *
 * Names are compared, not values. They are compiled in from the library's table of settings, since `shunt run` does not
 * open the library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/tool.h"

static const char *const known[] = {
#define SHIM_SETTING(kind, field, variable, fallback, initial, unit, allowed, help) variable,
#include "shim/base/settings.def"
#undef SHIM_SETTING
    "SHUNT_LIB",
    "SHUNT_RUN",
};

static bool is_known(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i]) == length && memcmp(known[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

const char *tool_setting_allows(const char *name)
{
    static const char *const allows[] = {
#define SHIM_SETTING(kind, field, variable, fallback, initial, unit, allowed, help) allowed,
#include "shim/base/settings.def"
#undef SHIM_SETTING
    };
    for (size_t i = 0; i < sizeof allows / sizeof *allows; i++) {
        if (strcmp(known[i], name) == 0) {
            return allows[i];
        }
    }
    return "";
}

bool tool_unknown_name(size_t *at, char name[TOOL_NAME_BYTES])
{
    for (; environ != NULL && environ[*at] != NULL; ++*at) {
        const char *entry = environ[*at];
        const size_t length = strcspn(entry, "=");
        if (strncmp(entry, "SHUNT_", 6) == 0 && !is_known(entry, length)) {
            snprintf(name, TOOL_NAME_BYTES, "%.*s", (int)(length < TOOL_NAME_BYTES ? length : TOOL_NAME_BYTES - 1),
                     entry);
            ++*at;
            return true;
        }
    }
    return false;
}

void tool_warn_of_names(const char *command)
{
    char name[TOOL_NAME_BYTES];
    for (size_t at = 0; tool_unknown_name(&at, name);) {
        fprintf(stderr, "shunt %s: %s is no setting, and has no effect; see: shunt settings\n", command, name);
    }
}

/* Variables of the machine: where NCCL is, and its transports. */
static const char *const machine_names[] = {
    "SHUNT_DEVICE", "SHUNT_NCCL_PATH", "SHUNT_CACHE_DIR", "SHUNT_LIB",   "SHUNT_LISTEN", "SHUNT_TIMEOUT_MS",
    "NCCL_P2P_",    "NCCL_SHM_",       "NCCL_CUMEM_",     "NCCL_NVLS_",  "NCCL_SOCKET_", "NCCL_IB_",
    "NCCL_NET",     "NCCL_TOPO_FILE",  "NCCL_CONF_FILE",  "NCCL_HOSTID",
};

static bool is_of_machine(const char *name)
{
    for (size_t i = 0; i < sizeof machine_names / sizeof *machine_names; i++) {
        if (strncmp(name, machine_names[i], strlen(machine_names[i])) == 0) {
            return true;
        }
    }
    return false;
}

void tool_forget_variables(void)
{
    char name[TOOL_NAME_BYTES];
    for (size_t at = 0; environ != NULL && environ[at] != NULL;) {
        const int length = (int)strcspn(environ[at], "=");
        const bool ours = strncmp(environ[at], "SHUNT_", 6) == 0 || strncmp(environ[at], "NCCL_", 5) == 0;
        if (!ours || length >= TOOL_NAME_BYTES || is_of_machine(environ[at])) {
            at++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", length, environ[at]);
        unsetenv(name); /* later entries move up */
    }
}
