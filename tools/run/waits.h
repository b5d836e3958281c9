/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.h - how long calls waited for each rank, summed over the statistics lines of all processes
 * (shim/record/waits.c).
 */
#ifndef SHUNT_TOOLS_WAITS_H
#define SHUNT_TOOLS_WAITS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/base/json.h"

enum { TOOL_WAIT_LENGTHS = 16 };

/* The waits of all ranks of a communicator for rank `rank`. */
typedef struct tool_wait {
    uint64_t communicator, waits, waited_us;
    uint64_t most_us; /* largest waited_us among the communicator's rows */
    uint32_t ranks, rank;
    uint64_t lengths[TOOL_WAIT_LENGTHS]; /* number of waits from 2^i to 2^(i + 1) ms; the last: all longer ones */
} tool_wait_t;

/* All zero: no waits. The owner frees `row`. */
typedef struct tool_waits {
    uint32_t count, capacity;
    tool_wait_t *row;
} tool_waits_t;

/* Add a statistics line of waits; other lines are ignored. False: out of memory. */
bool tool_waits_add(const char *line, tool_waits_t *waits);
/* Print a table, if there are waits, and write it as the list `waits` of an open object. The longest waits come first,
 * by communicator and within one. Sorts the rows. */
void tool_waits_print(FILE *out, tool_json_t *json, tool_waits_t *waits);

#endif
