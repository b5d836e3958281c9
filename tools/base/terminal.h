/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.h - whether a stream accepts control sequences and colours, and how wide it is.
 */
#ifndef SHUNT_TOOLS_TERMINAL_H
#define SHUNT_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether the stream accepts control sequences: it is a terminal, and TERM is not `dumb`. */
bool tool_is_terminal(FILE *stream);
/* Whether the stream accepts control sequences and the user wants colours: NO_COLOR is unset or empty
 * (no-color.org). */
bool tool_has_colours(FILE *stream);
/* Columns of the terminal's window; 80 if unknown. */
int tool_columns(FILE *stream);

#endif
