/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_bench.c - a few seconds of `shunt bench` and their result in one sentence.
 *
 * Measures the command's most frequent call; without a command, all-reduces of
 * 64 KB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/doctor/doctor.h"

enum { USUAL_BYTES = 64 << 10, MOST_BYTES = 256 << 20, CPU_RANKS = 4 };

static const char *plural(alg_collective_t collective)
{
    static const char *const names[ALG_COLLECTIVE_COUNT] = {
        [ALG_ALL_REDUCE] = "all-reduces", [ALG_REDUCE_SCATTER] = "reduce-scatters",
        [ALG_REDUCE] = "reduces",         [ALG_ALL_GATHER] = "all-gathers",
        [ALG_ALL_TO_ALL] = "all-to-alls", [ALG_BROADCAST] = "broadcasts",
        [ALG_GATHER] = "gathers",         [ALG_SCATTER] = "scatters",
    };
    return names[collective] != NULL ? names[collective] : alg_collective_name(collective);
}

typedef struct subject {
    alg_collective_t collective;
    uint64_t bytes;
    uint64_t calls; /* of the command; 0: no command */
} subject_t;

static subject_t find_subject(const tool_counts_t *counts)
{
    subject_t subject = {ALG_ALL_REDUCE, USUAL_BYTES, 0};
    for (uint32_t i = 0; i < counts->count; i++) {
        const tool_count_t *row = &counts->row[i];
        const alg_collective_t collective = alg_collective_find(row->collective);
        const uint64_t bytes = row->calls > 0 ? row->bytes / row->calls : 0;
        if (collective < ALG_COLLECTIVE_COUNT && row->calls > subject.calls && bytes >= 1024 && bytes <= MOST_BYTES) {
            subject = (subject_t){collective, bytes, row->calls};
        }
    }
    return subject;
}

static void size_text(uint64_t bytes, char text[16])
{
    static const char *const units[] = {"B", "KB", "MB"};
    int unit = 0;
    double size = (double)bytes;
    for (; size >= 1024 && unit < 2; unit++) {
        size /= 1024;
    }
    snprintf(text, 16, "%.3g %s", size, units[unit]);
}

static bool rank_body(const void *job, bench_shared_t *shared, uint32_t rank, int rows)
{
    return bench_rank_run(job, shared, rank, rows);
}

typedef struct result {
    bool there;
    bench_row_t row;
} result_t;

static bool take_row(void *context, const void *row)
{
    result_t *result = context;
    if (row != NULL) {
        result->row = *(const bench_row_t *)row;
        result->there = true;
    }
    return true;
}

static bool measure(const doctor_t *doctor, const subject_t *subject, result_t *result)
{
    const bench_machine_t *machine = doctor->machine;
    bench_options_t options = {.from_bytes = subject->bytes,
                               .to_bytes = subject->bytes,
                               .factor = 2,
                               .ranks = machine->cpu ? CPU_RANKS : machine->gpus.count,
                               .calls = machine->cpu ? 20 : 50,
                               .warmup = 10,
                               .rounds = 5,
                               .type = bench_type_find("bfloat16"),
                               .collective = (int32_t)subject->collective,
                               .graph = !machine->cpu,
                               .check = true,
                               .nccl = true};
    options.ranks = options.ranks < BENCH_MAX_RANKS ? options.ranks : BENCH_MAX_RANKS;
    bench_shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return false;
    }
    shared->machine = *machine;
    bench_family_t family = {.command = "doctor", .shared = shared, .ranks = options.ranks};
    const bool done = bench_family_run(&family, rank_body, &options, sizeof(bench_row_t), take_row, result);
    munmap(shared, sizeof *shared);
    return done && result->there;
}

static void report_why_not(doctor_t *doctor, const subject_t *subject, const char *size)
{
    doctor_log_t log;
    doctor_log_read(doctor->folder, "bench.", &log);
    if (log.forwarded.count > 0) {
        doctor_print(doctor, DOCTOR_FAULT, log.forwarded.advice[0], "the bench's communicator was forwarded: %s",
                     log.forwarded.text[0]);
    } else {
        doctor_print(doctor, DOCTOR_NOTE, "run `shunt tune`, which measures what is faster here",
                     "the table gives %s %s to NCCL on this machine", size, plural(subject->collective));
    }
}

static void report_times(doctor_t *doctor, const subject_t *subject, const bench_row_t *row)
{
    char size[16], calls[64] = "";
    size_text(row->bytes, size);
    if (row->wrong != 0) {
        doctor_print(doctor, DOCTOR_FAULT, "report it, with the output of `shunt info`", "%llu wrong elements in %s %s",
                     (unsigned long long)row->wrong, size, plural(subject->collective));
        return;
    }
    if (doctor->machine->cpu) {
        doctor_print(doctor, DOCTOR_OK, NULL,
                     "%s %s of %d ranks are right on the CPU device (its times say nothing of "
                     "GPUs)",
                     size, plural(subject->collective), CPU_RANKS);
        return;
    }
    if (subject->calls > 0) {
        snprintf(calls, sizeof calls, ", which came most often,");
    }
    if (strcmp(row->algorithm, "nccl") == 0) {
        report_why_not(doctor, subject, size);
    } else if (row->nccl_seconds == 0) {
        doctor_print(doctor, DOCTOR_NOTE, NULL, "your %s %s take %.3g us; there is no NCCL to compare with", size,
                     plural(subject->collective), row->seconds * 1e6);
    } else {
        const bool slower = row->seconds > row->nccl_seconds;
        doctor_print(doctor, slower ? DOCTOR_NOTE : DOCTOR_OK, slower ? "run `shunt tune`" : NULL,
                     "on this machine your %s %s%s go from %.3g to %.3g us", size, plural(subject->collective), calls,
                     row->nccl_seconds * 1e6, row->seconds * 1e6);
    }
}

void doctor_bench(doctor_t *doctor)
{
    const bench_machine_t *machine = doctor->machine;
    const subject_t subject = find_subject(&doctor->counts);
    char pattern[PATH_MAX + 16];
    result_t result = {0};
    doctor->check = "bench";
    if (!machine->cpu && (bench_device_cuda == NULL || machine->gpus.count < 2)) {
        return; /* already reported */
    }
    snprintf(pattern, sizeof pattern, "%s/bench.%%h.%%p", doctor->folder);
    if (setenv("SHUNT_DEBUG", "info", 1) != 0 || setenv("SHUNT_DEBUG_FILE", pattern, 1) != 0) {
        return;
    }
    if (measure(doctor, &subject, &result)) {
        doctor->report->measured = true;
        doctor->report->row = result.row;
        report_times(doctor, &subject, &result.row);
    } else {
        doctor_print(doctor, DOCTOR_FAULT, "run `shunt bench` for more", "the bench failed: see the lines above");
    }
}
