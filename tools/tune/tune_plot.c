/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_plot.c - prints a table as an SVG picture. Each collective, number of ranks, class and kind of type has a lane
 * (a line of the picture) over the buffer's size. Each row is a stretch of a lane in its algorithm's colour, labelled
 * with the algorithm's name, or if that does not fit with its number in the legend. Grey is the built-in choice. The
 * axis covers the measured sizes, from the times file beside the table.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/times.h"
#include "tools/tune/tune.h"

enum {
    LEFT = 330,
    RIGHT = 30,
    TOP = 56,
    LANE = 26,
    BAR = 18,
    PLOT = 850,        /* least width of the axis */
    LEAST_OCTAVE = 34, /* least octave width */
    FIRST_OCTAVE = 9,
    MOST_OCTAVES = 34,
    LEGEND = 150, /* width of the legend's entries */
    ENTRY = 20,   /* height of the legend's entries */
    MOST_NAMES = 64
};

#define BUILTIN_COLOUR "#dddddd"

/* A line of the picture: kinds of type with the same rows (tune_same_place). */
typedef struct lane {
    const sel_file_row_t *like;
    uint32_t kind; /* one of the lane's kinds */
    uint8_t kinds; /* bit mask of the lane's kinds */
} lane_t;

static const sel_file_row_t *find(const tune_rows_t *rows, const lane_t *lane, uint64_t bytes)
{
    return tune_rows_find(rows, lane->like, lane->kind, bytes);
}

/* Whether two lanes of one place have the same rows. */
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

/* Make a lane for every kind of type that a row covers. */
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

typedef struct picture {
    const tune_rows_t *rows;
    const tool_times_t *times;      /* empty: there is no times file */
    int first, last, octave;        /* first and last octave of the axis, and an octave's width */
    const char *name[MOST_NAMES];   /* names of algorithms, in alphabetical order */
    const char *colour[MOST_NAMES]; /* colours of the algorithms */
    uint32_t names;
} picture_t;

static void widen(picture_t *picture, uint64_t bytes)
{
    const int octave = bytes > 0 ? (int)log2((double)bytes) : 0;
    const int in = octave < FIRST_OCTAVE ? FIRST_OCTAVE : octave >= MOST_OCTAVES ? MOST_OCTAVES - 1 : octave;
    picture->first = in < picture->first ? in : picture->first;
    picture->last = in + 1 > picture->last ? in + 1 : picture->last;
}

/* The axis covers the measured sizes; without a times file, the ends of the rows. */
static void find_scale(picture_t *picture)
{
    picture->first = MOST_OCTAVES;
    picture->last = FIRST_OCTAVE;
    for (uint32_t i = 0; i < picture->times->count; i++) {
        widen(picture, picture->times->row[i].bytes);
    }
    for (uint32_t i = 0; picture->times->count == 0 && i < picture->rows->count; i++) {
        const sel_file_row_t *row = &picture->rows->row[i];
        if (row->from_bytes > 1) {
            widen(picture, row->from_bytes);
        }
        if (row->to_bytes != UINT64_MAX) {
            widen(picture, row->to_bytes);
        }
    }
    if (picture->first >= picture->last) { /* no row has a limit */
        picture->first = FIRST_OCTAVE;
        picture->last = MOST_OCTAVES;
    }
    const int octave = PLOT / (picture->last - picture->first);
    picture->octave = octave > LEAST_OCTAVE ? octave : LEAST_OCTAVE;
}

static double place(const picture_t *picture, uint64_t bytes)
{
    const double octave = bytes > 0 ? log2((double)bytes) : 0;
    return LEFT + picture->octave * (fmin(fmax(octave, picture->first), picture->last) - picture->first);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Choose by the name's letters, so that an algorithm has one colour in all pictures, if possible. */
static void choose_colours(picture_t *picture)
{
    static const char *const colours[] = {"#4878a8", "#d8863a", "#5a9c5a", "#9a6fb0", "#b85450", "#8a7a4a",
                                          "#4aa0a0", "#c06090", "#5060c0", "#a0a030", "#706050", "#308060"};
    enum { COLOURS = sizeof colours / sizeof colours[0] };
    uint32_t taken = 0;
    for (uint32_t i = 0; i < picture->names; i++) {
        uint32_t at = sel_class_hash(picture->name[i]) % COLOURS;
        if (strcmp(picture->name[i], "nccl") == 0) {
            picture->colour[i] = "#76b041";
            continue;
        }
        for (uint32_t tries = 0; tries < COLOURS && (taken >> at & 1) != 0; tries++) {
            at = (at + 1) % COLOURS;
        }
        taken |= 1u << at;
        picture->colour[i] = colours[at];
    }
}

static void find_names(picture_t *picture)
{
    for (uint32_t i = 0; i < picture->rows->count; i++) {
        const char *name = picture->rows->row[i].algorithm;
        uint32_t at = 0;
        while (at < picture->names && strcmp(picture->name[at], name) != 0) {
            at++;
        }
        if (at == picture->names && at < MOST_NAMES) {
            picture->name[picture->names++] = name;
        }
    }
    qsort(picture->name, picture->names, sizeof picture->name[0], by_name);
    choose_colours(picture);
}

/* An algorithm's number in the legend, from 1 on; 0: none. */
static uint32_t number_of(const picture_t *picture, const char *name)
{
    for (uint32_t i = 0; i < picture->names; i++) {
        if (strcmp(picture->name[i], name) == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* Escaped: the table's file may have any name. */
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

/* Draw the name if it fits, else its number in the legend. */
static void draw_label(const picture_t *picture, const char *name, double left, double width, int y)
{
    enum { LETTER = 7, NUMBER = 9 };
    const uint32_t number = number_of(picture, name);
    const bool fits = (double)(strlen(name) * LETTER + 6) <= width;
    if (!fits && (number == 0 || width < (number > 9 ? 2 : 1) * NUMBER)) {
        return;
    }
    printf("<text x=\"%.1f\" y=\"%d\" fill=\"white\" text-anchor=\"middle\">", left + width / 2, y + BAR - 5);
    if (fits) {
        print_name(name);
    } else {
        printf("%u", number);
    }
    printf("</text>\n");
}

static void draw_bar(const picture_t *picture, const sel_file_row_t *row, uint64_t from, uint64_t to, int y)
{
    const double left = place(picture, from), width = place(picture, to) - left;
    const uint32_t number = row != NULL ? number_of(picture, row->algorithm) : 0;
    if (width < 0.5) {
        return;
    }
    printf("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%llu to %llu bytes: ", left, y,
           width, BAR, number != 0 ? picture->colour[number - 1] : BUILTIN_COLOUR, (unsigned long long)from,
           (unsigned long long)to);
    print_name(row != NULL ? row->algorithm : TUNE_BUILTIN);
    printf(row != NULL && row->blocks != 0 ? " %u x %u</title></rect>\n" : "</title></rect>\n",
           row != NULL ? row->blocks : 0, row != NULL ? row->threads : 0);
    if (row != NULL) {
        draw_label(picture, row->algorithm, left, width, y);
    }
}

static void draw_sizes(const picture_t *picture, const lane_t *lane, const char *types, int y)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < picture->times->count; i++) {
        const tool_time_t *time = &picture->times->row[i];
        const bool same = strcmp(types, "any") == 0 || strcmp(time->types, "any") == 0 || strstr(types, time->types);
        if (time->collective == lane->like->collective && strcmp(time->class_name, lane->like->class_name) == 0 &&
            same && time->bytes != last) {
            const double x = place(picture, time->bytes);
            printf("<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#444444\"/>\n", x, y + BAR, x,
                   y + BAR + 4);
            last = time->bytes;
        }
    }
}

static void draw_lane(const picture_t *picture, const lane_t *lane, int y)
{
    char types[SEL_FILE_TYPES_BYTES];
    sel_file_types(lane->kinds, types);
    printf("<text x=\"10\" y=\"%d\">%s, ", y + BAR - 5, alg_collective_name(lane->like->collective));
    print_name(lane->like->class_name);
    printf(", %s</text>\n", types);
    uint64_t from = (uint64_t)1 << picture->first;
    for (int step = picture->first * 16; step < picture->last * 16; step++) {
        const uint64_t at = (uint64_t)exp2(step / 16.0), end = (uint64_t)exp2((step + 1) / 16.0);
        const sel_file_row_t *row = find(picture->rows, lane, at);
        if (step + 1 == picture->last * 16 || find(picture->rows, lane, end) != row) {
            draw_bar(picture, row, from, end, y);
            from = end;
        }
    }
    draw_sizes(picture, lane, types, y);
}

static void draw_axis(const picture_t *picture, int bottom)
{
    static const char *const units[] = {"", "K", "M", "G"};
    const int each = picture->octave >= 2 * LEAST_OCTAVE ? 1 : 2;
    printf("<text x=\"%d\" y=\"20\">bytes of the larger buffer of a rank%s</text>\n", LEFT,
           picture->times->count > 0 ? "; marks below a lane: sizes that were measured beside NCCL" : "");
    for (int octave = picture->first + (each == 2 ? picture->first % 2 : 0); octave <= picture->last; octave += each) {
        const double x = place(picture, (uint64_t)1 << octave);
        printf("<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#bbbbbb\"/>\n", x, TOP - 6, x, bottom);
        printf("<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d%s</text>\n", x, TOP - 12, 1 << octave % 10,
               units[octave / 10]);
    }
}

static int legend_columns(int width)
{
    const int columns = (width - 20) / LEGEND;
    return columns > 0 ? columns : 1;
}

static int legend_lines(const picture_t *picture, int width)
{
    const int columns = legend_columns(width);
    return ((int)picture->names + 1 + columns - 1) / columns;
}

static void draw_legend(const picture_t *picture, int width, int top)
{
    const int columns = legend_columns(width);
    for (uint32_t i = 0; i <= picture->names; i++) {
        const bool named = i < picture->names;
        const int x = 10 + (int)i % columns * LEGEND, y = top + (int)i / columns * ENTRY;
        printf("<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"14\" fill=\"%s\"/>\n", x, y,
               named ? picture->colour[i] : BUILTIN_COLOUR);
        if (named) {
            printf("<text x=\"%d\" y=\"%d\" fill=\"white\" text-anchor=\"middle\">%u</text>\n", x + 11, y + 11, i + 1);
        }
        printf("<text x=\"%d\" y=\"%d\">", x + 28, y + 11);
        print_name(named ? picture->name[i] : "the built-in choice");
        printf("</text>\n");
    }
}

static void draw(const picture_t *picture, const lane_t *lanes, uint32_t count)
{
    const int bottom = TOP + LANE * (int)count;
    const int width = LEFT + picture->octave * (picture->last - picture->first) + RIGHT;
    const int height = bottom + 14 + ENTRY * legend_lines(picture, width);
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
           "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
           width, height, width, height);
    draw_axis(picture, bottom);
    for (uint32_t i = 0; i < count; i++) {
        draw_lane(picture, &lanes[i], TOP + LANE * (int)i);
    }
    draw_legend(picture, width, bottom + 10);
    printf("</svg>\n");
}

int tune_plot(const char *path)
{
    tune_rows_t rows;
    tool_times_t times;
    char beside[PATH_MAX];
    if (!tune_rows_read(path, false, &rows)) {
        return TOOL_FAILED;
    }
    tool_times_path(path, beside);
    (void)tool_times_read(beside, &times); /* a table without a times file is drawn, too */
    lane_t *lanes = calloc((size_t)rows.count * SEL_KINDS + 1, sizeof *lanes);
    const uint32_t count = lanes != NULL ? find_lanes(&rows, lanes) : 0;
    picture_t picture = {.rows = &rows, .times = &times};
    find_scale(&picture);
    find_names(&picture);
    draw(&picture, lanes, count);
    free(lanes);
    free(times.row);
    free(rows.row);
    return TOOL_OK;
}
