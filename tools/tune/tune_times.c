/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_times.c - writes the times of a run of `shunt tune` to the file beside the table (times.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/times.h"
#include "tools/tune/tune.h"

/* The speed of a collective that only moves data does not depend on the type. */
static void types_of(const tune_result_t *result, char types[SEL_FILE_TYPES_BYTES])
{
    const uint32_t kind = sel_kind((alg_type_t)bench_types[result->type].type);
    sel_file_types(alg_collective_reduces(result->collective) ? (uint8_t)(1u << kind) : SEL_ANY_KIND, types);
}

/* The built-in choice is first, so that the table's time replaces it if both have the same algorithm. */
static bool put(tool_times_t *times, const tune_result_t *result)
{
    const char *const names[] = {result->builtin, result->choice};
    const double seconds[] = {result->builtin_seconds, result->seconds};
    for (int i = 0; i < 2; i++) {
        tool_time_t row = {.collective = result->collective,
                           .bytes = result->bytes,
                           .us = seconds[i] * 1e6,
                           .nccl_us = result->nccl_seconds * 1e6};
        snprintf(row.class_name, sizeof row.class_name, "%s", result->class_name);
        snprintf(row.algorithm, sizeof row.algorithm, "%s", names[i]);
        types_of(result, row.types);
        const bool ours = strcmp(names[i], "nccl") != 0 && strcmp(names[i], TUNE_BUILTIN) != 0;
        if (ours && row.us > 0 && row.nccl_us > 0 && !tool_times_put(times, &row)) {
            return false;
        }
    }
    return true;
}

static bool write_times(FILE *file, const void *times)
{
    tool_times_write(file, times);
    return fflush(file) == 0 && ferror(file) == 0;
}

bool tune_times_write(const char *table, const tune_result_t *results, uint32_t count)
{
    char path[PATH_MAX];
    tool_times_t times;
    tool_times_path(table, path);
    if (!tool_times_read(path, &times) || times.machine != results->machine) {
        free(times.row); /* none, or another machine's: keep nothing */
        times = (tool_times_t){.machine = results->machine};
    }
    bool done = true;
    for (uint32_t i = 0; i < count && done; i++) {
        done = put(&times, &results[i]);
    }
    if (!done) {
        perror("shunt tune");
    }
    done = done && (times.count == 0 || tune_file_replace(path, write_times, &times));
    free(times.row);
    return done;
}
