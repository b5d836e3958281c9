/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_file.h - a measured table as text, in the format of docs/tuning.md: `shunt tune` writes it, the library reads
 * it. Nothing here allocates or opens files, so the command reads tables with the same code. Names of algorithms are
 * not checked here.
 *
 * Lines that begin with '#', but for the first line and the ones that the page names, are comments. A "# measured: "
 * line says that the table has all rows, perhaps none, that a class needs with an NCCL (ncclGetVersion's number; 0:
 * the host device); rows are those of a class's last line.
 */
#ifndef SHUNT_TABLE_FILE_H
#define SHUNT_TABLE_FILE_H

#include "selector/selector.h"
#include "selector/topology/topology.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SEL_FILE_MOST_BYTES = 1 << 20, /* far above any table */
    SEL_FILE_LINE_BYTES = 256,     /* of a written line */
    SEL_FILE_FAULT_BYTES = 128,
    SEL_FILE_NAME_BYTES = 24,
    SEL_FILE_SOURCE_BYTES = 48,
    SEL_FILE_TYPES_BYTES = 32,
    SEL_FILE_CLASSES = 16 /* measured ones; further ones are forgotten */
};

typedef struct sel_file_row {
    alg_collective_t collective;
    char class_name[SEL_CLASS_BYTES];
    uint32_t ranks;
    uint8_t kinds;
    uint64_t from_bytes, to_bytes; /* both inclusive */
    char algorithm[SEL_FILE_NAME_BYTES];
    uint16_t blocks, threads; /* nccl: 0 */
    char source[SEL_FILE_SOURCE_BYTES];
} sel_file_row_t;

/* A note on which `shunt run` measures: fingerprint, ranks, host's name. */
#define SEL_NOTE_NAME "wanted-%016llx-%u.%s"
/* The class, NCCL's version and path (host device: 0 and "-"). */
#define SEL_NOTE_LINE "%s %u %s\n"

typedef struct sel_file_measured {
    char class_name[SEL_CLASS_BYTES];
    uint32_t nccl;
} sel_file_measured_t;

/* Reads the caller's text, which need not end with a NUL. */
typedef struct sel_file {
    const char *at, *end;
    uint32_t line; /* of the last row or fault */
    uint32_t format;
    uint64_t machine;
    sel_measured_t link; /* valid at the file's end; zero: not given */
    sel_host_measured_t host;
    uint32_t measured; /* likewise */
    sel_file_measured_t of[SEL_FILE_CLASSES];
} sel_file_t;

typedef enum sel_file_step { SEL_FILE_END, SEL_FILE_ROW, SEL_FILE_FAULT } sel_file_step_t;

/* Read the head; rows follow. False: not a table; `fault` says where, and what was expected. */
bool sel_file_open(sel_file_t *file, const char *text, size_t bytes, char fault[SEL_FILE_FAULT_BYTES]);
/* The next row, a fault before it, or the end. */
sel_file_step_t sel_file_next(sel_file_t *file, sel_file_row_t *row, char fault[SEL_FILE_FAULT_BYTES]);

/* The line before the first row. */
extern const char sel_file_columns[];
void sel_file_types(uint8_t kinds, char types[SEL_FILE_TYPES_BYTES]);
/* With line breaks. The link's and the host's line are empty if not measured, or outside the readers' range. */
void sel_file_head(uint64_t machine, char text[SEL_FILE_LINE_BYTES]);
void sel_file_link(const sel_measured_t *link, char text[SEL_FILE_LINE_BYTES]);
void sel_file_host(const sel_host_measured_t *host, char text[SEL_FILE_LINE_BYTES]);
void sel_file_measured(const sel_file_measured_t *measured, char text[SEL_FILE_LINE_BYTES]);
void sel_file_line(const sel_file_row_t *row, char text[SEL_FILE_LINE_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
