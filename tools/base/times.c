/* SPDX-License-Identifier: Apache-2.0 */
/*
 * times.c - see times.h.
 */
#include "tools/base/times.h"

#include <math.h>
#include <string.h>

#include "tools/base/tool.h"

static const char head[] = "# shunt times 1\n";
static const double most_step = 4; /* largest ratio of two measured sizes between which times are interpolated */

void tool_times_path(const char *table, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.*s.times", PATH_MAX - 8, table);
}

static bool same_case(const tool_time_t *a, const tool_time_t *b)
{
    return a->collective == b->collective && strcmp(a->class_name, b->class_name) == 0 &&
           strcmp(a->types, b->types) == 0 && strcmp(a->algorithm, b->algorithm) == 0;
}

bool tool_times_put(tool_times_t *times, const tool_time_t *row)
{
    for (uint32_t i = 0; i < times->count; i++) {
        if (times->row[i].bytes == row->bytes && same_case(&times->row[i], row)) {
            times->row[i] = *row;
            return true;
        }
    }
    if (!tool_grow((void **)&times->row, times->count, &times->capacity, sizeof *row)) {
        return false;
    }
    times->row[times->count++] = *row;
    return true;
}

static bool read_row(const char *line, tool_time_t *row)
{
    char collective[16];
    unsigned long long bytes;
    *row = (tool_time_t){0};
    if (sscanf(line, "%15[^,],%31[^,],%31[^,],%llu,%23[^,],%lf,%lf", collective, row->class_name, row->types, &bytes,
               row->algorithm, &row->us, &row->nccl_us) != 7) {
        return false;
    }
    row->collective = alg_collective_find(collective);
    row->bytes = bytes;
    return row->collective < ALG_COLLECTIVE_COUNT && bytes > 0 && row->us > 0 && row->nccl_us > 0 &&
           isfinite(row->us) && isfinite(row->nccl_us);
}

bool tool_times_read(const char *path, tool_times_t *times)
{
    char line[SEL_FILE_LINE_BYTES];
    *times = (tool_times_t){0};
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    const bool whole = fgets(line, sizeof line, file) != NULL && strcmp(line, head) == 0;
    tool_time_t row;
    unsigned long long machine;
    while (whole && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "# machine: %16llx", &machine) == 1) {
            times->machine = machine;
        } else if (line[0] != '#' && read_row(line, &row) && !tool_times_put(times, &row)) {
            break;
        }
    }
    fclose(file);
    return whole;
}

void tool_times_write(FILE *file, const tool_times_t *times)
{
    fprintf(file, "%s# machine: %016llx\ncollective,class,types,bytes,algorithm,us,nccl_us\n", head,
            (unsigned long long)times->machine);
    for (uint32_t i = 0; i < times->count; i++) {
        const tool_time_t *row = &times->row[i];
        fprintf(file, "%s,%s,%s,%llu,%s,%.3f,%.3f\n", alg_collective_name(row->collective), row->class_name, row->types,
                (unsigned long long)row->bytes, row->algorithm, row->us, row->nccl_us);
    }
}

/* Interpolate linearly on logarithmic axes. */
static double between(double low, double high, double part)
{
    return exp(log(low) + (log(high) - log(low)) * part);
}

bool tool_times_saved(const tool_times_t *times, const tool_time_t *like, double *us)
{
    const tool_time_t *below = NULL, *above = NULL;
    for (uint32_t i = 0; i < times->count; i++) {
        const tool_time_t *row = &times->row[i];
        if (!same_case(row, like)) {
            continue;
        }
        if (row->bytes <= like->bytes && (below == NULL || row->bytes > below->bytes)) {
            below = row;
        }
        if (row->bytes >= like->bytes && (above == NULL || row->bytes < above->bytes)) {
            above = row;
        }
    }
    if (below == NULL || above == NULL || (double)above->bytes > most_step * (double)below->bytes) {
        return false;
    }
    const double part = above == below ? 0
                                       : log((double)like->bytes / (double)below->bytes) /
                                             log((double)above->bytes / (double)below->bytes);
    *us = between(below->nccl_us, above->nccl_us, part) - between(below->us, above->us, part);
    return true;
}
