/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.c - see keys.h.
 */
#include "tools/base/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tool_key(const char *line, const char *key)
{
    const size_t length = strlen(key);
    for (const char *at = line; at[0] != '\0' && at[0] != '\n'; at++) {
        if (at[0] == ' ' && strncmp(at + 1, key, length) == 0 && at[1 + length] == '=') {
            return at + length + 2;
        }
    }
    return NULL;
}

bool tool_key_word(const char *line, const char *key, char *value, size_t capacity)
{
    const char *found = tool_key(line, key);
    if (found != NULL) {
        snprintf(value, capacity, "%.*s", (int)strcspn(found, " \n"), found);
    }
    return found != NULL;
}

uint64_t tool_key_number(const char *line, const char *key, int base)
{
    const char *value = tool_key(line, key);
    return value != NULL ? strtoull(value, NULL, base) : 0;
}
