/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - files that options name; `-` is standard output.
 */
#ifndef SHUNT_TOOLS_OUTPUT_H
#define SHUNT_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

bool tool_is_stdout(const char *path);
/* Whether a word of the command line can be an option's value; another option, or NULL, cannot. */
bool tool_is_value(const char *word);
/* Standard output for people, unless a file is `-`: then standard error. `path` may be NULL. */
FILE *tool_output_text(const char *path);
/* Open a file for writing; NULL for a path that is NULL. False after a message. */
bool tool_output_open(const char *command, const char *path, FILE **file);
/* Close it; a standard stream is only flushed, and NULL is none. False after a message if a write failed. */
bool tool_output_close(const char *command, const char *path, FILE *file);

#endif
