/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - files that options name; `-` is standard output.
 */
#ifndef SHUNT_TOOLS_OUTPUT_H
#define SHUNT_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

bool tool_is_stdout(const char *path);
/* Whether a command-line word can be an option's value: not NULL, and no option. */
bool tool_is_value(const char *word);
/* Standard output, or standard error if `path` (may be NULL) is `-`. */
FILE *tool_output_text(const char *path);
/* Open a file for writing; NULL for a path that is NULL. False after a message. */
bool tool_output_open(const char *command, const char *path, FILE **file);
/* Close the file; a standard stream is only flushed, and NULL is ignored. False after a message if a write failed. */
bool tool_output_close(const char *command, const char *path, FILE *file);

#endif
