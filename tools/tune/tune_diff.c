/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_diff.c - prints the differences of two tables: for each collective, number of ranks, class and kind of type, the
 * sizes with different choices.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tune/tune.h"

static void choice_text(const sel_file_row_t *row, char text[48])
{
    if (row == NULL) {
        snprintf(text, 48, TUNE_BUILTIN);
    } else if (row->blocks == 0) {
        snprintf(text, 48, "%s", row->algorithm);
    } else {
        snprintf(text, 48, "%s:%ux%u", row->algorithm, row->blocks, row->threads);
    }
}

static int by_bytes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Collect every size at which either table may change its choice. */
static uint32_t bounds_of(const tune_rows_t rows[2], uint64_t *bounds)
{
    uint32_t count = 0;
    bounds[count++] = 0;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < rows[side].count; i++) {
            bounds[count++] = rows[side].row[i].from_bytes;
            if (rows[side].row[i].to_bytes != UINT64_MAX) {
                bounds[count++] = rows[side].row[i].to_bytes + 1;
            }
        }
    }
    qsort(bounds, count, sizeof bounds[0], by_bytes);
    return count;
}

static void print_difference(const sel_file_row_t *like, uint32_t kind, uint64_t from, uint64_t end,
                             const char text[2][48])
{
    char to[24] = "", types[SEL_FILE_TYPES_BYTES];
    sel_file_types((uint8_t)(1u << kind), types);
    if (end != 0) {
        snprintf(to, sizeof to, "%llu", (unsigned long long)end - 1);
    }
    printf("%s %u %s %s %llu-%s: %s, %s\n", alg_collective_name(like->collective), like->ranks, like->class_name, types,
           (unsigned long long)from, to, text[0], text[1]);
}

/* Print the differences at one place, for one kind of type. */
static uint32_t compare(const tune_rows_t rows[2], const sel_file_row_t *like, uint32_t kind, const uint64_t *bounds,
                        uint32_t count)
{
    uint32_t differences = 0;
    uint64_t from = 0;
    char open[2][48] = {"", ""}, text[2][48];
    for (uint32_t i = 0; i <= count; i++) {
        for (int side = 0; side < 2; side++) {
            choice_text(i < count ? tune_rows_find(&rows[side], like, kind, bounds[i]) : NULL, text[side]);
        }
        if (i < count && memcmp(open, text, sizeof open) == 0) {
            continue;
        }
        if (strcmp(open[0], open[1]) != 0) {
            print_difference(like, kind, from, i < count ? bounds[i] : 0, open);
            differences++;
        }
        from = i < count ? bounds[i] : 0;
        memcpy(open, text, sizeof open);
    }
    return differences;
}

/* Whether the row is the first of its place in both tables. */
static bool is_first(const tune_rows_t rows[2], const sel_file_row_t *row)
{
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < rows[side].count; i++) {
            const sel_file_row_t *other = &rows[side].row[i];
            if (other == row) {
                return true;
            }
            if (tune_same_place(other, row)) {
                return false;
            }
        }
    }
    return false;
}

static void compare_all(const tune_rows_t rows[2], uint64_t *bounds)
{
    const uint32_t count = bounds_of(rows, bounds);
    uint32_t differences = 0;
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < rows[side].count; i++) {
            for (uint32_t kind = 0; is_first(rows, &rows[side].row[i]) && kind < SEL_KINDS; kind++) {
                differences += compare(rows, &rows[side].row[i], kind, bounds, count);
            }
        }
    }
    if (differences == 0) {
        printf("no difference\n");
    }
}

int tune_diff(const char *const path[2])
{
    tune_rows_t rows[2] = {{0}, {0}};
    bool read = tune_rows_read(path[0], false, &rows[0]) && tune_rows_read(path[1], false, &rows[1]);
    uint64_t *bounds = read ? calloc(1 + 2 * ((size_t)rows[0].count + rows[1].count), sizeof *bounds) : NULL;
    if (bounds != NULL) {
        if (rows[0].machine != rows[1].machine) {
            printf("machines: %016llx, %016llx\n", (unsigned long long)rows[0].machine,
                   (unsigned long long)rows[1].machine);
        }
        compare_all(rows, bounds);
    }
    free(bounds);
    free(rows[0].row);
    free(rows[1].row);
    return bounds != NULL ? TOOL_OK : TOOL_FAILED;
}
