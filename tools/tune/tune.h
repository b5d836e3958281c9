/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.h - the parts of `shunt tune` and what passes between them.
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
 * Ranks, clocks and libraries are those of `shunt bench` (bench.h). Candidates are
 * put in force by shunt_set_policy, so one family of ranks measures them all.
 */
#ifndef SHUNT_TUNE_H
#define SHUNT_TUNE_H

#include <stdio.h>

#include "selector/table_file.h"
#include "tools/bench/bench.h"

/* The sub-command; argv[0] is its name. */
int tool_tune(int argc, char **argv);

/* If a program has left a note that this machine was not measured, measure for a few seconds and leave a table. Waits
 * while another process of this host does. Returns in any case; a failure is a line on stderr. Nothing is set or opened
 * in this process, and nothing written to stdout. */
void tune_first(void);

/* Seconds of the monotonic clock. */
double tune_now(void);
/* A note of a program that met no table. */
typedef struct tune_note {
    uint64_t machine;
    uint32_t ranks, nccl_version;
    char class_name[SEL_CLASS_BYTES], nccl[PATH_MAX]; /* "-": host device */
    char path[PATH_MAX + NAME_MAX + 2];
} tune_note_t;

/* The note of this host with the most ranks that the visible GPUs allow, of those in which neither `never` nor a
 * failure of the last hour is written. Removes notes that say nothing, those of old failures, and those of any host
 * that are a week old: the next program that meets no table leaves a new one. What says `never` stays, so that none
 * does. Other users' files do not count, since a note names a library. */
bool tune_note_find(const char *folder, tune_note_t *note);
/* Lock the note and read it again; the file, which holds the lock. Waits so many seconds for another process that
 * measures; after one, a line says so on `tell`. -1: another process has measured, or measures for too long, or files
 * have no locks here. */
int tune_note_lock(tune_note_t *note, double most_s, int tell);

typedef enum tune_note_end {
    TUNE_NOTE_DONE,   /* there is a table: the note is removed */
    TUNE_NOTE_FAILED, /* for an hour */
    TUNE_NOTE_NEVER   /* it would always end like this */
} tune_note_end_t;
/* Write down how it ended. */
void tune_note_end(const tune_note_t *note, int file, tune_note_end_t end);
/* Remove this machine's notes that say `never`, of all hosts, from the folder of its table. */
void tune_note_forget(const char *table, uint64_t machine);
/* Why these GPUs cannot be measured now; NULL if they can. `unfit`: they never can on this note. */
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
    const char *table;   /* the file to write, or with `check` to look at; NULL: the cache folder's */
    const char *csv;     /* NULL: none */
    const char *json;    /* likewise; "-": stdout, as for csv, and the text goes to stderr */
    const char *diff[2]; /* two tables; NULL: no comparison */
    const char *plot;    /* a table; NULL: no picture */
    uint32_t sizes;      /* by tune_settle */
    uint64_t size[TUNE_MOST_SIZES];
    char line[512]; /* the command line, for the files */
} tune_options_t;

/* TOOL_OK, or TOOL_USAGE after a message on stderr. */
int tune_options_parse(tune_options_t *options, int argc, char **argv);
extern const char tune_help[];
/* One family by `options`, whose `quick` is set, into the machine's table, and that table's path. The number of
 * measured sizes; 0, after a message, if no table was written: not before every collective has its coarse sizes, nor
 * over another's rows, which sets `declined`. */
uint32_t tune_quick(tune_options_t *options, bench_machine_t *machine, char path[PATH_MAX], bool *declined);
/* Fill in options that depend on the machine; returns as above, or TOOL_FAILED. */
int tune_settle(tune_options_t *options, const bench_machine_t *machine);

/* ---- One case, measured ----------------------------------------------------------------- */

/* Stands for the built-in choice: no row, unless that was a prediction. */
#define TUNE_BUILTIN "builtin"

typedef struct tune_result {
    alg_collective_t collective;
    uint32_t ranks;
    bool captured;
    int32_t type; /* of bench_types */
    uint64_t bytes;
    uint64_t machine; /* as shunt_communicator has it */
    char class_name[SEL_CLASS_BYTES];
    char choice[SEL_FILE_NAME_BYTES]; /* algorithm, nccl or TUNE_BUILTIN; --check: what the tuned table takes */
    uint32_t blocks, threads;
    char builtin[SEL_FILE_NAME_BYTES]; /* what the built-in table takes: algorithm or nccl */
    bool guessed;                      /* predicted by the cost model, without a row */
    double seconds;                    /* of the choice: median over rounds of the slowest rank */
    double spread;                     /* spread of its rounds: half of them lie within this fraction of the median */
    double builtin_seconds;
    double nccl_seconds;   /* 0: not measured */
    double beside_seconds; /* of many calls and products, until both are through; 0: not measured */
    double builtin_beside_seconds, nccl_beside_seconds;
    uint32_t candidates; /* launches that differ */
    bool quick;          /* of few sizes */
} tune_result_t;

/* Measured sizes of one collective and what was chosen, in order of size. */
typedef struct tune_point {
    uint64_t bytes;
    char choice[SEL_FILE_NAME_BYTES]; /* an algorithm or nccl */
} tune_point_t;
typedef struct tune_points {
    uint64_t from_bytes, to_bytes;
    uint32_t count;
    tune_point_t point[TUNE_MOST_POINTS];
} tune_points_t;

/* The next size to measure: with `coarse`, until the whole range has some; else until neighbours with different choices
 * are a factor of two apart. 0: no more. Pure. */
uint64_t tune_points_next(const tune_points_t *points, bool coarse);
void tune_points_add(tune_points_t *points, uint64_t bytes, const char *choice);
/* How many sizes a range has that are measured first. Pure. */
uint32_t tune_points_coarse(uint64_t from_bytes, uint64_t to_bytes);

/* The next type to measure, from `type` on; collectives that only move data need one type. bench_type_count: no
 * more. */
uint32_t tune_next_type(const tune_options_t *options, alg_collective_t collective, uint32_t type);

/* The gain that a choice needs; also, the middle half of its times must lie below the other's. Less is noise. Below 1:
 * it may lose by so much. */
typedef struct tune_leads {
    double over_nccl, over_builtin; /* of a candidate */
    double nccl_over_builtin;       /* where the built-in choice is ours */
} tune_leads_t;
/* `guessed`: no built-in row decides, but the model. Pure. */
tune_leads_t tune_leads(bool quick, bool captured, bool guessed);

/* The most that a choice may cost alone if it gains beside products. */
#define TUNE_MOST_COST 1.03

/* Seconds of one call alone, and of a number of calls beside products. */
typedef struct tune_price {
    double alone, beside;
} tune_price_t;
/* The choice by both prices; `first` is the choice by the time alone. Beside 0: not measured. Pure. */
uint32_t tune_choose(const tune_price_t *price, uint32_t count, uint32_t first);

/* The better of NCCL and the built-in choice. */
double tune_better(const tune_result_t *result);

/* The work of one family; every rank runs the same cases. */
typedef struct tune_job {
    const tune_options_t *options;
    uint32_t ranks;
} tune_job_t;
/* A bench_body_t; `job` is a tune_job_t, rows are tune_result_t. */
bool tune_rank_run(const void *job, bench_shared_t *shared, uint32_t rank, int rows);

/* ---- Results ------------------------------------------------------------------------------ */

/* Rows of a table. Zero is empty; free `row` in the end. */
typedef struct tune_rows {
    uint64_t machine;
    sel_measured_t link;
    sel_host_measured_t host;
    uint32_t measured;
    sel_file_measured_t of[SEL_FILE_CLASSES];
    uint32_t count, capacity;
    sel_file_row_t *row;
} tune_rows_t;

/* Read a table's file; faulty rows are reported on stderr. False, after a message, if it is not a table. A missing
 * file counts as empty if that is allowed. */
bool tune_rows_read(const char *path, bool may_miss, tune_rows_t *rows);

/* Whether a table has rows of a class that no quick run wrote: one would drop them, as NCCL is another. */
bool tune_table_is_others(const char *path, const char *class_name);

/* Rows of one collective, number of ranks and class. */
bool tune_same_place(const sel_file_row_t *a, const sel_file_row_t *b);
/* Whether both have one collective, number of ranks and type; such results are adjacent, by size. */
bool tune_same_group(const tune_result_t *a, const tune_result_t *b);
/* The table's row for a size and kind of type at a row's place: the last that matches, or NULL for the built-in
 * choice. */
const sel_file_row_t *tune_rows_find(const tune_rows_t *rows, const sel_file_row_t *like, uint32_t kind,
                                     uint64_t bytes);

/* Merge results, in the order in which ranks send them, into this machine's table, replacing its rows for the same
 * sizes. A size covers half the way, on a logarithmic scale, to its neighbours. Figures of the links and the host's
 * memory stay if `link` and `host` are zero. Without results, the machine is that of `machine`. False, after a message,
 * if the file cannot be written. */
bool tune_table_write(const char *path, const tune_options_t *options, const bench_machine_t *machine,
                      const sel_measured_t *link, const sel_host_measured_t *host, const tune_result_t *results,
                      uint32_t count);

/* Merge the times of results into the file beside the table (times.h), replacing the same cases. False, after a
 * message, if it cannot be written. */
bool tune_times_write(const char *table, const tune_result_t *results, uint32_t count);
/* Make the folders of a table's file, and see whether it can be written. False, after a message, if not. Removes what
 * was left there by processes that were killed as they wrote. */
bool tune_file_try(const char *path);
/* Replace a file atomically: a starting program reads the whole old or the whole new one. Makes its folders. False,
 * after a message, if it cannot be written. */
bool tune_file_replace(const char *path, bool (*write)(FILE *file, const void *context), const void *context);

/* How a run ended. */
typedef struct tune_end {
    bool complete;     /* every case was measured */
    const char *table; /* that was written; NULL: none */
    uint32_t slower;   /* --check: sizes at which the table is too slow */
} tune_end_t;

/* Print to stdout, --csv and --json. False, after a message, if a file cannot be written. */
bool tune_report(const tune_options_t *options, const bench_machine_t *machine, const tune_result_t *results,
                 uint32_t count, const tune_end_t *end);
/* Where text for people goes. */
FILE *tune_text(const tune_options_t *options);
/* The lines "# hardware: " and so on. */
void tune_report_head(FILE *file, const tune_options_t *options, const bench_machine_t *machine);

/* Print where two tables differ. TOOL_OK, or TOOL_FAILED if one cannot be read. */
int tune_diff(const char *const path[2]);
/* Print a table as an SVG picture; returns likewise. */
int tune_plot(const char *path);

#endif
