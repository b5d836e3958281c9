/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_report.c - writes the results as text, CSV and JSON (docs/settings.md). All are written at the end of the run,
 * or when it is interrupted, so they are complete.
 *
 * CSV: lines that begin with '#' as in a table (tune_report_head), "# no_nccl: " and why if nccl_us is empty, then
 *   ranks,mode,type,bytes   the case
 *   algorithm               the choice; nccl, or builtin for the built-in one
 *   blocks,threads          of the choice; 0 for nccl
 *   us,spread_percent       of one call, median over rounds; where half of the rounds lie
 *   builtin,builtin_us      the built-in table's choice, and its time
 *   nccl_us                 the real NCCL's; empty: not measured
 *   ratio                   the better of builtin_us and nccl_us, over us
 *   collective              as given to --collective
 *   beside_ms,builtin_beside_ms,nccl_beside_ms  until calls and products beside them have ended; empty: not measured
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/base/json.h"
#include "tools/base/output.h"
#include "tools/tune/tune.h"

double tune_better(const tune_result_t *result)
{
    return result->nccl_seconds > 0 ? fmin(result->builtin_seconds, result->nccl_seconds) : result->builtin_seconds;
}

void tune_report_head(FILE *file, const tune_options_t *options, const bench_machine_t *machine)
{
    const tool_gpus_t *gpus = &machine->gpus;
    char version[16], date[32];
    time_t now = time(NULL);
    struct tm utc;
    if (machine->cpu) {
        fprintf(file, "# hardware: CPU device, %ld processors\n", sysconf(_SC_NPROCESSORS_ONLN));
    } else {
        fprintf(file, "# hardware: %u x %s\n# driver: %s\n# cuda: %u.%u\n", gpus->count, gpus->gpu[0].name,
                gpus->driver, gpus->cuda_driver / 1000, gpus->cuda_driver % 1000 / 10);
    }
    if (machine->nccl_version != 0) {
        tool_version_text(machine->nccl_version, version);
        fprintf(file, "# nccl: %s\n", version);
    }
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    fprintf(file, "# shunt: %d.%d.%d\n# date: %s\n# command: %s\n", machine->shunt_version / 10000,
            machine->shunt_version / 100 % 100, machine->shunt_version % 100, date, options->line);
}

FILE *tune_text(const tune_options_t *options)
{
    return tool_output_text(tool_is_stdout(options->csv) ? options->csv : options->json);
}

/* NULL: NCCL was measured. */
static const char *why_no_nccl(const bench_machine_t *machine)
{
    return machine->cpu                    ? "the CPU device has no NCCL beside it"
           : machine->nccl_path[0] == '\0' ? "no real NCCL was found; SHUNT_NCCL_PATH names one"
                                           : NULL;
}

static const char *mode_of(const tune_result_t *result)
{
    return result->captured ? "captured" : "eager";
}

static void write_csv(FILE *file, const tune_result_t *result)
{
    char nccl[24] = "";
    if (result->nccl_seconds > 0) {
        snprintf(nccl, sizeof nccl, "%.3f", result->nccl_seconds * 1e6);
    }
    const double totals[3] = {result->beside_seconds, result->builtin_beside_seconds, result->nccl_beside_seconds};
    char beside[3][24] = {"", "", ""};
    for (int i = 0; i < 3; i++) {
        if (totals[i] > 0) {
            snprintf(beside[i], sizeof beside[i], "%.3f", totals[i] * 1e3);
        }
    }
    fprintf(file, "%u,%s,%s,%llu,%s,%u,%u,%.3f,%.1f,%s,%.3f,%s,%.3f,%s,%s,%s,%s\n", result->ranks, mode_of(result),
            bench_types[result->type].name, (unsigned long long)result->bytes, result->choice, result->blocks,
            result->threads, result->seconds * 1e6, result->spread * 100, result->builtin,
            result->builtin_seconds * 1e6, nccl, tune_better(result) / result->seconds,
            alg_collective_name(result->collective), beside[0], beside[1], beside[2]);
}

static bool write_file(const tune_options_t *options, const bench_machine_t *machine, const tune_result_t *results,
                       uint32_t count)
{
    FILE *file;
    if (!tool_output_open("tune", options->csv, &file)) {
        return false;
    }
    if (file != NULL) {
        tune_report_head(file, options, machine);
        if (why_no_nccl(machine) != NULL) {
            fprintf(file, "# no_nccl: %s\n", why_no_nccl(machine));
        }
        fprintf(file, "ranks,mode,type,bytes,algorithm,blocks,threads,us,spread_percent,builtin,builtin_us,nccl_us,"
                      "ratio,collective,beside_ms,builtin_beside_ms,nccl_beside_ms\n");
        for (uint32_t i = 0; i < count; i++) {
            write_csv(file, &results[i]);
        }
    }
    return tool_output_close("tune", options->csv, file);
}

/* Write a time; null if it was not measured. */
static void json_time(tool_json_t *json, const char *name, double time)
{
    if (time > 0) {
        tool_json_value(json, name, "%.3f", time);
    } else {
        tool_json_text(json, name, NULL);
    }
}

static void json_row(tool_json_t *json, const tune_result_t *result)
{
    tool_json_begin(json, NULL, '{');
    tool_json_text(json, "collective", alg_collective_name(result->collective));
    tool_json_value(json, "ranks", "%u", result->ranks);
    tool_json_text(json, "class", result->class_name);
    tool_json_text(json, "mode", mode_of(result));
    tool_json_text(json, "type", bench_types[result->type].name);
    tool_json_value(json, "bytes", "%llu", (unsigned long long)result->bytes);
    tool_json_text(json, "algorithm", result->choice);
    tool_json_value(json, "blocks", "%u", result->blocks);
    tool_json_value(json, "threads", "%u", result->threads);
    json_time(json, "us", result->seconds * 1e6);
    tool_json_value(json, "spread_percent", "%.1f", result->spread * 100);
    tool_json_text(json, "builtin", result->builtin);
    json_time(json, "builtin_us", result->builtin_seconds * 1e6);
    json_time(json, "nccl_us", result->nccl_seconds * 1e6);
    tool_json_value(json, "ratio", "%.3f", tune_better(result) / result->seconds);
    json_time(json, "beside_ms", result->beside_seconds * 1e3);
    json_time(json, "builtin_beside_ms", result->builtin_beside_seconds * 1e3);
    json_time(json, "nccl_beside_ms", result->nccl_beside_seconds * 1e3);
    tool_json_end(json, '}');
}

static void json_head(tool_json_t *json, const tune_options_t *options, const bench_machine_t *machine)
{
    const tool_gpus_t *gpus = &machine->gpus;
    char text[16], date[32];
    const time_t now = time(NULL);
    struct tm utc;
    snprintf(text, sizeof text, "%d.%d.%d", machine->shunt_version / 10000, machine->shunt_version / 100 % 100,
             machine->shunt_version % 100);
    tool_json_text(json, "shunt", text);
    tool_version_text(machine->nccl_version, text);
    tool_json_text(json, "nccl", machine->nccl_version != 0 ? text : NULL);
    tool_json_text(json, "no_nccl", why_no_nccl(machine));
    tool_json_text(json, "device", machine->cpu ? "cpu" : "cuda");
    tool_json_text(json, "gpu", machine->cpu ? NULL : gpus->gpu[0].name);
    tool_json_value(json, "gpu_count", "%u", machine->cpu ? 0 : gpus->count);
    tool_json_word(json, "driver", machine->cpu ? NULL : gpus->driver);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    tool_json_text(json, "date", date);
    tool_json_text(json, "command", options->line);
}

static bool write_json(const tune_options_t *options, const bench_machine_t *machine, const tune_result_t *results,
                       uint32_t count, const tune_end_t *end)
{
    tool_json_t json = {.lines = 2};
    if (!tool_output_open("tune", options->json, &json.file)) {
        return false;
    }
    tool_json_begin(&json, NULL, '{');
    json_head(&json, options, machine);
    tool_json_bool(&json, "complete", end->complete);
    tool_json_text(&json, "table", end->table);
    if (options->check) {
        tool_json_value(&json, "slower", "%u", end->slower);
    } else {
        tool_json_text(&json, "slower", NULL);
    }
    tool_json_begin(&json, "rows", '[');
    for (uint32_t i = 0; i < count; i++) {
        json_row(&json, &results[i]);
    }
    tool_json_end(&json, ']');
    tool_json_end(&json, '}');
    return tool_output_close("tune", options->json, json.file);
}

static void print_row(FILE *out, const tune_result_t *result)
{
    char choice[40], nccl[16] = "-", gain[16] = "-";
    const bool ours = result->blocks != 0;
    snprintf(choice, sizeof choice, ours ? "%s:%ux%u" : "%s", result->choice, result->blocks, result->threads);
    if (strcmp(result->choice, TUNE_BUILTIN) == 0) {
        snprintf(choice, sizeof choice, "(%s)", result->builtin);
    }
    if (result->nccl_seconds > 0) {
        snprintf(nccl, sizeof nccl, "%.2f", result->nccl_seconds * 1e6);
        snprintf(gain, sizeof gain, "%.2f", result->nccl_seconds / result->seconds);
    }
    fprintf(out, "%12llu %22s %9.2f %6.1f%% %10.2f %9s %8s %8.2f", (unsigned long long)result->bytes, choice,
            result->seconds * 1e6, result->spread * 100, result->builtin_seconds * 1e6, nccl, gain,
            result->builtin_seconds / result->seconds);
    if (result->beside_seconds > 0) {
        fprintf(out, " %9.2f %17.2f %14.2f", result->beside_seconds * 1e3, result->builtin_beside_seconds * 1e3,
                result->nccl_beside_seconds * 1e3);
    }
    fprintf(out, "\n");
}

/* ---- Groups: one collective, number of ranks and type ---- */

bool tune_same_group(const tune_result_t *a, const tune_result_t *b)
{
    return a->collective == b->collective && a->ranks == b->ranks && a->type == b->type;
}

static uint32_t group_size(const tune_result_t *results, uint32_t count)
{
    uint32_t size = 1;
    while (size < count && tune_same_group(&results[size], results)) {
        size++;
    }
    return size;
}

/* Geometric means: a gain and a loss by a factor of two cancel out. */
static void print_group(FILE *out, const tune_result_t *results, uint32_t count)
{
    double over_nccl = 0, over_builtin = 0;
    fprintf(out, "# %s, %u ranks (%s), %s, %s\n", alg_collective_name(results->collective), results->ranks,
            results->class_name, mode_of(results), bench_types[results->type].name);
    fprintf(out, "#%11s %22s %9s %7s %10s %9s %8s %8s%s\n", "bytes", "choice", "us", "spread", "builtin_us", "nccl_us",
            "/nccl", "/builtin", results->beside_seconds > 0 ? " beside_ms builtin_beside_ms nccl_beside_ms" : "");
    for (uint32_t i = 0; i < count; i++) {
        print_row(out, &results[i]);
        over_builtin += log(results[i].builtin_seconds / results[i].seconds);
        over_nccl += results[i].nccl_seconds > 0 ? log(results[i].nccl_seconds / results[i].seconds) : 0;
    }
    fprintf(out, "# on average %.2f times as fast as the built-in table", exp(over_builtin / count));
    if (results->nccl_seconds > 0) {
        fprintf(out, ", %.2f times as fast as NCCL", exp(over_nccl / count));
    }
    fprintf(out, "\n");
}

bool tune_report(const tune_options_t *options, const bench_machine_t *machine, const tune_result_t *results,
                 uint32_t count, const tune_end_t *end)
{
    FILE *out = tune_text(options);
    tune_report_head(out, options, machine);
    if (why_no_nccl(machine) != NULL) {
        fprintf(out, "# no_nccl: %s\n", why_no_nccl(machine));
    }
    fprintf(out, "# (algorithm): the built-in choice, which no row of the table overrides\n");
    for (uint32_t done = 0; done < count;) {
        const uint32_t size = group_size(results + done, count - done);
        print_group(out, results + done, size);
        done += size;
    }
    const bool whole = write_file(options, machine, results, count);
    return write_json(options, machine, results, count, end) && whole;
}
