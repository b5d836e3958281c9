/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c - `shunt bench`: checks the machine, runs the ranks and reports the rows that rank 0 sends.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#include "tools/base/progress.h"
#include "tools/base/signals.h"
#include "tools/bench/bench.h"

static int complete_for_cpu(bench_options_t *options)
{
    const char *needy = options->graph       ? "--graph (-G)"
                        : options->host_time ? "--host-time"
                        : options->beside    ? "--beside"
                                             : NULL;
    if (needy != NULL) {
        return tool_usage("bench", "%s needs a GPU", needy);
    }
    if (options->floor) {
        return tool_usage("bench", "--floor: the CPU device has no floor");
    }
    options->ranks = options->ranks != 0 ? options->ranks : 4;
    options->calls = options->calls != 0 ? options->calls : 20;
    options->factor = options->factor != 0 || options->step_bytes != 0 ? options->factor : 4;
    if (!options->sizes_given[1]) {
        options->to_bytes = 1 << 20;
    }
    return TOOL_OK;
}

static int complete_for_cuda(bench_options_t *options, const bench_machine_t *machine)
{
    if (bench_device_cuda == NULL || machine->gpus.count == 0) {
        fprintf(stderr, "shunt bench: the library uses CUDA, but no GPU can be used: %s\n", machine->gpus.error);
        return TOOL_FAILED;
    }
    if (machine->gpus.count == 1) {
        options->launch.local = 0; /* the launcher may have made a single GPU visible to each rank */
    }
    if (options->launch.on && options->launch.local >= machine->gpus.count) {
        return tool_usage("bench", "--launched: local rank %u: there are %u GPUs", options->launch.local,
                          machine->gpus.count);
    }
    if (!options->launch.on && options->ranks > machine->gpus.count) {
        return tool_usage("bench", "-g %u: there are %u GPUs", options->ranks, machine->gpus.count);
    }
    if (options->ranks == 0) {
        options->ranks = machine->gpus.count < BENCH_MAX_RANKS ? machine->gpus.count : BENCH_MAX_RANKS;
    }
    if (options->floor && options->launch.on) {
        return tool_usage("bench", "--floor measures the GPUs of one node; not with --launched");
    }
    if (options->floor && options->ranks < 2) {
        return tool_usage("bench", "--floor needs at least two ranks");
    }
    options->calls = options->calls != 0 ? options->calls : 50;
    options->factor = options->factor != 0 || options->step_bytes != 0 ? options->factor : 2;
    if (!options->sizes_given[1]) {
        options->to_bytes = 16 << 20;
    }
    return TOOL_OK;
}

static int complete(bench_options_t *options, const bench_machine_t *machine)
{
    if (options->launch.on && options->ranks != 0) {
        return tool_usage("bench", "--launched: the launcher says how many ranks there are, not -g");
    }
    int fault = options->launch.on ? bench_launch_find(&options->launch) : TOOL_OK;
    if (fault != TOOL_OK) {
        return fault;
    }
    options->ranks = options->launch.on ? options->launch.ranks : options->ranks;
    fault = machine->cpu ? complete_for_cpu(options) : complete_for_cuda(options, machine);
    if (fault != TOOL_OK) {
        return fault;
    }
    if (!options->sizes_given[1] && options->from_bytes > options->to_bytes) {
        options->to_bytes = options->from_bytes;
    }
    if (options->from_bytes > options->to_bytes) {
        return tool_usage("bench", "-b is more than -e");
    }
    if (options->blocking && options->graph) {
        fprintf(stderr, "shunt bench: -z: the calls of a graph are not waited for one by one, but each replay is\n");
    }
    if (options->root != BENCH_ROTATE && options->root >= options->ranks) {
        return tool_usage("bench", "--root %u: there are %u ranks", options->root, options->ranks);
    }
    return TOOL_OK;
}

static double weigh_cases(const bench_options_t *options, const bench_machine_t *machine)
{
    double weight = 0;
    bench_kind_t kind;
    for (uint32_t at = 0; bench_next_kind(options, machine, &at, &kind);) {
        const int places = bench_measures_place(options, kind.collective, false) +
                           bench_measures_place(options, kind.collective, true);
        for (uint64_t bytes = options->from_bytes; bytes <= options->to_bytes;
             bytes = bench_next_size(options, bytes)) {
            weight += bench_count(options, &kind, bytes) != 0 ? places * tool_progress_weight(bytes) : 0;
        }
    }
    return weight;
}

static volatile sig_atomic_t interrupted; /* signal number; 0: none */

static void on_interrupt(int signal)
{
    interrupted = signal;
}

/* Die of the signal itself: the shell must see that a signal ended the program. */
static void die_of_interrupt(void)
{
    if (interrupted != 0) {
        signal(interrupted, SIG_DFL);
        raise(interrupted);
    }
}

static bool rank_body(const void *job, bench_shared_t *shared, uint32_t rank, int rows)
{
    tool_signals_ignore();
    return bench_rank_run(job, shared, rank, rows);
}

typedef struct collection {
    bench_report_t *report;
    const bench_shared_t *shared;
    bool right;
} collection_t;

static bool take_row(void *context, const void *from_rank)
{
    collection_t *collection = context;
    const bench_row_t *row = from_rank;
    if (row != NULL) {
        bench_report_row(collection->report, row);
        collection->right = collection->right && (row->wrong == 0 || row->wrong == UINT64_MAX);
    } else if (collection->report != NULL && interrupted == 0) {
        const bench_shared_t *shared = collection->shared;
        bench_report_progress(collection->report, atomic_load(&shared->case_bytes),
                              atomic_load(&shared->case_part) * 1e-3);
    }
    return interrupted == 0;
}

static int run_ranks(const bench_options_t *options, bench_shared_t *shared)
{
    const bench_launch_t *launch = &options->launch;
    const bool reports = launch->rank == 0;
    bench_report_t *report =
        reports ? bench_report_open(options, &shared->machine, weigh_cases(options, &shared->machine)) : NULL;
    if (reports && report == NULL) {
        return TOOL_FAILED;
    }
    bench_family_t family = {
        .command = "bench", .shared = shared, .first = launch->rank, .ranks = launch->on ? 1 : options->ranks};
    collection_t collection = {report, shared, true};
    tool_signals_catch(on_interrupt); /* an interrupted run ends as if the last row were done */
    bool done = bench_family_run(&family, rank_body, options, sizeof(bench_row_t), take_row, &collection);
    done = (!reports || bench_report_close(report, done && interrupted == 0)) && done;
    die_of_interrupt();
    return done && collection.right ? TOOL_OK : TOOL_FAILED;
}

int tool_bench(int argc, char **argv)
{
    bench_options_t options;
    int fault = bench_options_parse(&options, argc, argv);
    if (fault != TOOL_OK) {
        return fault;
    }
    if (options.help) {
        fputs(bench_help, stdout);
        return TOOL_OK;
    }
    bench_shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("shunt bench: mmap");
        return TOOL_FAILED;
    }
    fault = bench_look("bench", &shared->machine) ? TOOL_OK : TOOL_FAILED;
    if (fault == TOOL_OK) {
        fault = complete(&options, &shared->machine);
    }
    if (fault == TOOL_OK && options.floor) {
        fault = bench_floor("bench", options.ranks, &shared->machine.floor) ? TOOL_OK : TOOL_FAILED;
    }
    if (fault == TOOL_OK) {
        fault = run_ranks(&options, shared);
    }
    munmap(shared, sizeof *shared);
    return fault;
}
