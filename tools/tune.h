/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.h - the parts of `shunt tune` and what passes between them.
 *
 *   tune.c          the command: one family of ranks for each number of them,
 *                   progress, what to do when it is interrupted
 *   tune_options.c  the command line, and the cases that it asks for
 *   tune_rank.c     one rank: who takes part in a case, who is out, who wins
 *   tune_beside.c   --beside: candidates beside matrix products
 *   tune_choice.c   --beside: the choice by two prices
 *   tune_table.c    from results to the rows of a table, and into the file
 *   tune_times.c    the times themselves, beside the table
 *   tune_file.c     how both are written
 *   tune_report.c   what was measured, as text and CSV
 *   tune_diff.c     --diff
 *   tune_plot.c     --plot
 *
 * Ranks, clocks and libraries are those of `shunt bench` (bench.h). Candidates are
 * put in force by shunt_set_policy, so one family of ranks measures them all.
 */
#ifndef SHUNT_TUNE_H
#define SHUNT_TUNE_H

#include <stdio.h>

#include "bench.h"
#include "selector/table_file.h"

enum {
    TUNE_MOST_SIZES = 96,
    TUNE_MOST_TYPES = 16, /* at least bench_type_count */
    TUNE_MOST_RESULTS = ALG_COLLECTIVE_COUNT * BENCH_MAX_RANKS * TUNE_MOST_TYPES * TUNE_MOST_SIZES
};

typedef struct tune_options {
    uint64_t from_bytes, to_bytes;
    uint32_t ranks;       /* 0: every number from 2 to all GPUs */
    uint32_t collectives; /* bit c: an alg_collective_t */
    uint32_t types;       /* bit i: bench_types[i] */
    bool eager;           /* calls are timed one by one; otherwise in graphs, as on every GPU they may be */
    uint32_t limit_s;     /* when it stops with what it has */
    bool to_given, mode_given;
    bool check;
    bool beside; /* the choice rests on the time beside products, too; with `check`, it may cost TUNE_MOST_COST */
    bool help;
    const char *table;   /* the file to write, or with `check` to look at; NULL: the cache folder's */
    const char *csv;     /* NULL: none */
    const char *diff[2]; /* two tables; NULL: no comparison */
    const char *plot;    /* a table; NULL: no picture */
    uint32_t sizes;      /* by tune_settle */
    uint64_t size[TUNE_MOST_SIZES];
    char line[512]; /* the command line, for the files */
} tune_options_t;

/* TOOL_OK, or TOOL_USAGE with the fault told on stderr. */
int tune_options_parse(tune_options_t *options, int argc, char **argv);
extern const char tune_help[];
/* Fill in what depends on the machine; the same results as above, or TOOL_FAILED. */
int tune_settle(tune_options_t *options, const bench_machine_t *machine);

/* ---- One case, measured ----------------------------------------------------------------- */

/* The word for the built-in choice: no row, unless it was a guess. */
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
    bool guessed;                      /* by the cost model, for want of a row */
    double seconds;                    /* of the choice: median over rounds of the slowest rank */
    double spread;                     /* of its rounds: half of them lie within this part of the median */
    double builtin_seconds;
    double nccl_seconds;   /* 0: not measured */
    double beside_seconds; /* of many calls and products, until both are through; 0: not measured */
    double builtin_beside_seconds, nccl_beside_seconds;
    uint32_t candidates; /* launches that differ */
} tune_result_t;

/* The first type at `type` or after that is to be measured of a collective, of which data that is only moved needs
 * one; bench_type_count: no more. */
uint32_t tune_next_type(const tune_options_t *options, alg_collective_t collective, uint32_t type);

/* What a choice may cost alone, where it gains beside products. */
#define TUNE_MOST_COST 1.03

/* Seconds of one call alone, and of a number of calls beside products. */
typedef struct tune_price {
    double alone, beside;
} tune_price_t;
/* Who is taken, where `first`, with both prices, is the choice by the time alone. Beside 0: is not. Pure. */
uint32_t tune_choose(const tune_price_t *price, uint32_t count, uint32_t first);

/* The better of what there is without tuning. */
double tune_better(const tune_result_t *result);

/* What ranks of one family do; every rank walks through the same cases. */
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
    uint32_t count, capacity;
    sel_file_row_t *row;
} tune_rows_t;

/* Read a table's file; what is wrong with a row is told on stderr. False, and told: it is no table; a file that
 * is missing is an empty one where it may be. */
bool tune_rows_read(const char *path, bool may_miss, tune_rows_t *rows);

/* Rows of one collective, number of ranks and class. */
bool tune_same_place(const sel_file_row_t *a, const sel_file_row_t *b);
/* Results of one collective, number of ranks and type: they follow each other, in order of size. */
bool tune_same_group(const tune_result_t *a, const tune_result_t *b);
/* What a table says of a size and kind of type at a row's place: the last of its rows, or NULL for the built-in
 * choice. */
const sel_file_row_t *tune_rows_find(const tune_rows_t *rows, const sel_file_row_t *like, uint32_t kind,
                                     uint64_t bytes);

/* Put results, in the order in which ranks send them, into the table of this machine: in place of what it says
 * of the same sizes. A size holds half way, in powers, to its neighbours. What it says of the links and the host's
 * memory stays where `link` and `host` are all zero. False, and told: it cannot be written. */
bool tune_table_write(const char *path, const tune_options_t *options, const bench_machine_t *machine,
                      const sel_measured_t *link, const sel_host_measured_t *host, const tune_result_t *results,
                      uint32_t count);

/* Put the times of results into the file beside the table (times.h), in place of what it has of the same cases. False,
 * and told: it cannot be written. */
bool tune_times_write(const char *table, const tune_result_t *results, uint32_t count);
/* Write a file beside its place and rename it into it, so that a program that starts meanwhile reads the old one or the
 * new one, whole. Makes its folders. False, and told: it cannot be written. */
bool tune_file_replace(const char *path, bool (*write)(FILE *file, const void *context), const void *context);

/* On stdout, and to --csv. False, and told: the CSV file cannot be written. */
bool tune_report(const tune_options_t *options, const bench_machine_t *machine, const tune_result_t *results,
                 uint32_t count);
/* The lines "# hardware: " and so on. */
void tune_report_head(FILE *file, const tune_options_t *options, const bench_machine_t *machine);

/* Where two tables differ, on stdout. TOOL_OK, or TOOL_FAILED if one cannot be read. */
int tune_diff(const char *const path[2]);
/* A table as a picture, an SVG on stdout; the same results. */
int tune_plot(const char *path);

#endif
