/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_report.c - what was measured, as text and CSV.
 *
 * CSV: lines that begin with '#' as in a table (tune_report_head), then
 *   ranks,mode,type,bytes   the case
 *   algorithm               the choice; nccl, or builtin for the built-in one
 *   blocks,threads          of the choice; 0 for nccl
 *   us,spread_percent       of one call, median over rounds; where half of the rounds lie
 *   builtin,builtin_us      what the built-in table takes, and its time
 *   nccl_us                 the real NCCL's; empty: not measured
 *   ratio                   the better of the two over us
 *   collective              as given to --collective
 *   beside_ms,builtin_beside_ms,nccl_beside_ms  beside products, until both are through; empty: not measured
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
    if (machine->host) {
        fprintf(file, "# hardware: host device, %ld processors\n", sysconf(_SC_NPROCESSORS_ONLN));
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

/* ---- Rows ---- */

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
    FILE *file = fopen(options->csv, "we");
    if (file != NULL) {
        tune_report_head(file, options, machine);
        fprintf(file, "ranks,mode,type,bytes,algorithm,blocks,threads,us,spread_percent,builtin,builtin_us,nccl_us,"
                      "ratio,collective,beside_ms,builtin_beside_ms,nccl_beside_ms\n");
        for (uint32_t i = 0; i < count; i++) {
            write_csv(file, &results[i]);
        }
    }
    bool whole = file != NULL && ferror(file) == 0;
    if (file != NULL && fclose(file) != 0) {
        whole = false;
    }
    if (!whole) {
        fprintf(stderr, "shunt tune: %s cannot be written: %s\n", options->csv, strerror(errno));
    }
    return whole;
}

static void print_row(const tune_result_t *result)
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
    printf("%12llu %22s %9.2f %6.1f%% %10.2f %9s %8s %8.2f", (unsigned long long)result->bytes, choice,
           result->seconds * 1e6, result->spread * 100, result->builtin_seconds * 1e6, nccl, gain,
           result->builtin_seconds / result->seconds);
    if (result->beside_seconds > 0) {
        printf(" %9.2f %17.2f %14.2f", result->beside_seconds * 1e3, result->builtin_beside_seconds * 1e3,
               result->nccl_beside_seconds * 1e3);
    }
    printf("\n");
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

/* Geometric means: a factor of two up and one down come to one. */
static void print_group(const tune_result_t *results, uint32_t count)
{
    double over_nccl = 0, over_builtin = 0;
    printf("# %s, %u ranks (%s), %s, %s\n", alg_collective_name(results->collective), results->ranks,
           results->class_name, mode_of(results), bench_types[results->type].name);
    printf("#%11s %22s %9s %7s %10s %9s %8s %8s%s\n", "bytes", "choice", "us", "spread", "builtin_us", "nccl_us",
           "/nccl", "/builtin", results->beside_seconds > 0 ? " beside_ms builtin_beside_ms nccl_beside_ms" : "");
    for (uint32_t i = 0; i < count; i++) {
        print_row(&results[i]);
        over_builtin += log(results[i].builtin_seconds / results[i].seconds);
        over_nccl += results[i].nccl_seconds > 0 ? log(results[i].nccl_seconds / results[i].seconds) : 0;
    }
    printf("# on average %.2f times as fast as the built-in table", exp(over_builtin / count));
    if (results->nccl_seconds > 0) {
        printf(", %.2f times as fast as NCCL", exp(over_nccl / count));
    }
    printf("\n");
}

bool tune_report(const tune_options_t *options, const bench_machine_t *machine, const tune_result_t *results,
                 uint32_t count)
{
    tune_report_head(stdout, options, machine);
    printf("# (algorithm): the built-in choice, which no row of the table overrides\n");
    for (uint32_t done = 0; done < count;) {
        const uint32_t size = group_size(results + done, count - done);
        print_group(results + done, size);
        done += size;
    }
    return options->csv == NULL || write_file(options, machine, results, count);
}
