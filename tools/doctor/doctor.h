/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.h - the parts of `shunt doctor` and what passes between them.
 *
 *   doctor.c          the command line, the lines, the exit status
 *   doctor_machine.c  Shunt, NCCL, GPUs, links, shared memory, settings, table
 *   doctor_command.c  a command's processes: which NCCL they load, what happened to their calls
 *   doctor_log.c      what the library logged, and what to do about it
 *   doctor_bench.c    a short bench beside NCCL, and one sentence
 *   doctor_json.c     all of that as JSON
 *
 * This process makes no CUDA call and does not open the library, so that ranks can be forked, and so that settings that
 * it puts into their environment hold for them.
 */
#ifndef SHUNT_DOCTOR_H
#define SHUNT_DOCTOR_H

#include "tools/base/json.h"
#include "tools/bench/bench.h"
#include "tools/doctor/processes.h"
#include "tools/run/counts.h"

/* The sub-command; argv[0] is its name. */
int tool_doctor(int argc, char **argv);

/* A line reports that all is well, a fact worth knowing, or a fault, which sets the exit status. */
typedef enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_FAULT } doctor_level_t;

/* Facts of the machine from the library, filled in by a separate process. */
typedef struct doctor_facts {
    char error[TOOL_ERROR_BYTES]; /* "": the rest is filled in */
    shunt_communicator_t all;     /* of all GPUs; ranks 0: there are not two */
    char table[PATH_MAX];         /* of this machine; "": no folder for it */
    bool tuned;                   /* that file is there */
    char rules[512];              /* sources of the all-reduce rules, separated by commas */
    char settings[1024];          /* settings that differ from their defaults, separated by commas */
    bool disabled;                /* SHUNT_ENABLE=0 */
} doctor_facts_t;

enum { DOCTOR_MOST_FINDINGS = 256, DOCTOR_TEXT_BYTES = 2 * PATH_MAX, DOCTOR_LAST_LINES = 8, DOCTOR_LINE_BYTES = 512 };

/* One line for people. Pointers are to constants of the program, which a forked process has at the same place. */
typedef struct doctor_finding {
    doctor_level_t level;
    const char *check;
    const char *what_to_do; /* NULL: nothing */
    char text[DOCTOR_TEXT_BYTES];
} doctor_finding_t;

/* What was found so far. Lines beyond the capacity are only printed. */
typedef struct doctor_report {
    bool complete; /* every check was made */
    char library[PATH_MAX];
    uint32_t faults;
    uint32_t count;
    doctor_finding_t finding[DOCTOR_MOST_FINDINGS];
    uint32_t lines; /* the last ones of a command that failed */
    char line[DOCTOR_LAST_LINES][DOCTOR_LINE_BYTES];
    bool counted; /* the three below are filled in */
    uint32_t processes;
    uint64_t taken, forwarded;
    bool measured; /* the row is filled in */
    bench_row_t row;
} doctor_report_t;

typedef struct doctor {
    FILE *out;         /* for people */
    bool colours;      /* it is a terminal */
    const char *json;  /* NULL: no such file */
    const char *check; /* that prints now */
    uint32_t limit_s;  /* for the command */
    char **command;    /* NULL: none */
    char folder[PATH_MAX];
    bench_machine_t *machine; /* shared memory */
    doctor_facts_t *facts;    /* shared memory */
    doctor_report_t *report;  /* shared memory */
    tool_counts_t counts;     /* of the command's processes */
} doctor_t;

/* Print one line, and a second one with what to do unless that is NULL. */
void doctor_print(doctor_t *doctor, doctor_level_t level, const char *what_to_do, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* False: no further check is possible. */
bool doctor_machine(doctor_t *doctor);
void doctor_command(doctor_t *doctor);
void doctor_bench(doctor_t *doctor);
void doctor_json(const doctor_t *doctor, tool_json_t *json);

/* ---- Logs ---- */

enum { DOCTOR_MOST_REASONS = 16 };

/* Distinct lines and their counts. */
typedef struct doctor_lines {
    uint32_t count;
    uint32_t times[DOCTOR_MOST_REASONS];
    const char *advice[DOCTOR_MOST_REASONS]; /* what to do about it; NULL: unknown */
    char text[DOCTOR_MOST_REASONS][DOCTOR_LINE_BYTES];
} doctor_lines_t;

typedef struct doctor_log {
    uint32_t attached;        /* communicators, a line a process */
    doctor_lines_t forwarded; /* why communicators were */
    doctor_lines_t warnings;  /* the other ones */
    doctor_lines_t real;      /* paths of the NCCLs that Shunt has opened */
} doctor_log_t;

/* Read the folder's files whose names begin with `prefix`. */
void doctor_log_read(const char *folder, const char *prefix, doctor_log_t *log);
/* Add one file's text, which ends with a NUL. */
void doctor_log_add(const char *text, doctor_log_t *log);

#endif
