/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.h - what a stream's terminal can show.
 */
#ifndef SHUNT_TOOLS_TERMINAL_H
#define SHUNT_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether the stream accepts control sequences: it is a terminal, and TERM is not `dumb`. */
bool tool_is_terminal(FILE *stream);
/* The same for colours: NO_COLOR must be unset or empty (no-color.org). */
bool tool_has_colours(FILE *stream);
/* Columns of the terminal's window; 80 if unknown. */
int tool_columns(FILE *stream);

#endif
