/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - what `shunt run --report` says at the end.
 */
#ifndef SHUNT_TOOLS_REPORT_H
#define SHUNT_TOOLS_REPORT_H

#include <stdio.h>

#include "counts.h"
#include "times.h"

/* A table per collective and size. `times`: what was measured here; empty: nothing. Sorts the counts. */
void tool_report_print(FILE *out, tool_counts_t *counts, const tool_times_t *times);

/* The times that belong to a machine's table: that of SHUNT_TABLE, or of the cache folder. Empty: there are none. */
void tool_report_times(uint64_t machine, tool_times_t *times);

#endif
