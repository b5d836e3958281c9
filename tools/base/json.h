/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - writes a JSON document to a stream.
 *
 * The state is a plain value: to complete a document early and still continue it, end a copy and seek back.
 */
#ifndef SHUNT_TOOLS_JSON_H
#define SHUNT_TOOLS_JSON_H

#include <stdbool.h>
#include <stdio.h>

typedef struct tool_json {
    FILE *file; /* NULL: nothing is written */
    int lines;  /* members down to this depth get a line each; 0: the document is one line */
    int depth;
    bool filled; /* the innermost object or list has a member */
} tool_json_t;

/* `name`: an object member's name; NULL: a list's member, or the document. */

/* Begin an object with `{` or a list with `[`; end it with the closing bracket. The last end adds a line break. */
void tool_json_begin(tool_json_t *json, const char *name, char bracket);
void tool_json_end(tool_json_t *json, char bracket);
/* Write a string, or null for NULL. Bytes that are not UTF-8 become U+FFFD. */
void tool_json_text(tool_json_t *json, const char *name, const char *text);
/* As tool_json_text, but an empty text becomes null too. */
void tool_json_word(tool_json_t *json, const char *name, const char *text);
/* Write a number, true, false or null, formatted as by printf. */
void tool_json_value(tool_json_t *json, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tool_json_bool(tool_json_t *json, const char *name, bool value);

#endif
