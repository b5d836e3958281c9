/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - parses lines that the library writes: optional prose, then key=value pairs separated by spaces. The last
 * value may contain spaces.
 */
#ifndef SHUNT_TOOLS_KEYS_H
#define SHUNT_TOOLS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of a key, up to the line's end; NULL: the line has no such key. Lines end with '\n' or NUL. */
const char *tool_key(const char *line, const char *key);
/* Copy a value without spaces, cut to `capacity`; false: the line has no such key. */
bool tool_key_word(const char *line, const char *key, char *value, size_t capacity);
/* A number of base 10 or 16; 0: the line has no such key. */
uint64_t tool_key_number(const char *line, const char *key, int base);

#endif
