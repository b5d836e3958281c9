/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_plot.c - a table as a picture: an SVG on stdout, in which each collective,
 * number of ranks, class and kind of type is a lane over the message's size, and each
 * stretch of a lane has its algorithm's colour. Grey is the built-in choice.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tune/tune.h"

enum { LEFT = 330, RIGHT = 20, TOP = 40, LANE = 26, BAR = 18, OCTAVE = 34, FIRST_OCTAVE = 9, MOST_OCTAVES = 34 };

/* One kind at one place, or several whose rows are the same. */
typedef struct lane {
    const sel_file_row_t *like;
    uint32_t kind; /* one of them */
    uint8_t kinds; /* all of them */
} lane_t;

static const sel_file_row_t *find(const tune_rows_t *rows, const lane_t *lane, uint64_t bytes)
{
    return tune_rows_find(rows, lane->like, lane->kind, bytes);
}

/* Whether two kinds at one place have the same rows at every size. */
static bool same_lane(const tune_rows_t *rows, const lane_t *a, const lane_t *b)
{
    if (!tune_same_place(a->like, b->like)) {
        return false;
    }
    for (uint32_t i = 0; i < rows->count; i++) {
        const uint64_t from = rows->row[i].from_bytes, to = rows->row[i].to_bytes;
        if (find(rows, a, from) != find(rows, b, from) || find(rows, a, to) != find(rows, b, to) ||
            (to != UINT64_MAX && find(rows, a, to + 1) != find(rows, b, to + 1))) {
            return false;
        }
    }
    return true;
}

static bool is_there(const lane_t *lanes, uint32_t count, const lane_t *lane)
{
    for (uint32_t i = 0; i < count; i++) {
        if (lanes[i].kind == lane->kind && tune_same_place(lanes[i].like, lane->like)) {
            return true;
        }
    }
    return false;
}

/* Lanes that look the same become one. */
static uint32_t merge(const tune_rows_t *rows, lane_t *lanes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = i + 1; k < count;) {
            if (same_lane(rows, &lanes[i], &lanes[k])) {
                lanes[i].kinds |= lanes[k].kinds;
                memmove(&lanes[k], &lanes[k + 1], (--count - k) * sizeof lanes[0]);
            } else {
                k++;
            }
        }
    }
    return count;
}

/* A lane for every kind that a row is for. */
static uint32_t find_lanes(const tune_rows_t *rows, lane_t *lanes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rows->count; i++) {
        for (uint32_t kind = 0; kind < SEL_KINDS; kind++) {
            const lane_t lane = {&rows->row[i], kind, (uint8_t)(1u << kind)};
            if ((rows->row[i].kinds >> kind & 1) != 0 && !is_there(lanes, count, &lane)) {
                lanes[count++] = lane;
            }
        }
    }
    return merge(rows, lanes, count);
}

static double place(uint64_t bytes)
{
    const double octave = bytes > 0 ? log2((double)bytes) : 0;
    return LEFT + OCTAVE * (fmin(fmax(octave, FIRST_OCTAVE), MOST_OCTAVES) - FIRST_OCTAVE);
}

/* By the name's letters, so that an algorithm looks the same in every picture. */
static const char *colour(const char *name)
{
    static const char *const colours[] = {"#4878a8", "#d8863a", "#5a9c5a", "#9a6fb0", "#b85450", "#8a7a4a", "#4aa0a0"};
    if (strcmp(name, "nccl") == 0) {
        return "#76b041";
    }
    return colours[sel_class_hash(name) % (sizeof colours / sizeof colours[0])];
}

/* Names come from the table. */
static void print_name(const char *name)
{
    for (; *name != '\0'; name++) {
        if (strchr("&<>", *name) != NULL) {
            printf("&#%d;", *name);
        } else {
            putchar(*name);
        }
    }
}

static void draw_bar(const sel_file_row_t *row, uint64_t from, uint64_t to, int y)
{
    const double left = place(from), right = place(to);
    if (right - left < 1) {
        return;
    }
    printf("<rect x=\"%.0f\" y=\"%d\" width=\"%.0f\" height=\"%d\" fill=\"%s\"><title>%llu to %llu bytes: ", left, y,
           right - left, BAR, row != NULL ? colour(row->algorithm) : "#dddddd", (unsigned long long)from,
           (unsigned long long)to);
    print_name(row != NULL ? row->algorithm : TUNE_BUILTIN);
    printf(row != NULL && row->blocks != 0 ? " %u x %u</title></rect>\n" : "</title></rect>\n",
           row != NULL ? row->blocks : 0, row != NULL ? row->threads : 0);
    if (right - left > 60) {
        printf("<text x=\"%.0f\" y=\"%d\" fill=\"white\">", left + 4, y + BAR - 5);
        print_name(row != NULL ? row->algorithm : "");
        printf("</text>\n");
    }
}

static void draw_lane(const tune_rows_t *rows, const lane_t *lane, int y)
{
    char types[SEL_FILE_TYPES_BYTES];
    sel_file_types(lane->kinds, types);
    printf("<text x=\"10\" y=\"%d\">%s, ", y + BAR - 5, alg_collective_name(lane->like->collective));
    print_name(lane->like->class_name);
    printf(", %s</text>\n", types);
    uint64_t from = 0;
    for (int step = FIRST_OCTAVE * 16; step <= MOST_OCTAVES * 16; step++) {
        const uint64_t at = (uint64_t)exp2(step / 16.0), end = (uint64_t)exp2((step + 1) / 16.0);
        const sel_file_row_t *row = find(rows, lane, at);
        if (step == MOST_OCTAVES * 16 || find(rows, lane, end) != row) {
            draw_bar(row, from, end, y);
            from = end;
        }
    }
}

static void draw_axis(int bottom)
{
    static const char *const units[] = {"", "K", "M", "G"};
    for (int octave = 10; octave <= MOST_OCTAVES; octave += 2) {
        const double x = place(1ull << octave);
        printf("<line x1=\"%.0f\" y1=\"%d\" x2=\"%.0f\" y2=\"%d\" stroke=\"#bbbbbb\"/>\n", x, TOP - 6, x, bottom);
        printf("<text x=\"%.0f\" y=\"%d\" text-anchor=\"middle\">%d%s</text>\n", x, TOP - 12, 1 << octave % 10,
               units[octave / 10]);
    }
}

int tune_plot(const char *path)
{
    tune_rows_t rows;
    if (!tune_rows_read(path, false, &rows)) {
        return TOOL_FAILED;
    }
    lane_t *lanes = calloc((size_t)rows.count * SEL_KINDS + 1, sizeof *lanes);
    const uint32_t count = lanes != NULL ? find_lanes(&rows, lanes) : 0;
    const int width = LEFT + OCTAVE * (MOST_OCTAVES - FIRST_OCTAVE) + RIGHT, height = TOP + LANE * (int)count + 10;
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
           "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
           width, height, width, height);
    draw_axis(height - 10);
    for (uint32_t i = 0; i < count; i++) {
        draw_lane(&rows, &lanes[i], TOP + LANE * (int)i);
    }
    printf("</svg>\n");
    free(lanes);
    free(rows.row);
    return TOOL_OK;
}
