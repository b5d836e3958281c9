/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_report.c - the table on stdout, and the same rows as CSV and JSON. If one of these goes to stdout (`-`), the
 * table goes to stderr. A JSON file is complete after every row, so an interrupted run leaves a valid one.
 *
 * CSV: first lines "# name: value": hardware (GPU name and count, or CPU device), driver, cuda, nccl, multicast
 * (whether NVLink multicast is on among all GPUs; NCCL_NVLS_ENABLE), shunt, date (UTC), command, no_ratio (why nccl_us
 * and ratio are empty, in all rows or some), not_measured (sizes without an element for every rank). Then one line of
 * column names and one line a row:
 *   ranks        number of ranks, each a process
 *   mode         graph or eager; blocking: eager, with a wait after each call (-z)
 *   place        in or out; in+1 and out+1 with --skew
 *   bytes        size of a rank's larger buffer
 *   count        the call's argument
 *   type,op      as given to -d and -o; op is none where nothing is reduced
 *   algorithm    Shunt's choice; nccl: forwarded
 *   us           microseconds of one call
 *   algbw,busbw  GB/s (1e9)
 *   wrong        wrong elements of all ranks; empty: not checked
 *   nccl_us      the real NCCL's time in the same run; empty: not measured
 *   ratio        nccl_us / us; empty: not measured
 *   collective   as given to --collective
 * With --floor (the floor's own figures are in "# floor: ..."):
 *   floor_us     the least time that this machine allows (floor.h)
 *   floor_ratio  us / floor_us
 * With --host-time (empty where the real NCCL was not measured):
 *   call_ns,nccl_call_ns   until the call returns
 *   launch_ns              until the launch of an empty kernel returns
 *   call_ratio             call_ns / launch_ns
 *   launch_us              from one empty kernel to the next, launched back to back
 *   launch_ratio           us / launch_us
 *   sync_us,nccl_sync_us   one call and a wait for the stream, from the host
 * With --choose:
 *   choice_ns    time to choose, for messages of up to this size
 * With --beside:
 *   beside_calls             calls beside the products
 *   products_ms              the products alone
 *   beside_ms,nccl_beside_ms until calls and products have ended
 *   beside_ratio             nccl_beside_ms / beside_ms
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/base/json.h"
#include "tools/base/output.h"
#include "tools/base/progress.h"
#include "tools/bench/bench.h"

struct bench_report {
    const bench_options_t *options;
    const tool_floor_t *floor;
    FILE *table;
    FILE *csv; /* NULL: no CSV file */
    tool_json_t json;
    uint32_t rows;
    double busbw; /* sum, in GB/s */
    uint64_t wrong;
    tool_progress_t progress;
};

typedef struct fact {
    const char *name;
    char value[1024];
} fact_t;

enum { FACTS = 11 };

/* Why rows lack NCCL's time; "" if all have it. */
static void why_no_ratio(const bench_options_t *options, const bench_machine_t *machine, fact_t *fact)
{
    const char *why = "";
    bool later = false;
    bench_kind_t kind;
    for (uint32_t at = 0; bench_next_kind(options, machine, &at, &kind);) {
        later = later || (kind.collective == ALG_ALL_TO_ALL && !options->messages) || kind.collective == ALG_GATHER ||
                kind.collective == ALG_SCATTER;
    }
    if (machine->cpu) {
        why = "the CPU device has no NCCL beside it; ratio needs GPUs";
    } else if (!options->nccl) {
        why = "--no-nccl was given";
    } else if (machine->nccl_path[0] == '\0') {
        why = "no real NCCL was found; SHUNT_NCCL_PATH names one";
    } else if (later && machine->nccl_version < 22800) {
        why = "alltoall, gather and scatter are calls of NCCL since 2.28 (alltoall: --messages)";
    }
    snprintf(fact->value, sizeof fact->value, "%s", why);
}

/* The smallest sizes are skipped if a rank's share has no element. */
static void what_is_not_measured(const bench_options_t *options, const bench_machine_t *machine, fact_t *fact)
{
    size_t used = 0;
    bench_kind_t kind;
    for (uint32_t at = 0; bench_next_kind(options, machine, &at, &kind);) {
        uint64_t least = options->from_bytes;
        while (least <= options->to_bytes && bench_count(options, &kind, least) == 0) {
            least = bench_next_size(options, least);
        }
        if (least == options->from_bytes || kind.op != (options->op >= 0 ? options->op : 0)) {
            continue; /* all operators have the same sizes */
        }
        const char *name = alg_collective_name(kind.collective), *type = bench_types[kind.type].name;
        const char *comma = used > 0 ? ", " : "";
        const int length = least > options->to_bytes
                               ? snprintf(fact->value + used, sizeof fact->value - used,
                                          "%s%s of %s: no size has an element for every rank", comma, name, type)
                               : snprintf(fact->value + used, sizeof fact->value - used, "%s%s of %s below %llu bytes",
                                          comma, name, type, (unsigned long long)least);
        used += (size_t)length;
        if (used >= sizeof fact->value) {
            return;
        }
    }
}

static void facts_of(const bench_options_t *options, const bench_machine_t *machine, fact_t facts[FACTS])
{
    static const char *const names[FACTS] = {"hardware", "driver", "cuda",      "nccl",     "shunt",       "date",
                                             "command",  "floor",  "multicast", "no_ratio", "not_measured"};
    const tool_gpus_t *gpus = &machine->gpus;
    char version[16];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);

    for (int i = 0; i < FACTS; i++) {
        facts[i] = (fact_t){.name = names[i]};
    }
    if (machine->cpu) {
        snprintf(facts[0].value, sizeof facts[0].value, "CPU device, %u ranks, %ld processors", options->ranks,
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
    tool_version_text(machine->shunt_version, version);
    snprintf(facts[4].value, sizeof facts[4].value, "%s", version);
    strftime(facts[5].value, sizeof facts[5].value, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(facts[6].value, sizeof facts[6].value, "%s", options->line);
    if (options->floor) {
        const tool_floor_t *floor = &machine->floor;
        snprintf(facts[7].value, sizeof facts[7].value,
                 "launch %.2f us (eager %.2f), push of 1 KB %.2f us, one way %.2f us, %.1f GB/s; through pinned "
                 "memory one way %.2f us, %.1f GB/s stored, %.1f GB/s loaded",
                 floor->launch_graph * 1e6, floor->launch_eager * 1e6, floor->push * 1e6, floor->one_way * 1e6,
                 floor->bandwidth * 1e-9, floor->pinned_one_way * 1e6, floor->pinned_store * 1e-9,
                 floor->pinned_load * 1e-9);
    }
    const char *nvls = secure_getenv("NCCL_NVLS_ENABLE");
    const char *state = machine->class_name[0] == '\0' ? "" : strstr(machine->class_name, "-mc") ? "on, " : "off, ";
    snprintf(facts[8].value, sizeof facts[8].value, "%sNCCL_NVLS_ENABLE%s%s", state,
             nvls != NULL ? "=" : " not in the environment", nvls != NULL ? nvls : "");
    why_no_ratio(options, machine, &facts[9]);
    what_is_not_measured(options, machine, &facts[10]);
}

/* Replace line breaks, which would end the comment. */
static void comment(FILE *file, const fact_t *fact)
{
    fprintf(file, "# %s: ", fact->name);
    for (const char *at = fact->value; *at != '\0'; at++) {
        fputc((unsigned char)*at < 0x20 ? ' ' : *at, file);
    }
    fputc('\n', file);
}

typedef enum group { ALWAYS, PLACE, WITH_FLOOR, WITH_HOST_TIME, WITH_CHOICE, WITH_BESIDE } group_t;

typedef struct column {
    const char *name;
    int width;  /* width in the table on stdout; 0: in the files only */
    bool words; /* a text, which JSON quotes */
    group_t group;
} column_t;

/* In the order of fill_cells. Older readers rely on the positions of the first columns. */
static const column_t columns[] = {
    {"ranks", 0, false, ALWAYS},
    {"mode", 0, true, ALWAYS},
    {"place", 5, true, PLACE},
    {"bytes", 12, false, ALWAYS},
    {"count", 11, false, ALWAYS},
    {"type", 9, true, ALWAYS},
    {"op", 9, true, ALWAYS},
    {"algorithm", 12, true, ALWAYS},
    {"us", 10, false, ALWAYS},
    {"algbw", 8, false, ALWAYS},
    {"busbw", 8, false, ALWAYS},
    {"wrong", 7, false, ALWAYS},
    {"nccl_us", 9, false, ALWAYS},
    {"ratio", 6, false, ALWAYS},
    {"collective", 13, true, ALWAYS},
    {"floor_us", 9, false, WITH_FLOOR},
    {"floor_ratio", 11, false, WITH_FLOOR},
    {"call_ns", 8, false, WITH_HOST_TIME},
    {"nccl_call_ns", 12, false, WITH_HOST_TIME},
    {"launch_ns", 9, false, WITH_HOST_TIME},
    {"call_ratio", 10, false, WITH_HOST_TIME},
    {"launch_us", 9, false, WITH_HOST_TIME},
    {"launch_ratio", 12, false, WITH_HOST_TIME},
    {"sync_us", 8, false, WITH_HOST_TIME},
    {"nccl_sync_us", 12, false, WITH_HOST_TIME},
    {"choice_ns", 9, false, WITH_CHOICE},
    {"beside_calls", 12, false, WITH_BESIDE},
    {"products_ms", 11, false, WITH_BESIDE},
    {"beside_ms", 9, false, WITH_BESIDE},
    {"nccl_beside_ms", 14, false, WITH_BESIDE},
    {"beside_ratio", 12, false, WITH_BESIDE},
};
enum { COLUMNS = sizeof columns / sizeof columns[0], CELL_BYTES = 32 };

/* "": no value. */
typedef struct cells {
    char text[COLUMNS][CELL_BYTES];
    uint32_t filled;
} cells_t;

static bool shown(const bench_options_t *options, uint32_t column)
{
    switch (columns[column].group) {
    case WITH_FLOOR:
        return options->floor;
    case WITH_HOST_TIME:
        return options->host_time;
    case WITH_CHOICE:
        return options->choose;
    case WITH_BESIDE:
        return options->beside;
    default:
        return true;
    }
}

/* If only in-place or only out-of-place calls are measured, the head says so, not a column. */
static void table_cell(const bench_report_t *report, uint32_t column, const char *text)
{
    if (columns[column].width > 0 && (columns[column].group != PLACE || report->options->both_places)) {
        fprintf(report->table, " %*s", columns[column].width, text[0] != '\0' ? text : "-");
    }
}

static void end_json(tool_json_t *json, bool complete)
{
    tool_json_end(json, ']');
    tool_json_bool(json, "complete", complete);
    tool_json_end(json, '}');
}

/* Complete the document, then seek back. Not on stdout, which may be a pipe or opened for appending. */
static void end_json_for_now(const tool_json_t *json)
{
    const long at = json->file == NULL || json->file == stdout ? -1 : ftell(json->file);
    if (at >= 0) {
        tool_json_t copy = *json;
        end_json(&copy, false);
        fflush(json->file);
        fseek(json->file, at, SEEK_SET);
    }
}

static const char *mode_of(const bench_options_t *options)
{
    return options->graph ? "graph" : options->blocking ? "blocking" : "eager";
}

static void heads(bench_report_t *report, const fact_t facts[FACTS])
{
    tool_json_begin(&report->json, NULL, '{');
    for (int i = 0; i < FACTS; i++) {
        if (facts[i].value[0] != '\0') {
            comment(report->table, &facts[i]);
            if (report->csv != NULL) {
                comment(report->csv, &facts[i]);
            }
        }
        tool_json_word(&report->json, facts[i].name, facts[i].value);
    }
    fprintf(report->table, "# %s, %s, times in microseconds, bandwidths in GB/s\n#", mode_of(report->options),
            report->options->both_places ? "out of place and in place"
            : report->options->in_place  ? "in place"
                                         : "out of place");
    for (uint32_t i = 0; i < COLUMNS; i++) {
        if (shown(report->options, i)) {
            table_cell(report, i, columns[i].name);
            if (report->csv != NULL) {
                fprintf(report->csv, "%s%s", i == 0 ? "" : ",", columns[i].name);
            }
        }
    }
    fprintf(report->table, "\n");
    if (report->csv != NULL) {
        fprintf(report->csv, "\n");
    }
    tool_json_begin(&report->json, "rows", '[');
    end_json_for_now(&report->json);
}

void bench_report_progress(bench_report_t *report, uint64_t bytes, double part)
{
    report->progress.within = part * tool_progress_weight(bytes);
    tool_progress_show(&report->progress);
}

bench_report_t *bench_report_open(const bench_options_t *options, const bench_machine_t *machine, double weight)
{
    bench_report_t *report = calloc(1, sizeof *report);
    if (report == NULL) {
        return NULL;
    }
    report->options = options;
    report->floor = &machine->floor;
    report->table = tool_output_text(tool_is_stdout(options->csv) ? options->csv : options->json);
    report->json.lines = 2;
    if (!tool_output_open("bench", options->csv, &report->csv)) {
        goto free_report;
    }
    if (!tool_output_open("bench", options->json, &report->json.file)) {
        goto close_csv;
    }
    fact_t facts[FACTS];
    facts_of(options, machine, facts);
    heads(report, facts);
    tool_progress_open(&report->progress, weight);
    bench_report_progress(report, 0, 0);
    return report;

close_csv:
    (void)tool_output_close("bench", options->csv, report->csv);
free_report:
    free(report);
    return NULL;
}

static void put(cells_t *cells, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(cells_t *cells, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cells->text[cells->filled++], CELL_BYTES, format, arguments);
    va_end(arguments);
}

static void put_nothing(cells_t *cells)
{
    cells->filled++;
}

/* Times not measured are 0. */
static void put_time(cells_t *cells, int digits, double time)
{
    if (time > 0) {
        put(cells, "%.*f", digits, time);
    } else {
        put_nothing(cells);
    }
}

static void put_ratio(cells_t *cells, double over, double under)
{
    if (over > 0 && under > 0) {
        put(cells, "%.2f", over / under);
    } else {
        put_nothing(cells);
    }
}

static void fill_cells(const bench_options_t *options, const tool_floor_t *floor, const bench_row_t *row,
                       cells_t *cells)
{
    const bench_calls_t *calls = &row->calls;
    double algbw = row->seconds > 0 ? (double)row->bytes / row->seconds * 1e-9 : 0;
    put(cells, "%u", options->ranks);
    put(cells, "%s", mode_of(options));
    put(cells, "%s%s", row->in_place ? "in" : "out", options->skew ? "+1" : "");
    put(cells, "%llu", (unsigned long long)row->bytes);
    put(cells, "%llu", (unsigned long long)row->count);
    put(cells, "%s", bench_types[row->type].name);
    put(cells, "%s", alg_collective_reduces(row->collective) ? bench_ops[row->op].name : "none");
    put(cells, "%.31s", row->algorithm);
    put(cells, "%.3f", row->seconds * 1e6);
    put(cells, "%.3f", algbw);
    put(cells, "%.3f", algbw * bench_bus_factor(row->collective, options->ranks));
    if (row->wrong != UINT64_MAX) {
        put(cells, "%llu", (unsigned long long)row->wrong);
    } else {
        put_nothing(cells);
    }
    put_time(cells, 2, row->nccl_seconds * 1e6);
    put_ratio(cells, row->nccl_seconds, row->seconds);
    put(cells, "%s", alg_collective_name(row->collective));

    double least =
        options->floor ? tool_floor_seconds(floor, row->collective, options->ranks, options->graph, row->bytes) : 0;
    put_time(cells, 3, least * 1e6);
    put_ratio(cells, row->seconds, least);

    put_time(cells, 0, calls->call * 1e9);
    put_time(cells, 0, calls->nccl_call * 1e9);
    put_time(cells, 0, calls->launch * 1e9);
    put_ratio(cells, calls->call, calls->launch);
    put_time(cells, 2, calls->launch_each * 1e6);
    put_ratio(cells, row->seconds, calls->launch_each);
    put_time(cells, 2, calls->sync * 1e6);
    put_time(cells, 2, calls->nccl_sync * 1e6);

    put_time(cells, 1, row->choice * 1e9);

    const bench_beside_t *beside = &row->beside;
    put(cells, "%u", beside->calls);
    put_time(cells, 3, beside->products * 1e3);
    put_time(cells, 3, beside->total * 1e3);
    put_time(cells, 3, beside->nccl_total * 1e3);
    put_ratio(cells, beside->nccl_total, beside->total);
}

void bench_report_row(bench_report_t *report, const bench_row_t *row)
{
    cells_t cells = {.filled = 0};
    fill_cells(report->options, report->floor, row, &cells);
    tool_progress_hide(&report->progress); /* the bar and the table may share a terminal */
    fprintf(report->table, " ");
    tool_json_begin(&report->json, NULL, '{');
    for (uint32_t i = 0; i < COLUMNS; i++) {
        const char *text = cells.text[i];
        if (!shown(report->options, i)) {
            continue;
        }
        table_cell(report, i, text);
        if (report->csv != NULL) {
            fprintf(report->csv, "%s%s", i == 0 ? "" : ",", text);
        }
        if (columns[i].words) {
            tool_json_text(&report->json, columns[i].name, text);
        } else {
            tool_json_value(&report->json, columns[i].name, "%s", text[0] != '\0' ? text : "null");
        }
    }
    fprintf(report->table, "\n");
    fflush(report->table);
    if (report->csv != NULL) {
        fprintf(report->csv, "\n");
        fflush(report->csv);
    }
    tool_json_end(&report->json, '}');
    end_json_for_now(&report->json);
    report->rows++;
    report->busbw += row->seconds > 0 ? (double)row->bytes / row->seconds * 1e-9 *
                                            bench_bus_factor(row->collective, report->options->ranks)
                                      : 0;
    report->wrong += row->wrong != UINT64_MAX ? row->wrong : 0;
    report->progress.done += tool_progress_weight(row->bytes);
    bench_report_progress(report, 0, 0);
}

/* The last lines have the format of nccl-tests, for programs that parse it. */
static void print_summary(const bench_report_t *report)
{
    if (report->options->check && report->rows > 0) {
        fprintf(report->table, "# Out of bounds values : %llu %s\n", (unsigned long long)report->wrong,
                report->wrong == 0 ? "OK" : "FAILED");
    }
    if (report->rows > 0) {
        fprintf(report->table, "# Avg bus bandwidth    : %.3f\n", report->busbw / report->rows);
    }
}

bool bench_report_close(bench_report_t *report, bool complete)
{
    const bench_options_t *options = report->options;
    tool_progress_hide(&report->progress);
    print_summary(report);
    end_json(&report->json, complete);
    bool whole = tool_output_close("bench", options->csv, report->csv);
    whole = tool_output_close("bench", options->json, report->json.file) && whole;
    whole = tool_output_close("bench", "the table", report->table) && whole;
    free(report);
    return whole;
}
