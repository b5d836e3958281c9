/* SPDX-License-Identifier: Apache-2.0 */
/*
 * terminal.c - see terminal.h.
 */
#include "tools/base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool tool_is_terminal(FILE *stream)
{
    const char *kind = secure_getenv("TERM");
    return isatty(fileno(stream)) == 1 && (kind == NULL || strcmp(kind, "dumb") != 0);
}

bool tool_has_colours(FILE *stream)
{
    const char *none = secure_getenv("NO_COLOR");
    return tool_is_terminal(stream) && (none == NULL || none[0] == '\0');
}

int tool_columns(FILE *stream)
{
    enum { USUAL = 80 };
    struct winsize window;
    return ioctl(fileno(stream), TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : USUAL;
}
