/*
 * bench_report.c - the table on stdout, and the same rows as CSV and JSON.
 *
 * CSV: first lines that begin with '#': "# name: value" for hardware (GPU name
 * and count, or host), driver, cuda, nccl, shunt, date (UTC), command. Then one
 * line of column names and one line a row:
 *   ranks        number of ranks, each a process
 *   mode         graph or eager
 *   place        in or out
 *   bytes,count  of one rank's input
 *   type,op      as given to -d and -o
 *   algorithm    Shunt's choice; nccl: forwarded
 *   us           microseconds of one call
 *   algbw,busbw  GB/s (1e9)
 *   wrong        elements over all ranks; empty: not checked
 *   nccl_us      the real NCCL's time in the same run; empty: not measured
 *   ratio        nccl_us / us; empty: not measured
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

struct bench_report {
    const bench_options_t *options;
    FILE *csv;  /* NULL: not wanted */
    FILE *json; /* NULL: not wanted */
    uint32_t cases;
    uint32_t rows;
    bool progress; /* stderr is a terminal */
};

typedef struct fact {
    const char *name;
    char value[1024];
} fact_t;

enum { FACTS = 7 };

static void facts_of(const bench_options_t *options, const bench_machine_t *machine, fact_t facts[FACTS])
{
    const tool_gpus_t *gpus = &machine->gpus;
    char version[16];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);

    facts[0].name = "hardware";
    facts[1].name = "driver";
    facts[2].name = "cuda";
    facts[3].name = "nccl";
    facts[4].name = "shunt";
    facts[5].name = "date";
    facts[6].name = "command";
    for (int i = 0; i < FACTS; i++) {
        facts[i].value[0] = '\0';
    }
    if (machine->host) {
        snprintf(facts[0].value, sizeof facts[0].value, "host device, %u ranks, %ld processors", options->ranks,
                 sysconf(_SC_NPROCESSORS_ONLN));
    } else {
        snprintf(facts[0].value, sizeof facts[0].value, "%u of %u x %s", options->ranks, gpus->count,
                 gpus->gpu[0].name);
        snprintf(facts[1].value, sizeof facts[1].value, "%s", gpus->driver);
        snprintf(facts[2].value, sizeof facts[2].value, "%u.%u", gpus->cuda_driver / 1000,
                 gpus->cuda_driver % 1000 / 10);
    }
    if (machine->nccl_version != 0) {
        tool_version_text(machine->nccl_version, version);
        snprintf(facts[3].value, sizeof facts[3].value, "%s", version);
    }
    snprintf(facts[4].value, sizeof facts[4].value, "%d.%d.%d", machine->shunt_version / 10000,
             machine->shunt_version / 100 % 100, machine->shunt_version % 100);
    strftime(facts[5].value, sizeof facts[5].value, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(facts[6].value, sizeof facts[6].value, "%s", options->line);
}

static void json_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') {
            fprintf(file, "\\%c", letter);
        } else if (letter < 0x20) {
            fprintf(file, "\\u%04x", letter);
        } else {
            fputc(letter, file);
        }
    }
    fputc('"', file);
}

/* A line break in a value would end the comment. */
static void comment(FILE *file, const fact_t *fact)
{
    fprintf(file, "# %s: ", fact->name);
    for (const char *at = fact->value; *at != '\0'; at++) {
        fputc((unsigned char)*at < 0x20 ? ' ' : *at, file);
    }
    fputc('\n', file);
}

static void heads(const bench_report_t *report, const fact_t facts[FACTS])
{
    for (int i = 0; i < FACTS; i++) {
        if (facts[i].value[0] != '\0') {
            comment(stdout, &facts[i]);
            if (report->csv != NULL) {
                comment(report->csv, &facts[i]);
            }
        }
        if (report->json != NULL) {
            fprintf(report->json, "%s\"%s\": ", i == 0 ? "{" : ",\n ", facts[i].name);
            json_string(report->json, facts[i].value);
        }
    }
    printf("# %s, %s of place, times in microseconds, bandwidths in GB/s\n", report->options->graph ? "graph" : "eager",
           report->options->in_place ? "in" : "out");
    printf("#%11s %11s %9s %9s %12s %9s %8s %8s %7s %9s %6s\n", "bytes", "count", "type", "op", "algorithm", "us",
           "algbw", "busbw", "wrong", "nccl_us", "ratio");
    if (report->csv != NULL) {
        fprintf(report->csv, "ranks,mode,place,bytes,count,type,op,algorithm,us,algbw,busbw,wrong,nccl_us,ratio\n");
    }
    if (report->json != NULL) {
        fprintf(report->json, ",\n \"rows\": [");
    }
}

static bool open_file(const char *path, FILE **file)
{
    *file = NULL;
    if (path == NULL) {
        return true;
    }
    *file = fopen(path, "we");
    if (*file == NULL) {
        fprintf(stderr, "shunt bench: %s: %s\n", path, strerror(errno));
    }
    return *file != NULL;
}

static void progress(const bench_report_t *report)
{
    if (report->progress && report->rows < report->cases) {
        fprintf(stderr, "\r%u of %u done\r", report->rows, report->cases);
    }
}

bench_report_t *bench_report_open(const bench_options_t *options, const bench_machine_t *machine, uint32_t cases)
{
    bench_report_t *report = calloc(1, sizeof *report);
    if (report == NULL) {
        return NULL;
    }
    report->options = options;
    report->cases = cases;
    report->progress = isatty(STDERR_FILENO) == 1;
    if (!open_file(options->csv, &report->csv)) {
        goto free_report;
    }
    if (!open_file(options->json, &report->json)) {
        goto close_csv;
    }
    fact_t facts[FACTS];
    facts_of(options, machine, facts);
    heads(report, facts);
    progress(report);
    return report;

close_csv:
    if (report->csv != NULL) {
        fclose(report->csv);
    }
free_report:
    free(report);
    return NULL;
}

/* The derived columns, and texts that are empty where there is nothing to say. */
typedef struct columns {
    double us, algbw, busbw;
    char wrong[24], nccl[24], ratio[24];
} columns_t;

static columns_t columns_of(const bench_report_t *report, const bench_row_t *row)
{
    columns_t columns = {.us = row->seconds * 1e6};
    double n = report->options->ranks;
    if (row->seconds > 0) {
        columns.algbw = (double)row->bytes / row->seconds * 1e-9;
    }
    columns.busbw = columns.algbw * 2 * (n - 1) / n;
    if (row->wrong != UINT64_MAX) {
        snprintf(columns.wrong, sizeof columns.wrong, "%llu", (unsigned long long)row->wrong);
    }
    if (row->nccl_seconds > 0) {
        snprintf(columns.nccl, sizeof columns.nccl, "%.2f", row->nccl_seconds * 1e6);
        if (row->seconds > 0) {
            snprintf(columns.ratio, sizeof columns.ratio, "%.2f", row->nccl_seconds / row->seconds);
        }
    }
    return columns;
}

static const char *or_else(const char *text, const char *other)
{
    return text[0] != '\0' ? text : other;
}

void bench_report_row(bench_report_t *report, const bench_row_t *row)
{
    const bench_options_t *options = report->options;
    columns_t columns = columns_of(report, row);
    const char *type = bench_types[row->type].name;
    const char *op = bench_ops[row->op].name;
    const char *mode = options->graph ? "graph" : "eager";
    const char *place = options->in_place ? "in" : "out";
    unsigned long long bytes = row->bytes;
    unsigned long long count = row->count;

    printf("%12llu %11llu %9s %9s %12s %9.2f %8.3f %8.3f %7s %9s %6s\n", bytes, count, type, op, row->algorithm,
           columns.us, columns.algbw, columns.busbw, or_else(columns.wrong, "-"), or_else(columns.nccl, "-"),
           or_else(columns.ratio, "-"));
    fflush(stdout);
    if (report->csv != NULL) {
        fprintf(report->csv, "%u,%s,%s,%llu,%llu,%s,%s,%s,%.3f,%.3f,%.3f,%s,%s,%s\n", options->ranks, mode, place,
                bytes, count, type, op, row->algorithm, columns.us, columns.algbw, columns.busbw, columns.wrong,
                columns.nccl, columns.ratio);
    }
    if (report->json != NULL) {
        fprintf(report->json,
                "%s\n  {\"ranks\": %u, \"mode\": \"%s\", \"place\": \"%s\", \"bytes\": %llu, \"count\": %llu, "
                "\"type\": \"%s\", \"op\": \"%s\", \"algorithm\": \"%s\", \"us\": %.3f, \"algbw\": %.3f, "
                "\"busbw\": %.3f, \"wrong\": %s, \"nccl_us\": %s, \"ratio\": %s}",
                report->rows == 0 ? "" : ",", options->ranks, mode, place, bytes, count, type, op, row->algorithm,
                columns.us, columns.algbw, columns.busbw, or_else(columns.wrong, "null"), or_else(columns.nccl, "null"),
                or_else(columns.ratio, "null"));
    }
    report->rows++;
    progress(report);
}

static bool close_file(FILE *file, const char *path)
{
    if (file == NULL) {
        return true;
    }
    bool whole = ferror(file) == 0;
    whole = fclose(file) == 0 && whole;
    if (!whole) {
        fprintf(stderr, "shunt bench: %s could not be written whole\n", path);
    }
    return whole;
}

bool bench_report_close(bench_report_t *report)
{
    if (report->json != NULL) {
        fprintf(report->json, "\n ]\n}\n");
    }
    bool whole = close_file(report->csv, report->options->csv);
    whole = close_file(report->json, report->options->json) && whole;
    free(report);
    return whole;
}
