/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_file.h - a measured table as text: what `shunt tune` writes and the library reads.
 *
 *   # shunt table 2
 *   # machine: 5a3c... (sel_fingerprint, 16 hexadecimal digits)
 *   # link: 384.800 GB/s among 4 GPUs, one way 0.760 us, over nvswitch
 *   # measured: nvswitch-sm90-4, nccl 22809
 *   # host: 30.100 GB/s stored, 36.200 GB/s loaded among 4 GPUs, one way 1.660 us, over nvswitch
 *   collective,ranks,class,types,from,to,algorithm,blocks,threads,source
 *   allreduce,4,nvswitch-sm90-4,f2+f4,0,65536,oneshot,32,128,tune 2026-11-21
 *
 * Other lines that begin with '#' are comments, except "# machine: " and three optional kinds:
 *   # link: the rate at which all GPUs of the machine copied to each other, and the kind of link (older tables: none)
 *   # host: the rates at which they stored to pinned memory and loaded from it, and the kind of link
 *   # measured: a class that has all rows that it needs, perhaps none, and ncclGetVersion's number (0: the CPU
 *     device); one line per version with which the class was measured. Its rows are of the last version.
 *
 * collective is a name of alg_collective_name; types are "any", or kinds of selector.h joined by '+'; from and to are
 * bytes of a rank's larger buffer, both inclusive, and an empty `to` means no limit; algorithm is a name, not checked
 * here, or nccl with 0 blocks and threads.
 *
 * "# shunt table 1" is read too. There a column before the types is "eager", "captured" or "any": rows with "eager" are
 * skipped, the others apply to all calls.
 *
 * No allocation and no file access, so that the command can use the same code.
 */
#ifndef SHUNT_TABLE_FILE_H
#define SHUNT_TABLE_FILE_H

#include "selector/selector.h"
#include "selector/topology/topology.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SEL_FILE_MOST_BYTES = 1 << 20, /* limit of a file, far above any table */
    SEL_FILE_LINE_BYTES = 256,     /* of a written line */
    SEL_FILE_FAULT_BYTES = 128,
    SEL_FILE_NAME_BYTES = 24,
    SEL_FILE_SOURCE_BYTES = 48,
    SEL_FILE_TYPES_BYTES = 32,
    SEL_FILE_CLASSES = 16 /* measured ones; more are dropped */
};

typedef struct sel_file_row {
    alg_collective_t collective;
    char class_name[SEL_CLASS_BYTES];
    uint32_t ranks;
    uint8_t kinds;
    uint64_t from_bytes, to_bytes; /* both inclusive */
    char algorithm[SEL_FILE_NAME_BYTES];
    uint16_t blocks, threads; /* 0 with nccl */
    char source[SEL_FILE_SOURCE_BYTES];
} sel_file_row_t;

/* Name of a note beside the tables that makes `shunt run` measure: fingerprint, ranks, host name. */
#define SEL_NOTE_NAME "wanted-%016llx-%u.%s"
/* The note's line: the class, NCCL's version, NCCL's path (CPU device: 0 and "-"). */
#define SEL_NOTE_LINE "%s %u %s\n"

typedef struct sel_file_measured {
    char class_name[SEL_CLASS_BYTES];
    uint32_t nccl;
} sel_file_measured_t;

/* A reader of the caller's text, which need not end with a NUL. */
typedef struct sel_file {
    const char *at, *end;
    uint32_t line; /* of the last row or fault */
    uint32_t format;
    uint64_t machine;
    sel_measured_t link; /* valid at the end of the file; zero: not given */
    sel_pinned_measured_t pinned;
    uint32_t measured; /* entries in `of`; valid at the end of the file */
    sel_file_measured_t of[SEL_FILE_CLASSES];
} sel_file_t;

typedef enum sel_file_step { SEL_FILE_END, SEL_FILE_ROW, SEL_FILE_FAULT } sel_file_step_t;

/* Reads the head; rows follow. False: no table; `fault` has the place, and what was expected. */
bool sel_file_open(sel_file_t *file, const char *text, size_t bytes, char fault[SEL_FILE_FAULT_BYTES]);
/* The next row, the fault of a line before it, or the end. */
sel_file_step_t sel_file_next(sel_file_t *file, sel_file_row_t *row, char fault[SEL_FILE_FAULT_BYTES]);

/* Names of the columns, the line before the first row. */
extern const char sel_file_columns[];
void sel_file_types(uint8_t kinds, char types[SEL_FILE_TYPES_BYTES]);
/* These write the first two lines, or the link's, the host's, a class's or a row's line. Those of link and host are
 * empty if not measured or out of the reader's range. */
void sel_file_head(uint64_t machine, char text[SEL_FILE_LINE_BYTES]);
void sel_file_link(const sel_measured_t *link, char text[SEL_FILE_LINE_BYTES]);
void sel_file_pinned(const sel_pinned_measured_t *pinned, char text[SEL_FILE_LINE_BYTES]);
void sel_file_measured(const sel_file_measured_t *measured, char text[SEL_FILE_LINE_BYTES]);
void sel_file_line(const sel_file_row_t *row, char text[SEL_FILE_LINE_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
