/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.c - see output.h.
 */
#include "tools/base/output.h"

#include <errno.h>
#include <string.h>

bool tool_is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

bool tool_is_value(const char *word)
{
    return word != NULL && (word[0] != '-' || tool_is_stdout(word));
}

FILE *tool_output_text(const char *path)
{
    return tool_is_stdout(path) ? stderr : stdout;
}

bool tool_output_open(const char *command, const char *path, FILE **file)
{
    *file = path == NULL ? NULL : tool_is_stdout(path) ? stdout : fopen(path, "we");
    if (path != NULL && *file == NULL) {
        fprintf(stderr, "shunt %s: %s: %s\n", command, path, strerror(errno));
        return false;
    }
    return true;
}

bool tool_output_close(const char *command, const char *path, FILE *file)
{
    if (file == NULL) {
        return true;
    }
    bool whole = ferror(file) == 0;
    whole = (file == stdout || file == stderr ? fflush(file) : fclose(file)) == 0 && whole;
    if (!whole) {
        fprintf(stderr, "shunt %s: %s could not be written whole\n", command, path);
    }
    return whole;
}
