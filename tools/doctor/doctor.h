/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h - the parts of `shunt doctor` and their interfaces.
 *
 *   doctor.c          the command line, the lines, the exit status
 *   doctor_machine.c  Shunt, NCCL, GPUs, links, shared memory, settings, table
 *   doctor_multicast.c  whether NVLink multicast is on
 *   doctor_command.c  a command's processes: which NCCL they load, what happened to their calls
 *   doctor_log.c      what the library logged, and what to do about it
 *   doctor_bench.c    a short bench beside NCCL, and one sentence
 *   doctor_json.c     all of that as JSON
 *
 * This process makes no CUDA call and does not open the library: so it can fork ranks, and the library in them reads
 * the settings that this process puts into the environment.
 */
#ifndef SHUNT_DOCTOR_H
#define SHUNT_DOCTOR_H

#include "tools/base/json.h"
#include "tools/bench/bench.h"
#include "tools/doctor/processes.h"
#include "tools/run/counts.h"

int tool_doctor(int argc, char **argv);

/* A line reports that a check passed, a fact worth knowing, or a fault, which sets the exit status. */
typedef enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_FAULT } doctor_level_t;

/* What the library reports about the machine, filled in by a separate process. */
typedef struct doctor_facts {
    char error[TOOL_ERROR_BYTES]; /* "": the other fields are filled in */
    shunt_communicator_t all;     /* the communicator of all GPUs; ranks 0: fewer than two GPUs */
    char table[PATH_MAX];         /* path; "": no folder for it */
    bool named, forced;           /* SHUNT_TABLE is set; SHUNT_TABLE_FORCE=1 */
    bool tuned;                   /* programs use `table` */
    char fault[TOOL_ERROR_BYTES]; /* why programs do not use the table; "": there is none */
    char rules[512];              /* sources of the all-reduce rules, separated by commas */
    char settings[1024];          /* settings that differ from their defaults, separated by commas */
    char refused[1024];           /* variables whose values are not allowed, each with the allowed ones */
    bool disabled;                /* SHUNT_ENABLE=0 */
} doctor_facts_t;

enum { DOCTOR_MOST_FINDINGS = 256, DOCTOR_TEXT_BYTES = 2 * PATH_MAX, DOCTOR_LAST_LINES = 8, DOCTOR_LINE_BYTES = 512 };

/* One line of the report. Its pointers point to constants of the program, so they are valid in a parent process,
 * too. */
typedef struct doctor_finding {
    doctor_level_t level;
    const char *check;
    const char *what_to_do; /* NULL: nothing */
    char text[DOCTOR_TEXT_BYTES];
} doctor_finding_t;

/* The findings so far. Lines beyond the capacity are printed but not stored. */
typedef struct doctor_report {
    bool complete; /* all checks were made */
    char library[PATH_MAX];
    uint32_t faults;
    uint32_t count;
    doctor_finding_t finding[DOCTOR_MOST_FINDINGS];
    uint32_t lines; /* number of stored output lines of a command that failed */
    char line[DOCTOR_LAST_LINES][DOCTOR_LINE_BYTES];
    bool counted; /* the next three fields are filled in */
    uint32_t processes;
    uint64_t taken, forwarded;
    bool measured; /* `row` is filled in */
    bench_row_t row;
} doctor_report_t;

typedef struct doctor {
    FILE *out;        /* stream of the text */
    bool colours;     /* `out` accepts colours */
    const char *json; /* NULL: none */
    const char *check;
    uint32_t limit_s; /* time limit of the command */
    char **command;   /* NULL: none */
    char folder[PATH_MAX];
    bench_machine_t *machine; /* shared memory */
    doctor_facts_t *facts;    /* shared memory */
    doctor_report_t *report;  /* shared memory */
    tool_counts_t counts;     /* calls of the command's processes */
} doctor_t;

/* Print and store a line, and a second line with `what_to_do` unless that is NULL. */
void doctor_print(doctor_t *doctor, doctor_level_t level, const char *what_to_do, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Check the machine. False: no further check is possible. */
bool doctor_machine(doctor_t *doctor);
/* What a class of all GPUs says of NVLink multicast, and what that means. False: they have no NVSwitch. Pure. */
bool doctor_multicast_text(const char *class_name, char text[DOCTOR_LINE_BYTES]);
void doctor_command(doctor_t *doctor);
void doctor_bench(doctor_t *doctor);
void doctor_json(const doctor_t *doctor, tool_json_t *json);

/* ---- Logs ---- */

enum { DOCTOR_MOST_REASONS = 16 };

/* Distinct lines and their counts. */
typedef struct doctor_lines {
    uint32_t count;
    uint32_t times[DOCTOR_MOST_REASONS];
    const char *advice[DOCTOR_MOST_REASONS]; /* advice for each line; NULL: none known */
    char text[DOCTOR_MOST_REASONS][DOCTOR_LINE_BYTES];
} doctor_lines_t;

typedef struct doctor_log {
    uint32_t attached;        /* number, one for each process and communicator */
    doctor_lines_t forwarded; /* why communicators are forwarded */
    doctor_lines_t warnings;  /* all other warnings */
    doctor_lines_t real;      /* paths of the NCCLs that Shunt has opened */
} doctor_log_t;

/* Read the folder's files whose names begin with `prefix`. */
void doctor_log_read(const char *folder, const char *prefix, doctor_log_t *log);
/* Add a log's text. */
void doctor_log_add(const char *text, doctor_log_t *log);

#endif
