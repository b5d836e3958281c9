/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.h - how long calls waited for which rank: sums of all processes' statistics lines (shim/record/waits.c).
 */
#ifndef SHUNT_TOOLS_WAITS_H
#define SHUNT_TOOLS_WAITS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/base/json.h"

enum { TOOL_WAIT_LENGTHS = 16 };

/* Waits of all ranks of a communicator for one of them. */
typedef struct tool_wait {
    uint64_t communicator, waits, waited_us;
    uint64_t most_us; /* longest sum of the communicator */
    uint32_t ranks, rank;
    uint64_t lengths[TOOL_WAIT_LENGTHS]; /* from 2^i ms up to 2^(i + 1); the last: all beyond */
} tool_wait_t;

/* Zero is empty; free `row` in the end. */
typedef struct tool_waits {
    uint32_t count, capacity;
    tool_wait_t *row;
} tool_waits_t;

/* Add what a line says; another line than these adds nothing. False: no memory. */
bool tool_waits_add(const char *line, tool_waits_t *waits);
/* Print a table, none without waits, and write it as the list `waits` of an open object. The communicator and the rank
 * that was waited for the longest come first. Sorts the rows. */
void tool_waits_print(FILE *out, tool_json_t *json, tool_waits_t *waits);

#endif
