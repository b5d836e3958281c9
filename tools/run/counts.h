/* SPDX-License-Identifier: Apache-2.0 */
/*
 * counts.h - sums the statistics of a command's processes (SHUNT_STATS=FOLDER/stats.%h.%p).
 *
 * The lines are those of shim/account/statistics.c.
 */
#ifndef SHUNT_TOOLS_COUNTS_H
#define SHUNT_TOOLS_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/run/waits.h"

/* A row: the sum of all processes' rows that have these texts. */
typedef struct tool_count {
    char collective[16], class_name[32], types[8], size[16], algorithm[24], how[12], outcome[80];
    uint64_t calls, bytes;
} tool_count_t;

/* All zero: no counts. */
typedef struct tool_counts {
    uint32_t processes; /* processes that made calls */
    uint64_t machine;   /* fingerprint of the last process's machine; 0: CPU device, or no communicator was attached */
    uint64_t taken, forwarded;
    char pinned[32]; /* NCCL's variable that forwards calls or caps grids, unless SHUNT_DETERMINISTIC is set */
    uint32_t count, capacity;
    tool_count_t *row;
    tool_waits_t waits;
} tool_counts_t;

/* Sum the folder's files stats.*. False: out of memory, or no folder. */
bool tool_counts_read(const char *folder, tool_counts_t *counts);
/* Add the text of one file, which ends with a NUL. */
bool tool_counts_add(const char *text, tool_counts_t *counts);
void tool_counts_free(tool_counts_t *counts);
/* The advice for a program with a pinned variable; false: there is none. */
bool tool_counts_pin_text(const tool_counts_t *counts, char *text, size_t capacity);
/* The advice for a program whose calls are in many graphs; false: it has few. */
bool tool_counts_graphs_text(const tool_counts_t *counts, char *text, size_t capacity);
/* Whether a row's calls were taken. */
bool tool_count_is_taken(const tool_count_t *count);

#endif
