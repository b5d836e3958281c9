/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - see table.h.
 */
#include "tools/base/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "selector/table_file.h"

bool tool_table_read(const char *path, char **text, size_t *bytes)
{
    const int number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* without O_NONBLOCK a pipe would block */
    if (number < 0) {
        return false;
    }
    FILE *file = fdopen(number, "r");
    if (file == NULL) {
        close(number);
        return false;
    }
    *text = malloc(SEL_FILE_MOST_BYTES + 1);
    *bytes = *text != NULL ? fread(*text, 1, SEL_FILE_MOST_BYTES + 1, file) : 0;
    const int error = errno;
    const bool whole = *text != NULL && ferror(file) == 0;
    fclose(file);
    if (!whole) {
        free(*text);
        errno = error;
    }
    return whole;
}

bool tool_table_is_used(const char *path, uint64_t machine, bool forced, char fault[TOOL_ERROR_BYTES])
{
    char *text, place[SEL_FILE_FAULT_BYTES];
    size_t bytes;
    sel_file_t file;
    if (!tool_table_read(path, &text, &bytes)) {
        snprintf(fault, TOOL_ERROR_BYTES, "%.300s: %s", path, strerror(errno));
        return false;
    }
    const bool is_table = sel_file_open(&file, text, bytes, place);
    free(text);
    if (!is_table) {
        snprintf(fault, TOOL_ERROR_BYTES, "%.300s:%s", path, place);
        return false;
    }
    if (file.machine != machine && !forced) {
        snprintf(fault, TOOL_ERROR_BYTES, "%.300s was measured on another machine (%016llx, this is %016llx)", path,
                 (unsigned long long)file.machine, (unsigned long long)machine);
        return false;
    }
    return true;
}
