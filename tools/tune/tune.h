/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.h - the parts of `shunt tune` and their interfaces.
 *
 *   tune.c          the command: one family of ranks for each number of them,
 *                   progress, what to do when it is interrupted
 *   tune_options.c  the command line, and the cases that it asks for
 *   tune_first.c    what `shunt run` measures before its program, on a note
 *   tune_note.c     that note
 *   tune_points.c   the sizes of such a quick run
 *   tune_rank.c     one rank: the candidates of a case, heats, the winner
 *   tune_beside.c   --beside: candidates beside matrix products
 *   tune_choice.c   the gain that a choice needs; --beside: the choice by two prices
 *   tune_table.c    from results to the rows of a table, and into the file
 *   tune_times.c    the times themselves, beside the table
 *   tune_file.c     how both are written
 *   tune_report.c   what was measured, as text, CSV and JSON
 *   tune_diff.c     --diff
 *   tune_plot.c     --plot
 *
 * Ranks, clocks and libraries are those of `shunt bench` (bench.h). shunt_set_policy selects a candidate, so one family
 * of ranks measures them all.
 */
#ifndef SHUNT_TUNE_H
#define SHUNT_TUNE_H

#include <stdio.h>

#include "selector/table_file.h"
#include "tools/bench/bench.h"

int tool_tune(int argc, char **argv);

/* If a program has left a note that this machine was not measured, measure it for a few seconds and write a table.
 * Waits while another process of this node measures. A failure is only a line on stderr. Changes no settings of this
 * process, opens no library in it and writes nothing to stdout. */
void tune_first(void);

double tune_now(void);
/* The note that a program leaves if its machine has no table. */
typedef struct tune_note {
    uint64_t machine;
    uint32_t ranks, nccl_version;
    char class_name[SEL_CLASS_BYTES], nccl[PATH_MAX]; /* the NCCL's path; "-": CPU device */
    char path[PATH_MAX + NAME_MAX + 2];
} tune_note_t;

/* Find the note to follow: of this node's notes without `never` or a failure of the last hour, the one with the most
 * ranks that the visible GPUs allow. Removes this node's malformed notes and those with old failures, and any host's
 * notes that are a week old: the next program without a table leaves a new one. Notes with `never` stay, so that no
 * program leaves another. Other users' files are ignored, since a note names a library to open. */
bool tune_note_find(const char *folder, tune_note_t *note);
/* Lock the note and read it again. Returns the file, which holds the lock. Waits up to `most_s` seconds for another
 * process that measures; after one second a line on `tell` reports it. -1: another process has measured or still
 * measures, or files cannot be locked here. */
int tune_note_lock(tune_note_t *note, double most_s, int tell);

typedef enum tune_note_end {
    TUNE_NOTE_DONE,   /* a table exists: the note is removed */
    TUNE_NOTE_FAILED, /* not tried again for an hour */
    TUNE_NOTE_NEVER   /* never tried again */
} tune_note_end_t;
void tune_note_end(const tune_note_t *note, int file, tune_note_end_t end);
/* Remove the notes with `never` of this machine and any host from the folder of its table. */
void tune_note_forget(const char *table, uint64_t machine);
/* Why these GPUs cannot be measured now; NULL if they can. Sets `unfit` if they never can for this note. */
const char *tune_note_obstacle(const tune_note_t *note, const bench_machine_t *machine, bool *unfit);

enum {
    TUNE_MOST_SIZES = 96,
    TUNE_MOST_TYPES = 16, /* at least bench_type_count */
    TUNE_MOST_POINTS = 24,
    TUNE_MOST_RESULTS = ALG_COLLECTIVE_COUNT * BENCH_MAX_RANKS * TUNE_MOST_TYPES * TUNE_MOST_SIZES
};

typedef struct tune_options {
    uint64_t from_bytes, to_bytes;
    uint32_t ranks;       /* 0: every number from 2 to all GPUs */
    uint32_t collectives; /* bit c: an alg_collective_t */
    uint32_t types;       /* bit i: bench_types[i] */
    bool eager;           /* time eager calls; otherwise graphs */
    double limit_s;       /* the time limit */
    bool to_given, mode_given;
    bool check;
    bool beside; /* choose also by the time beside products; with `check`, a row may cost TUNE_MOST_COST */
    bool quick;  /* few sizes by tune_points_next, one type for all, few grids and rounds */
    bool help;
    const char *table;   /* the table to write, or with `check` to read; NULL: the one in the cache folder */
    const char *csv;     /* CSV file; NULL: none */
    const char *json;    /* JSON file; NULL: none. "-", as for csv: stdout; the text then goes to stderr */
    const char *diff[2]; /* two tables; NULL: no comparison */
    const char *plot;    /* a table; NULL: no picture */
    uint32_t sizes;      /* filled in by tune_complete */
    uint64_t size[TUNE_MOST_SIZES];
    char line[512]; /* the command line, for the files */
} tune_options_t;

/* TOOL_OK, or TOOL_USAGE after a message on stderr. */
int tune_options_parse(tune_options_t *options, int argc, char **argv);
extern const char tune_help[];
/* Measure one family by the quick `options` into the machine's table; sets `path` to it. Returns the number of measured
 * sizes. 0, after a message: no table was written, as when coarse sizes are missing. 0 and `declined`: the table has
 * rows of a full run. */
uint32_t tune_quick(tune_options_t *options, bench_machine_t *machine, char path[PATH_MAX], bool *declined);
/* Fill in options that depend on the machine. TOOL_OK; TOOL_USAGE or TOOL_FAILED after a message. */
int tune_complete(tune_options_t *options, const bench_machine_t *machine);

/* ---- One case, measured ----------------------------------------------------------------- */

/* The built-in choice: no row, unless it was a prediction. */
#define TUNE_BUILTIN "builtin"

typedef struct tune_result {
    alg_collective_t collective;
    uint32_t ranks;
    bool captured;
    int32_t type; /* index into bench_types */
    uint64_t bytes;
    uint64_t machine; /* as in shunt_communicator_t */
    char class_name[SEL_CLASS_BYTES];
    char choice[SEL_FILE_NAME_BYTES]; /* algorithm, nccl or TUNE_BUILTIN; --check: the tuned table's choice */
    uint32_t blocks, threads;
    char builtin[SEL_FILE_NAME_BYTES]; /* the built-in table's choice: algorithm or nccl */
    bool guessed;                      /* predicted by the cost model, without a row */
    double seconds;                    /* time of the choice on the slowest rank, median over rounds */
    double spread;                     /* half of the rounds lie within this fraction of the median */
    double builtin_seconds;
    double nccl_seconds;   /* 0: not measured */
    double beside_seconds; /* time until many calls and the products beside them have ended; 0: not measured */
    double builtin_beside_seconds, nccl_beside_seconds;
    uint32_t candidates; /* number of different launches */
    bool quick;          /* a result of a quick run */
} tune_result_t;

/* A measured size of a collective and its choice; points are in order of size. */
typedef struct tune_point {
    uint64_t bytes;
    char choice[SEL_FILE_NAME_BYTES]; /* an algorithm or nccl */
} tune_point_t;
typedef struct tune_points {
    uint64_t from_bytes, to_bytes;
    uint32_t count;
    tune_point_t point[TUNE_MOST_POINTS];
} tune_points_t;

/* The next size to measure: first coarse sizes over the whole range; then, unless `coarse`, sizes between neighbours
 * with different choices until these are a factor of two apart. 0: none. Pure. */
uint64_t tune_points_next(const tune_points_t *points, bool coarse);
void tune_points_add(tune_points_t *points, uint64_t bytes, const char *choice);
/* The number of coarse sizes of a range. Pure. */
uint32_t tune_points_coarse(uint64_t from_bytes, uint64_t to_bytes);

/* The next type to measure, from `type` on; one type is enough for collectives that only move data. bench_type_count:
 * none. */
uint32_t tune_next_type(const tune_options_t *options, alg_collective_t collective, uint32_t type);

/* The ratios by which one choice must be faster than another; the middle half of its times must also lie below the
 * other's. Below 1: it may be slower. */
typedef struct tune_leads {
    double over_nccl, over_builtin; /* gains of a candidate */
    double nccl_over_builtin;       /* gain of NCCL over a built-in choice of Shunt's */
} tune_leads_t;
/* `guessed`: the cost model makes the built-in choice, not a row. Pure. */
tune_leads_t tune_leads(bool quick, bool captured, bool guessed);

/* A choice with gains beside products may be slower alone by this ratio. */
#define TUNE_MOST_COST 1.03

/* Seconds of one call alone, and of a fixed number of calls beside products. */
typedef struct tune_price {
    double alone, beside;
} tune_price_t;
/* The index of the choice by both prices; `first` is the choice by the time alone. `beside` 0: not measured. Pure. */
uint32_t tune_choose(const tune_price_t *price, uint32_t count, uint32_t first);

double tune_better(const tune_result_t *result);

/* The work of a family; all ranks run the same cases. */
typedef struct tune_job {
    const tune_options_t *options;
    uint32_t ranks;
} tune_job_t;
/* A bench_body_t: `job` is a tune_job_t, rows are tune_result_t. */
bool tune_rank_run(const void *job, bench_shared_t *shared, uint32_t rank, int rows);

/* ---- Results ------------------------------------------------------------------------------ */

/* The rows of a table. All zero: empty. The owner frees `row`. */
typedef struct tune_rows {
    uint64_t machine;
    sel_measured_t link;
    sel_pinned_measured_t pinned;
    uint32_t measured;
    sel_file_measured_t of[SEL_FILE_CLASSES];
    uint32_t faults; /* lines of the file that were skipped */
    uint32_t count, capacity;
    sel_file_row_t *row;
} tune_rows_t;

/* Read a table's file; faulty rows are reported on stderr. False, after a message, if it is not a table. With
 * `may_miss` a missing or empty file is an empty table. */
bool tune_rows_read(const char *path, bool may_miss, tune_rows_t *rows);

/* Whether a full run's rows of the class exist: a quick run with another NCCL would drop them. */
bool tune_table_is_others(const char *path, const char *class_name);

/* Whether rows have the same collective, number of ranks and class. */
bool tune_same_place(const sel_file_row_t *a, const sel_file_row_t *b);
/* Whether results have the same collective, number of ranks and type; such results are adjacent, by size. */
bool tune_same_group(const tune_result_t *a, const tune_result_t *b);
/* The row for a size and kind of type, with the collective, ranks and class of `like`: the last that matches. NULL: the
 * built-in choice applies. */
const sel_file_row_t *tune_rows_find(const tune_rows_t *rows, const sel_file_row_t *like, uint32_t kind,
                                     uint64_t bytes);

/* Merge results, in the order in which ranks send them, into the machine's table, replacing its rows for the same
 * sizes. A size covers half the logarithmic distance to its neighbours. The table's figures of the links and of pinned
 * memory stay if `link` and `pinned` are zero. Without results, the machine is that of `machine`. False, after a
 * message, if the file cannot be written. */
bool tune_table_write(const char *path, const tune_options_t *options, const bench_machine_t *machine,
                      const sel_measured_t *link, const sel_pinned_measured_t *pinned, const tune_result_t *results,
                      uint32_t count);

/* Merge the times of results into the file beside the table (times.h), replacing the same cases. False, after a
 * message, if it cannot be written. */
bool tune_times_write(const char *table, const tune_result_t *results, uint32_t count);
/* Create the folders of a table's file and test whether it can be written. False, after a message, if not. Removes
 * temporary files that killed processes left. */
bool tune_file_try(const char *path);
/* Replace a file atomically: a starting program reads either the old or the new file. Creates its folders. False, after
 * a message, if it cannot be written. */
bool tune_file_replace(const char *path, bool (*write)(FILE *file, const void *context), const void *context);

typedef struct tune_end {
    bool complete;     /* all cases were measured */
    const char *table; /* path of the written table; NULL: none */
    uint32_t slower;   /* --check: number of sizes at which the table is too slow */
} tune_end_t;

/* Write the results to stdout, --csv and --json. False, after a message, if a file cannot be written. */
bool tune_report(const tune_options_t *options, const bench_machine_t *machine, const tune_result_t *results,
                 uint32_t count, const tune_end_t *end);
/* The stream of the text: stderr if a file goes to stdout. */
FILE *tune_text(const tune_options_t *options);
/* Write the head lines, "# hardware: " and so on. */
void tune_report_head(FILE *file, const tune_options_t *options, const bench_machine_t *machine);

/* Print the differences of two tables. TOOL_OK, or TOOL_FAILED if one cannot be read. */
int tune_diff(const char *const path[2]);
/* Print a table as an SVG picture. TOOL_OK or TOOL_FAILED. */
int tune_plot(const char *path);

#endif
