/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune.c - `shunt tune`: runs one family of ranks for each number of ranks, from all GPUs down, and writes a table of
 * the results.
 *
 * At its time limit, or when interrupted, it keeps the results so far; the table is written after each family, so even
 * a kill loses only one family.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/base/owner.h"
#include "tools/base/output.h"
#include "tools/base/progress.h"
#include "tools/base/signals.h"
#include "tools/base/table.h"
#include "tools/tune/tune.h"

/* --check fails if the table's choice takes more than this times the better of NCCL and the built-in choice. */
#define MOST_RATIO (1 / 0.98)

typedef struct tuning {
    tune_options_t *options;
    bench_machine_t *machine;     /* shared memory */
    sel_measured_t link;          /* all zero: not measured */
    sel_pinned_measured_t pinned; /* all zero: not measured */
    uint32_t results;
    tune_result_t *result;
    tool_progress_t progress;
    const bench_shared_t *shared; /* of the running family; NULL between families */
    bool stopped;
} tuning_t;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* ---- Progress ---- */

static double weight_of_family(const tune_options_t *options)
{
    double weight = 0;
    for (uint32_t i = 0; i < options->sizes; i++) {
        weight += tool_progress_weight(options->size[i]);
    }
    uint32_t kinds = 0;
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        const alg_collective_t collective = (alg_collective_t)c;
        for (uint32_t type = 0; (options->collectives >> c & 1) != 0; type++, kinds++) {
            type = tune_next_type(options, collective, type);
            if (type == bench_type_count) {
                break;
            }
        }
    }
    return weight * kinds;
}

static bool take_result(void *context, const void *row)
{
    tuning_t *tuning = context;
    if (row != NULL && tuning->results < TUNE_MOST_RESULTS) {
        const tune_result_t *result = row;
        tuning->result[tuning->results++] = *result;
        tuning->progress.done += tool_progress_weight(result->bytes);
    }
    tuning->progress.within = row != NULL ? 0
                                          : atomic_load(&tuning->shared->case_part) * 1e-3 *
                                                tool_progress_weight(atomic_load(&tuning->shared->case_bytes));
    tool_progress_show(&tuning->progress);
    tuning->stopped = interrupted != 0 || tool_progress_elapsed(&tuning->progress) > tuning->options->limit_s;
    return !tuning->stopped;
}

/* ---- The links ---- */

static uint32_t in_32_bits(double figure)
{
    return (uint32_t)fmin(round(figure), UINT32_MAX);
}

/* The kind of link between the measured GPUs. The machine's class is that of all its GPUs. */
static uint32_t link_of(const bench_machine_t *machine, uint32_t gpus)
{
    sel_topology_t topology;
    const bool known = machine->gpus.count == gpus && sel_topology_parse(machine->class_name, &topology);
    return known ? topology.link : SEL_LINK_CPU;
}

/* Measures all GPUs even with -g, since the table is the machine's. A failure does not affect the rows. */
static void measure_links(tuning_t *tuning)
{
    const uint32_t count = tuning->machine->gpus.count, gpus = count < TOOL_FLOOR_GPUS ? count : TOOL_FLOOR_GPUS;
    tool_floor_t *floor = &tuning->machine->floor;
    if (tuning->machine->cpu || tuning->options->check || tuning->options->quick) {
        return;
    }
    if (bench_floor("tune", gpus, floor)) {
        tuning->link = (sel_measured_t){.bytes_per_us = in_32_bits(floor->bandwidth * 1e-6),
                                        .gpus = gpus,
                                        .one_way_ns = in_32_bits(floor->one_way * 1e9),
                                        .link = link_of(tuning->machine, gpus)};
    }
    if (floor->pinned_store > 0 && floor->pinned_load > 0) { /* measured even without peer access */
        tuning->pinned = (sel_pinned_measured_t){.store_bytes_per_us = in_32_bits(floor->pinned_store * 1e-6),
                                                 .load_bytes_per_us = in_32_bits(floor->pinned_load * 1e-6),
                                                 .gpus = gpus,
                                                 .one_way_ns = in_32_bits(floor->pinned_one_way * 1e9),
                                                 .link = link_of(tuning->machine, gpus)};
    }
}

/* ---- The table ---- */

typedef struct place {
    uint64_t machine;
    char path[PATH_MAX];  /* "": no folder for tables */
    bool foreign;         /* another user's folder, not named by SHUNT_CACHE_DIR */
    char named[PATH_MAX]; /* SHUNT_TABLE */
    bool forced;          /* SHUNT_TABLE_FORCE=1 */
} place_t;

static void ask_place(void *argument)
{
    place_t *place = argument;
    tool_shunt_t shunt;
    char error[TOOL_ERROR_BYTES];
    if (!tool_open_shunt(&shunt, NULL, error)) {
        return;
    }
    if (shunt.shunt_table_path(place->machine, place->path, sizeof place->path) != 0) {
        place->path[0] = '\0';
    }
    place->foreign = shim_path_is_foreign(place->path);
    shunt_setting_t setting;
    for (uint32_t i = 0; shunt.shunt_setting(i, &setting) == 0; i++) {
        if (strcmp(setting.name, "SHUNT_CACHE_DIR") == 0 && setting.value[0] != '\0') {
            place->foreign = false;
        } else if (strcmp(setting.name, "SHUNT_TABLE") == 0) {
            snprintf(place->named, sizeof place->named, "%s", setting.value);
        } else if (strcmp(setting.name, "SHUNT_TABLE_FORCE") == 0) {
            place->forced = setting.value[0] == '1';
        }
    }
}

/* Ask in a separate process: the library reads its settings once, and the ranks forked from here need others. */
static bool find_place(uint64_t machine, place_t *found)
{
    place_t *place = mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) {
        perror("shunt tune: mmap");
        return false;
    }
    place->machine = machine;
    const bool asked = bench_apart("tune", "looking for the cache folder", ask_place, place);
    *found = *place;
    munmap(place, sizeof *place);
    return asked;
}

static bool table_path(const tuning_t *tuning, uint64_t machine, char path[PATH_MAX])
{
    place_t place = {0};
    if (tuning->options->table != NULL) {
        snprintf(path, PATH_MAX, "%s", tuning->options->table);
        return true;
    }
    const bool known = find_place(machine, &place) && place.path[0] != '\0';
    memcpy(path, place.path, sizeof place.path);
    if (known && place.foreign) { /* happens under sudo with the caller's HOME */
        fprintf(
            stderr,
            "shunt tune: %s is in a folder of another user's, in which root leaves no file; run it as that user, or "
            "set SHUNT_CACHE_DIR or --table FILE\n",
            path);
        return false;
    }
    if (known) {
        return true;
    }
    fprintf(stderr,
            "shunt tune: there is no cache folder: SHUNT_CACHE_DIR, XDG_CACHE_HOME and HOME name none; set one, "
            "or --table FILE\n");
    return false;
}

/* Whether the ranks would use the table to check; this tells them of --table. Without a table, the built-in one is
 * checked. */
static bool can_check(const tuning_t *tuning)
{
    place_t place = {0};
    char fault[TOOL_ERROR_BYTES];
    const uint64_t machine = tuning->machine->fingerprint;
    const char *option = tuning->options->table;
    if (!find_place(machine, &place) || (option != NULL && setenv("SHUNT_TABLE", option, 1) != 0)) {
        return false;
    }
    const char *table = option != NULL ? option : place.named[0] != '\0' ? place.named : place.path;
    if ((table == place.path && access(table, F_OK) != 0) || tool_table_is_used(table, machine, place.forced, fault)) {
        return true;
    }
    fprintf(stderr,
            "shunt tune: %s; nothing was checked; name a table of this machine by --table, or run `shunt tune`\n",
            fault);
    return false;
}

/* Without --table, SHUNT_TABLE names the table, since programs read that one. False, after a message, if its file is no
 * table of this machine, and would be lost. */
static bool take_setting(const tuning_t *tuning)
{
    static place_t place; /* the options point to it */
    char fault[TOOL_ERROR_BYTES];
    if (tuning->options->table != NULL) {
        return true;
    }
    if (!find_place(tuning->machine->fingerprint, &place)) {
        return false;
    }
    if (place.named[0] == '\0') {
        return true;
    }
    tuning->options->table = place.named;
    if (access(place.named, F_OK) != 0) {
        return setenv("SHUNT_TABLE", "", 1) == 0; /* else the ranks report that the file is missing */
    }
    if (tool_table_is_used(place.named, tuning->machine->fingerprint, false, fault)) {
        return true;
    }
    fprintf(stderr,
            "shunt tune: SHUNT_TABLE: %s; it is kept, and nothing was measured; name a new file in SHUNT_TABLE or by "
            "--table\n",
            fault);
    return false;
}

/* Run before the ranks start: over PCIe these figures decide which memory the ranks use. */
static bool write_links(const tuning_t *tuning)
{
    char path[PATH_MAX];
    const uint64_t machine = tuning->machine->fingerprint;
    if ((tuning->link.gpus == 0 && tuning->pinned.gpus == 0) || machine == 0) {
        return true;
    }
    if (!table_path(tuning, machine, path) ||
        !tune_table_write(path, tuning->options, tuning->machine, &tuning->link, &tuning->pinned, NULL, 0)) {
        return false;
    }
    return tuning->options->table == NULL || setenv("SHUNT_TABLE", path, 1) == 0;
}

/* Call before measuring. All machines' tables lie in one folder. */
static bool can_write_table(const tuning_t *tuning)
{
    char path[PATH_MAX];
    return table_path(tuning, tuning->machine->fingerprint, path) && tune_file_try(path);
}

/* Call before measuring: the file is written at the end. */
static bool can_write(const char *path)
{
    FILE *file = path != NULL && !tool_is_stdout(path) ? fopen(path, "ae") : stdout;
    if (file == NULL) {
        fprintf(stderr, "shunt tune: %s: %s; nothing was measured\n", path, strerror(errno));
    } else if (file != stdout) {
        fclose(file);
    }
    return file != NULL;
}

/* Sets `written` to the path after the table was written. */
static bool write_table(const tuning_t *tuning, char written[PATH_MAX])
{
    char path[PATH_MAX];
    if (tuning->results == 0 || tuning->options->check) {
        return true;
    }
    if (!table_path(tuning, tuning->result[0].machine, path) ||
        !tune_table_write(path, tuning->options, tuning->machine, &tuning->link, &tuning->pinned, tuning->result,
                          tuning->results)) {
        return false;
    }
    snprintf(written, PATH_MAX, "%s", path);
    if (!tuning->options->quick && tuning->options->table == NULL) {
        tune_note_forget(path, tuning->result[0].machine);
    }
    return tune_times_write(path, tuning->result, tuning->results);
}

/* ---- Families ---- */

static bool rank_body(const void *job, bench_shared_t *shared, uint32_t rank, int rows)
{
    const bool check = ((const tune_job_t *)job)->options->check;
    tool_signals_ignore();
    if (!shared->machine.policy) {
        /* Else no communicator is attached where the table forwards all calls. A check uses the table's memory. */
        setenv("SHUNT_ALGO", check ? "0-1=builtin" : "builtin", 1);
    }
    return tune_rank_run(job, shared, rank, rows);
}

static bool run_family(tuning_t *tuning, uint32_t ranks)
{
    bench_shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("shunt tune: mmap");
        return false;
    }
    shared->machine = *tuning->machine;
    tuning->shared = shared;
    const tune_job_t job = {tuning->options, ranks};
    bench_family_t family = {.command = "tune", .shared = shared, .ranks = ranks};
    bool done = bench_family_run(&family, rank_body, &job, sizeof(tune_result_t), take_result, tuning);
    tuning->shared = NULL;
    munmap(shared, sizeof *shared);
    return done;
}

/* The most used numbers of ranks first, in case the time runs out: all GPUs, then powers of two. */
static uint32_t order_families(uint32_t asked, uint32_t most, uint32_t ranks[BENCH_MAX_RANKS])
{
    uint32_t count = 0;
    ranks[count++] = asked != 0 ? asked : most;
    for (int power = 1; asked == 0 && power >= 0; power--) {
        for (uint32_t n = most - 1; n >= 2; n--) {
            if (((n & (n - 1)) == 0) == (power == 1)) {
                ranks[count++] = n;
            }
        }
    }
    return count;
}

static bool run_families(tuning_t *tuning, char path[PATH_MAX])
{
    const uint32_t most = tuning->machine->cpu                            ? 4
                          : tuning->machine->gpus.count < BENCH_MAX_RANKS ? tuning->machine->gpus.count
                                                                          : BENCH_MAX_RANKS;
    uint32_t ranks[BENCH_MAX_RANKS];
    const uint32_t families = order_families(tuning->options->ranks, most, ranks);
    bool done = true;
    tuning->progress.weight = weight_of_family(tuning->options) * families;
    for (uint32_t i = 0; done && i < families && !tuning->stopped; i++) {
        done = run_family(tuning, ranks[i]);
        done = write_table(tuning, path) && done;
    }
    tool_progress_hide(&tuning->progress);
    return done;
}

/* ---- The end ---- */

static uint32_t count_slower(const tuning_t *tuning)
{
    const double most = MOST_RATIO * (tuning->options->beside ? TUNE_MOST_COST : 1);
    uint32_t slower = 0;
    for (uint32_t i = 0; i < tuning->results; i++) {
        const tune_result_t *result = &tuning->result[i];
        if (result->seconds > tune_better(result) * most) {
            slower++;
            fprintf(stderr,
                    "shunt tune: %s, %u ranks, %s, %s, %llu bytes: the table's choice takes %.2f us, another %.2f; run "
                    "`shunt tune` again\n",
                    alg_collective_name(result->collective), result->ranks, result->captured ? "captured" : "eager",
                    bench_types[result->type].name, (unsigned long long)result->bytes, result->seconds * 1e6,
                    tune_better(result) * 1e6);
        }
    }
    return slower;
}

/* Order results as a family that measures all sizes sends them. */
static int by_case(const void *a, const void *b)
{
    const tune_result_t *x = a, *y = b;
    if (x->collective != y->collective) {
        return x->collective < y->collective ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Number of coarse sizes, summed over all collectives. */
static uint32_t coarse_sizes(const tune_options_t *options)
{
    return (uint32_t)__builtin_popcount(options->collectives) *
           tune_points_coarse(options->from_bytes, options->to_bytes);
}

uint32_t tune_quick(tune_options_t *options, bench_machine_t *machine, char path[PATH_MAX], bool *declined)
{
    static tune_result_t result[ALG_COLLECTIVE_COUNT * TUNE_MOST_POINTS];
    tuning_t tuning = {.options = options, .machine = machine, .result = result};
    tool_progress_open(&tuning.progress, 0);
    if (!can_write_table(&tuning) || !run_family(&tuning, options->ranks)) {
        return 0;
    }
    const uint32_t least = coarse_sizes(options); /* a quick run measures them first */
    if (tuning.results < least) {
        fprintf(stderr, "shunt tune: the time ran out after %u of %u sizes needed\n", tuning.results, least);
        return 0;
    }
    if (!table_path(&tuning, result[0].machine, path)) {
        return 0;
    }
    *declined = tune_table_is_others(path, result[0].class_name);
    if (*declined) {
        return 0;
    }
    qsort(result, tuning.results, sizeof result[0], by_case);
    return write_table(&tuning, path) ? tuning.results : 0;
}

static double measured_percent(const tuning_t *tuning)
{
    return 100 * tuning->progress.done / tuning->progress.weight;
}

static int conclude(const tuning_t *tuning, bool done, const char *path)
{
    if (tuning->stopped) {
        fprintf(stderr, "shunt tune: %s after %.0f s, with %.0f%% measured\n",
                interrupted ? "interrupted" : "the time limit was reached", tool_progress_elapsed(&tuning->progress),
                measured_percent(tuning));
    }
    const tune_options_t *options = tuning->options;
    const double most = MOST_RATIO * (options->beside ? TUNE_MOST_COST : 1);
    const tune_end_t end = {.complete = done && !tuning->stopped,
                            .table = path[0] != '\0' ? path : NULL,
                            .slower = options->check ? count_slower(tuning) : 0};
    if (tuning->results == 0) {
        return TOOL_FAILED;
    }
    done = tune_report(options, tuning->machine, tuning->result, tuning->results, &end) && done;
    if (options->check) {
        char missing[40] = "";
        if (!end.complete) {
            snprintf(missing, sizeof missing, "; incomplete: %.0f%% measured", measured_percent(tuning));
        }
        fprintf(tune_text(options),
                "# %u of %u sizes slower than %.2f times the better of NCCL and the built-in table%s\n", end.slower,
                tuning->results, 1 / most, missing);
    } else if (end.table != NULL) {
        fprintf(tune_text(options), "# table: %s\n", end.table);
    }
    return done && end.slower == 0 && (end.complete || !options->check) ? TOOL_OK : TOOL_FAILED;
}

static int run(tuning_t *tuning)
{
    char path[PATH_MAX] = "";
    if (!(tuning->options->check ? can_check(tuning) : take_setting(tuning) && can_write_table(tuning)) ||
        !can_write(tuning->options->csv) || !can_write(tuning->options->json)) {
        return TOOL_FAILED;
    }
    tuning->result = calloc(TUNE_MOST_RESULTS, sizeof *tuning->result);
    if (tuning->result == NULL) {
        perror("shunt tune");
        return TOOL_FAILED;
    }
    tool_progress_open(&tuning->progress, 0); /* the weight is set below, when the families are known */
    tuning->progress.limit = tuning->options->limit_s;
    measure_links(tuning); /* an earlier interrupt ends the process: there are no results */
    tool_signals_catch(on_interrupt);
    bool done = write_links(tuning) && run_families(tuning, path);
    int status = conclude(tuning, done, path);
    free(tuning->result);
    return status;
}

int tool_tune(int argc, char **argv)
{
    static tune_options_t options;
    int fault = tune_options_parse(&options, argc, argv);
    if (fault != TOOL_OK) {
        return fault;
    }
    if (options.help) {
        fputs(tune_help, stdout);
        return TOOL_OK;
    }
    if (options.diff[0] != NULL) {
        return tune_diff(options.diff);
    }
    if (options.plot != NULL) {
        return tune_plot(options.plot);
    }
    bench_machine_t *machine = mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (machine == MAP_FAILED) {
        perror("shunt tune: mmap");
        return TOOL_FAILED;
    }
    tuning_t tuning = {.options = &options, .machine = machine};
    fault = bench_look("tune", machine) ? tune_complete(&options, machine) : TOOL_FAILED;
    fault = fault == TOOL_OK ? run(&tuning) : fault;
    munmap(machine, sizeof *machine);
    return fault;
}
