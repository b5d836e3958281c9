/* SPDX-License-Identifier: Apache-2.0 */
/*
 * times.h - what `shunt tune` measured on this machine, Shunt's times and the real NCCL's: a file beside the table,
 * "<table>.times", from which `shunt run --report` computes what taken calls have saved.
 *
 *   # shunt times 1
 *   # machine: 5a3c...  (as in the table)
 *   collective,class,types,bytes,algorithm,us,nccl_us
 *   allreduce,nvswitch-sm90-4,f2,65536,oneshot,2.790,10.570
 *
 * Other lines that begin with '#' are comments. class, types and bytes are those of the table (selector/table_file.h);
 * us is the time of a call by this algorithm, nccl_us by the real NCCL in the same run. Cases without a time for NCCL
 * are left out.
 */
#ifndef SHUNT_TOOLS_TIMES_H
#define SHUNT_TOOLS_TIMES_H

#include <limits.h>
#include <stdio.h>

#include "selector/table_file.h"

typedef struct tool_time {
    alg_collective_t collective;
    char class_name[SEL_CLASS_BYTES];
    char types[SEL_FILE_TYPES_BYTES];
    char algorithm[SEL_FILE_NAME_BYTES];
    uint64_t bytes;
    double us, nccl_us;
} tool_time_t;

/* All zero: no times. The owner frees `row`. */
typedef struct tool_times {
    uint64_t machine;
    uint32_t count, capacity;
    tool_time_t *row;
} tool_times_t;

/* The path beside a table. */
void tool_times_path(const char *table, char path[PATH_MAX]);
/* Read a times file. False: there is none, or it is not a times file. Malformed lines are skipped. */
bool tool_times_read(const char *path, tool_times_t *times);
void tool_times_write(FILE *file, const tool_times_t *times);
/* Add a row; a row of the same case is replaced. False: out of memory. */
bool tool_times_put(tool_times_t *times, const tool_time_t *row);

/* Microseconds that a call like `like` saves over the real NCCL. Known for measured sizes of its algorithm, class and
 * type, and interpolated between sizes a factor of four apart or less. False: not known. `us` and `nccl_us` of `like`
 * are not read. */
bool tool_times_saved(const tool_times_t *times, const tool_time_t *like, double *us);

#endif
