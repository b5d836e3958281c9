/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - the final report of `shunt run --report`.
 */
#ifndef SHUNT_TOOLS_REPORT_H
#define SHUNT_TOOLS_REPORT_H

#include <stdio.h>

#include "tools/base/json.h"
#include "tools/base/times.h"
#include "tools/run/counts.h"

/* Print a table by collective and size, and write it as members of an open object. `times` are those measured on this
 * machine, and may be empty. Sorts the counts. */
void tool_report_print(FILE *out, tool_json_t *json, tool_counts_t *counts, const tool_times_t *times);

/* Read the times file of a machine's table (SHUNT_TABLE, or in the cache folder). Empty: there is none. */
void tool_report_times(uint64_t machine, tool_times_t *times);

#endif
