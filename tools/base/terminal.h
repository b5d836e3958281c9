/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.h - what may be written to a stream beside text.
 */
#ifndef SHUNT_TOOLS_TERMINAL_H
#define SHUNT_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether control sequences work there: it is a terminal, and TERM is not `dumb`. */
bool tool_is_terminal(FILE *stream);
/* ... and colours are wanted: NO_COLOR is unset or empty (no-color.org). */
bool tool_has_colours(FILE *stream);
/* Columns of the terminal's window; 80 if it does not tell. */
int tool_columns(FILE *stream);

#endif
