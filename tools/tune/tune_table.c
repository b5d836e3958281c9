/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_table.c - merges results into the rows of a table and writes its file.
 *
 * Rows of earlier runs for other collectives, numbers of ranks, types or sizes
 * stay.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/base/table.h"
#include "tools/tune/tune.h"

static void push(tune_rows_t *rows, const sel_file_row_t *row)
{
    if (rows->count == rows->capacity) {
        rows->capacity = rows->capacity != 0 ? 2 * rows->capacity : 64;
        rows->row = realloc(rows->row, rows->capacity * sizeof *row);
        if (rows->row == NULL) {
            perror("shunt tune");
            exit(TOOL_FAILED);
        }
    }
    rows->row[rows->count++] = *row;
}

bool tune_rows_read(const char *path, bool may_miss, tune_rows_t *rows)
{
    char *text, fault[SEL_FILE_FAULT_BYTES];
    size_t bytes;
    sel_file_t file;
    *rows = (tune_rows_t){0};
    if (!tool_table_read(path, &text, &bytes)) {
        if (may_miss && errno == ENOENT) {
            return true;
        }
        fprintf(stderr, "shunt tune: %s: %s\n", path, strerror(errno));
        return false;
    }
    if (may_miss && bytes == 0) { /* a full disk or a crash left it */
        free(text);
        return true;
    }
    bool whole = sel_file_open(&file, text, bytes, fault);
    if (!whole) {
        fprintf(stderr, "shunt tune: %s:%s\n", path, fault);
    }
    rows->machine = file.machine;
    sel_file_row_t row;
    for (sel_file_step_t step; whole && (step = sel_file_next(&file, &row, fault)) != SEL_FILE_END;) {
        if (step == SEL_FILE_ROW) {
            push(rows, &row);
        } else {
            rows->faults++;
            fprintf(stderr, "shunt tune: %s:%s; the line is skipped\n", path, fault);
        }
    }
    rows->link = file.link;
    rows->pinned = file.pinned;
    rows->measured = file.measured;
    memcpy(rows->of, file.of, sizeof rows->of);
    free(text);
    return whole;
}

bool tune_same_place(const sel_file_row_t *a, const sel_file_row_t *b)
{
    return a->collective == b->collective && a->ranks == b->ranks && strcmp(a->class_name, b->class_name) == 0;
}

const sel_file_row_t *tune_rows_find(const tune_rows_t *rows, const sel_file_row_t *like, uint32_t kind, uint64_t bytes)
{
    for (uint32_t i = rows->count; i-- > 0;) {
        const sel_file_row_t *row = &rows->row[i];
        if (tune_same_place(row, like) && (row->kinds >> kind & 1) != 0 && bytes >= row->from_bytes &&
            bytes <= row->to_bytes) {
            return row;
        }
    }
    return NULL;
}

static const char run_source[] = "run "; /* prefix of the source in a quick run's rows */

bool tune_table_is_others(const char *path, const char *class_name)
{
    tune_rows_t rows;
    bool found = false;
    if (!tune_rows_read(path, true, &rows)) {
        return false;
    }
    for (uint32_t i = 0; i < rows.count; i++) {
        found = found || (strcmp(rows.row[i].class_name, class_name) == 0 &&
                          strncmp(rows.row[i].source, run_source, strlen(run_source)) != 0);
    }
    free(rows.row);
    return found;
}

/* ---- Results of one collective, number of ranks and type ---- */

typedef struct group {
    const tune_result_t *result;
    uint32_t count;
    uint64_t from_bytes, to_bytes; /* range of sizes that the results cover */
} group_t;

static uint64_t between(uint64_t a, uint64_t b)
{
    return (uint64_t)sqrt((double)a * (double)b);
}

static bool forwards(const tune_result_t *result)
{
    const bool builtin = strcmp(result->choice, TUNE_BUILTIN) == 0;
    return strcmp(builtin ? result->builtin : result->choice, "nccl") == 0;
}

/* The last size that result i of a group covers; the first result begins at the group's first size. In a quick run,
 * NCCL gets the whole range between a size at which it wins and one at which it loses. */
static uint64_t upper(const group_t *group, uint32_t i)
{
    const uint64_t bytes = group->result[i].bytes;
    if (i + 1 < group->count && group->result[i].quick &&
        forwards(&group->result[i]) != forwards(&group->result[i + 1])) {
        return forwards(&group->result[i]) ? group->result[i + 1].bytes - 1 : bytes;
    }
    return between(bytes, i + 1 < group->count ? group->result[i + 1].bytes : 2 * bytes);
}

static group_t next_group(const tune_result_t *results, uint32_t count)
{
    group_t group = {.result = results, .count = 1};
    while (group.count < count && tune_same_group(&results[group.count], results)) {
        group.count++;
    }
    /* 1 KB, the smallest default size, covers all sizes below it. */
    group.from_bytes = results->bytes <= 1024 ? 0 : between(results->bytes / 2, results->bytes) + 1;
    group.to_bytes = upper(&group, group.count - 1);
    return group;
}

/* The speed of a collective that only moves data does not depend on the type. */
static uint8_t kinds_of(const tune_result_t *result)
{
    return alg_collective_reduces(result->collective) && !result->quick
               ? (uint8_t)(1u << sel_kind((alg_type_t)bench_types[result->type].type))
               : SEL_ANY_KIND;
}

/* The sizes and types that a group covers, as a row. */
static sel_file_row_t cover_of(const group_t *group)
{
    const tune_result_t *result = group->result;
    sel_file_row_t cover = {.collective = result->collective,
                            .ranks = result->ranks,
                            .kinds = kinds_of(result),
                            .from_bytes = group->from_bytes,
                            .to_bytes = group->to_bytes};
    memcpy(cover.class_name, result->class_name, sizeof cover.class_name);
    return cover;
}

static bool concerns(const sel_file_row_t *cover, const sel_file_row_t *row)
{
    return tune_same_place(row, cover) && (row->kinds & cover->kinds) != 0 && row->from_bytes <= cover->to_bytes &&
           row->to_bytes >= cover->from_bytes;
}

/* Remove the covered sizes and types from a row; push the remaining pieces. */
static void cut_row(const sel_file_row_t *cover, const sel_file_row_t *row, tune_rows_t *left)
{
    sel_file_row_t part = *row;
    if (row->from_bytes < cover->from_bytes) {
        part.to_bytes = cover->from_bytes - 1;
        push(left, &part);
    }
    if (row->to_bytes > cover->to_bytes) {
        part = *row;
        part.from_bytes = cover->to_bytes + 1;
        push(left, &part);
    }
    part = *row;
    part.kinds &= (uint8_t)~cover->kinds;
    if (part.kinds != 0) {
        part.from_bytes = row->from_bytes > cover->from_bytes ? row->from_bytes : cover->from_bytes;
        part.to_bytes = row->to_bytes < cover->to_bytes ? row->to_bytes : cover->to_bytes;
        push(left, &part);
    }
}

static void cut(const sel_file_row_t *cover, tune_rows_t *rows)
{
    tune_rows_t left = *rows;
    left.count = left.capacity = 0;
    left.row = NULL;
    for (uint32_t i = 0; i < rows->count; i++) {
        if (concerns(cover, &rows->row[i])) {
            cut_row(cover, &rows->row[i], &left);
        } else {
            push(&left, &rows->row[i]);
        }
    }
    free(rows->row);
    *rows = left;
}

/* A user's later rows override earlier ones; the written ones are sorted, so they must not overlap. */
static void separate(tune_rows_t *rows)
{
    tune_rows_t apart = *rows;
    apart.count = apart.capacity = 0;
    apart.row = NULL;
    for (uint32_t i = 0; i < rows->count; i++) {
        cut(&rows->row[i], &apart);
        push(&apart, &rows->row[i]);
    }
    free(rows->row);
    *rows = apart;
}

static bool same_choice(const sel_file_row_t *a, const sel_file_row_t *b)
{
    return strcmp(a->algorithm, b->algorithm) == 0 && a->blocks == b->blocks && a->threads == b->threads;
}

/* Push a row for each range of sizes with one choice, except where a built-in row makes the same choice. Where the cost
 * model makes the built-in choice, a row is pushed all the same: with other figures of the links the model may decide
 * otherwise. */
static void add(const group_t *group, const char *source, tune_rows_t *rows)
{
    const uint32_t first = rows->count;
    uint64_t from = group->from_bytes;
    for (uint32_t i = 0; i < group->count; i++) {
        const tune_result_t *result = &group->result[i];
        /* Far from a measured size a built-in row is more reliable. */
        const uint64_t most = result->quick && !result->guessed ? 2 * result->bytes : UINT64_MAX;
        const uint64_t least = result->quick && !result->guessed && i > 0 ? result->bytes / 2 : 0;
        const uint64_t end = upper(group, i);
        sel_file_row_t row = {.collective = result->collective,
                              .ranks = result->ranks,
                              .kinds = kinds_of(result),
                              .from_bytes = from < least ? least : from,
                              .to_bytes = end < most ? end : most,
                              .blocks = (uint16_t)result->blocks,
                              .threads = (uint16_t)result->threads};
        memcpy(row.class_name, result->class_name, sizeof row.class_name);
        const bool builtin = strcmp(result->choice, TUNE_BUILTIN) == 0;
        memcpy(row.algorithm, builtin ? result->builtin : result->choice, sizeof row.algorithm);
        snprintf(row.source, sizeof row.source, "%s", source);
        from = end + 1;
        sel_file_row_t *last = rows->count > first ? &rows->row[rows->count - 1] : NULL;
        if (builtin && !result->guessed) {
            continue;
        }
        if (last != NULL && same_choice(last, &row) && last->to_bytes + 1 == row.from_bytes) {
            last->to_bytes = row.to_bytes;
        } else {
            push(rows, &row);
        }
    }
}

/* Merge rows that differ only in their kinds. */
static void merge(tune_rows_t *rows)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        for (uint32_t k = i + 1; k < rows->count;) {
            sel_file_row_t *a = &rows->row[i], *b = &rows->row[k];
            if (tune_same_place(a, b) && a->from_bytes == b->from_bytes && a->to_bytes == b->to_bytes &&
                same_choice(a, b) && strcmp(a->source, b->source) == 0) {
                a->kinds |= b->kinds;
                rows->row[k] = rows->row[--rows->count];
            } else {
                k++;
            }
        }
    }
}

static int by_place(const void *a, const void *b)
{
    const sel_file_row_t *x = a, *y = b;
    const int class_order = strcmp(x->class_name, y->class_name);
    if (x->collective != y->collective) {
        return x->collective < y->collective ? -1 : 1;
    }
    if (x->ranks != y->ranks) {
        return x->ranks < y->ranks ? -1 : 1;
    }
    if (class_order != 0) {
        return class_order;
    }
    if (x->kinds != y->kinds) {
        return x->kinds < y->kinds ? -1 : 1;
    }
    return (x->from_bytes > y->from_bytes) - (x->from_bytes < y->from_bytes);
}

/* Warn about rows beyond the number that a communicator uses. */
static void warn_of_many(const tune_rows_t *rows)
{
    for (uint32_t ranks = 2; ranks <= BENCH_MAX_RANKS; ranks++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < rows->count; i++) {
            count += rows->row[i].ranks == ranks;
        }
        if (count > SEL_TUNED_ROWS) {
            fprintf(stderr,
                    "shunt tune: %u rows for %u ranks, of which programs take the first %d; tune fewer "
                    "sizes or collectives\n",
                    count, ranks, SEL_TUNED_ROWS);
        }
    }
}

static bool write_rows(FILE *file, const tune_options_t *options, const bench_machine_t *machine,
                       const tune_rows_t *rows)
{
    char line[SEL_FILE_LINE_BYTES];
    sel_file_head(rows->machine, line);
    fputs(line, file);
    sel_file_link(&rows->link, line);
    fputs(line, file);
    sel_file_pinned(&rows->pinned, line);
    fputs(line, file);
    for (uint32_t i = 0; i < rows->measured; i++) {
        sel_file_measured(&rows->of[i], line);
        fputs(line, file);
    }
    tune_report_head(file, options, machine);
    fprintf(file, "%s\n", sel_file_columns);
    for (uint32_t i = 0; i < rows->count; i++) {
        sel_file_line(&rows->row[i], line);
        fputs(line, file);
    }
    return fflush(file) == 0 && ferror(file) == 0;
}

/* Find the NCCL with which the rows of a class were measured; false: unknown. */
static bool find_nccl(const tune_rows_t *rows, const char *class_name, uint32_t *nccl)
{
    for (uint32_t i = rows->measured; i-- > 0;) {
        if (strcmp(rows->of[i].class_name, class_name) == 0) {
            *nccl = rows->of[i].nccl;
            return true;
        }
    }
    return false;
}

/* Drop a class's rows if they were measured with another NCCL: they would count as measured with this one. */
static void drop_another_nccls(const char *class_name, uint32_t nccl, tune_rows_t *rows)
{
    uint32_t last, kept = 0;
    if (!find_nccl(rows, class_name, &last) || last == nccl) {
        return;
    }
    for (uint32_t i = 0; i < rows->count; i++) {
        if (strcmp(rows->row[i].class_name, class_name) != 0) {
            rows->row[kept++] = rows->row[i];
        }
    }
    rows->count = kept;
}

/* The last line for a class names the NCCL of its rows. A full list loses the oldest line. */
static void note_class(const char *class_name, uint32_t nccl, tune_rows_t *rows)
{
    uint32_t at = 0;
    while (at < rows->measured && (strcmp(rows->of[at].class_name, class_name) != 0 || rows->of[at].nccl != nccl)) {
        at++;
    }
    at = at == SEL_FILE_CLASSES ? 0 : at;
    if (at < rows->measured) {
        rows->measured--;
        memmove(&rows->of[at], &rows->of[at + 1], (rows->measured - at) * sizeof rows->of[0]);
    }
    sel_file_measured_t *of = &rows->of[rows->measured++];
    snprintf(of->class_name, sizeof of->class_name, "%s", class_name);
    of->nccl = nccl;
}

typedef struct table {
    const tune_options_t *options;
    const bench_machine_t *machine;
    const tune_rows_t *rows;
} table_t;

static bool write_table(FILE *file, const void *context)
{
    const table_t *table = context;
    return write_rows(file, table->options, table->machine, table->rows);
}

bool tune_table_write(const char *path, const tune_options_t *options, const bench_machine_t *machine,
                      const sel_measured_t *link, const sel_pinned_measured_t *pinned, const tune_result_t *results,
                      uint32_t count)
{
    tune_rows_t rows;
    char source[SEL_FILE_SOURCE_BYTES];
    time_t now = time(NULL);
    struct tm utc;
    int length = snprintf(source, sizeof source, "%s", count > 0 && results->quick ? run_source : "tune ");
    strftime(source + length, sizeof source - (size_t)length, "%Y-%m-%d", gmtime_r(&now, &utc));
    const uint64_t fingerprint = count > 0 ? results->machine : machine->fingerprint;
    if (!tune_rows_read(path, true, &rows) || rows.machine != fingerprint) {
        free(rows.row); /* none, or another machine's: keep nothing */
        rows = (tune_rows_t){.machine = fingerprint};
    }
    separate(&rows);
    if (link->gpus != 0) {
        rows.link = *link;
    }
    if (pinned->gpus != 0) {
        rows.pinned = *pinned;
    }
    for (uint32_t done = 0; done < count;) {
        const group_t group = next_group(results + done, count - done);
        drop_another_nccls(group.result->class_name, (uint32_t)machine->nccl_version, &rows);
        const sel_file_row_t cover = cover_of(&group);
        cut(&cover, &rows);
        add(&group, source, &rows);
        note_class(group.result->class_name, (uint32_t)machine->nccl_version, &rows);
        done += group.count;
    }
    merge(&rows);
    if (rows.count != 0) {
        qsort(rows.row, rows.count, sizeof rows.row[0], by_place);
    }
    warn_of_many(&rows);
    const table_t table = {options, machine, &rows};
    bool done = tune_file_replace(path, write_table, &table);
    free(rows.row);
    return done;
}
