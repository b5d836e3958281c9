/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_first.c - what `shunt run` measures before its program, if an earlier program found no table.
 *
 * That program has left a note (tune_note.c). The process that locks the note measures, replaces the table atomically
 * and removes the note; other processes of this node, such as the ranks that srun starts, wait for the lock. A failure
 * is recorded in the note, so that later runs do not try again for an hour, or ever if it would always fail.
 *
 * There are three processes, each of which ends with its parent: `shunt run` waits for the keeper, which holds the lock
 * and enforces the time limit; the keeper's child measures with ranks of its own. Their stdout and stderr are captured
 * in a memfd, from which the keeper prints the reason of a failure.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/tune/tune.h"

/* Seconds until the ranks are ended. Ending them takes up to END_SECONDS; STUCK_SECONDS later the keeper gives up. */
#define TWO_GPUS_SECONDS 5.2
#define A_GPU_SECONDS 1.0 /* for each further GPU */
#define END_SECONDS 0.8
#define STUCK_SECONDS 1.5
#define WAIT_SECONDS 3.0 /* others wait this much longer than the measuring process's time limit */
enum { STEP_MS = 20 };

/* Shared by the processes. */
typedef struct work {
    tune_note_t note;
    char folder[PATH_MAX]; /* folder of the tables; "": none, or settings exclude measuring */
    bench_machine_t machine;
    bool unfit;           /* the note is for other GPUs */
    bool declined;        /* the table has rows of a full run, which are better */
    char why[1024];       /* why nothing was measured */
    char table[PATH_MAX]; /* path of the written table */
    uint32_t sizes;       /* number of measured sizes */
    double start;
    int tell; /* the stderr of `shunt run` */
} work_t;

static double limit_of(const tune_note_t *note)
{
    return TWO_GPUS_SECONDS + A_GPU_SECONDS * (note->ranks - 2);
}

/* Whether a setting disables notes; a table would then have no effect. */
static bool is_off(const shunt_setting_t *setting)
{
    static const char *const zeros[] = {"SHUNT_TUNE", "SHUNT_ENABLE"}, *const empty[] = {"SHUNT_TABLE", "SHUNT_ALGO"};
    for (size_t i = 0; i < 2; i++) {
        if ((strcmp(setting->name, zeros[i]) == 0 && strcmp(setting->value, "0") == 0) ||
            (strcmp(setting->name, empty[i]) == 0 && setting->value[0] != '\0')) {
            return true;
        }
    }
    return false;
}

/* In a separate process: the library reads its settings once. */
static void ask_folder(void *argument)
{
    work_t *work = argument;
    tool_shunt_t shunt;
    char error[TOOL_ERROR_BYTES], path[PATH_MAX], *slash;
    shunt_setting_t setting;
    if (!tool_open_shunt(&shunt, NULL, error)) {
        return;
    }
    for (uint32_t i = 0; shunt.shunt_setting(i, &setting) == 0; i++) {
        if (is_off(&setting)) {
            return;
        }
    }
    if (shunt.shunt_table_path(0, path, sizeof path) == 0 && (slash = strrchr(path, '/')) != NULL) {
        *slash = '\0';
        snprintf(work->folder, sizeof work->folder, "%s", path);
    }
}

static void path_of_table(const work_t *work, char path[PATH_MAX + 64])
{
    snprintf(path, PATH_MAX + 64, "%s/table-%016llx.csv", work->folder, (unsigned long long)work->note.machine);
}

/* Another process may have measured meanwhile. */
static bool is_measured(const work_t *work)
{
    char path[PATH_MAX + 64];
    tune_rows_t rows;
    bool found = false;
    path_of_table(work, path);
    if (!tune_rows_read(path, true, &rows)) {
        return false;
    }
    for (uint32_t i = 0; i < rows.measured && rows.machine == work->note.machine; i++) {
        found = found || (strcmp(rows.of[i].class_name, work->note.class_name) == 0 &&
                          rows.of[i].nccl == work->note.nccl_version);
    }
    free(rows.row);
    return found;
}

static bool suits(work_t *work)
{
    const char *why = tune_note_obstacle(&work->note, &work->machine, &work->unfit);
    snprintf(work->why, sizeof work->why, "%s", why != NULL ? why : "");
    return why == NULL;
}

/* Undo the binding of srun and mpirun to few processors, which all ranks of this measurement would share. */
static void use_all_processors(void)
{
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    (void)sched_setaffinity(0, sizeof all, &all); /* the kernel leaves out processors that this job may not use */
}

/* Unless the table was edited wrongly: the wrong lines would be lost. */
static bool may_replace(const char *path)
{
    tune_rows_t rows;
    const bool may = tune_rows_read(path, true, &rows) && rows.faults == 0;
    free(rows.row);
    return may;
}

static bool measure(work_t *work)
{
    static tune_options_t options;
    static char line[] = "run";
    char *argv[] = {line, NULL}, path[PATH_MAX + 64];
    const tune_note_t *note = &work->note;
    path_of_table(work, path);
    use_all_processors();
    if (!tune_file_try(path) || !may_replace(path) || tune_options_parse(&options, 1, argv) != TOOL_OK ||
        !bench_look("run", &work->machine) || !suits(work)) {
        return false;
    }
    options.quick = true;
    options.ranks = note->ranks;
    options.types = 1u << bench_type_find("bfloat16");
    options.to_given = true;
    options.to_bytes = UINT64_C(1) << (work->machine.cpu ? 18 : 26); /* the CPU device is slow */
    if (tune_complete(&options, &work->machine) != TOOL_OK) {
        return false;
    }
    dprintf(work->tell, "shunt run: measuring %u GPUs once, %.0f s at most (--no-tune: not)\n", note->ranks,
            limit_of(note) + END_SECONDS);
    options.limit_s = limit_of(note) - (tune_now() - work->start);
    work->sizes = tune_quick(&options, &work->machine, work->table, &work->declined);
    return work->sizes > 0;
}

/* Fork; the child dies with its parent. True in the child. */
static bool fork_below(pid_t *child)
{
    const pid_t parent = getpid();
    fflush(NULL);
    *child = fork();
    if (*child != 0) {
        return false;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(TOOL_FAILED);
    }
    return true;
}

/* Kill the child that measures, and wait up to a second for its ranks, which die with it: they hold GPU memory. */
static void end_all(pid_t child)
{
    kill(child, SIGKILL);
    for (int waited = 0; waited < 1000; waited += STEP_MS) {
        const pid_t got = waitpid(-1, NULL, WNOHANG);
        if (got < 0 && errno == ECHILD) {
            return;
        }
        usleep(got == 0 ? STEP_MS * 1000 : 0);
    }
}

/* Wait for the child that measures, up to the time limit and the time to end its ranks. */
static bool wait_for(pid_t child, const work_t *work)
{
    const double end = work->start + limit_of(&work->note) + END_SECONDS + STUCK_SECONDS;
    int status = TOOL_FAILED;
    pid_t got;
    while ((got = waitpid(child, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (tune_now() > end) {
            end_all(child);
            return false;
        }
        usleep(STEP_MS * 1000);
    }
    return got == child && WIFEXITED(status) && WEXITSTATUS(status) == TOOL_OK;
}

/* Find the first captured line that Shunt printed. */
static void find_reason(int captured, work_t *work)
{
    char line[1024];
    FILE *file = lseek(captured, 0, SEEK_SET) == 0 ? fdopen(captured, "r") : NULL;
    while (file != NULL && work->why[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        char *words = strstr(line, ": ");
        if (strncmp(line, "shunt ", 6) == 0 && words != NULL) {
            char *advice = strstr(words, "; "); /* drop the advice, which concerns another command */
            *(advice != NULL ? advice : words + strcspn(words, "\n")) = '\0';
            snprintf(work->why, sizeof work->why, "%s", words + 2);
        }
    }
    if (work->why[0] == '\0') {
        snprintf(work->why, sizeof work->why, "it took too long, or was ended");
    }
}

static void conclude(work_t *work, int note, int captured, bool done)
{
    if (done) {
        dprintf(work->tell, "shunt run: %u sizes measured in %.1f s; the table is %s\n", work->sizes,
                tune_now() - work->start, work->table);
        /* NEVER: the table got no rows for the note's class, since the GPUs measured here have another one; programs of
         * that class would ask for a measurement again and again. */
        tune_note_end(&work->note, note, is_measured(work) ? TUNE_NOTE_DONE : TUNE_NOTE_NEVER);
        return;
    }
    if (work->declined) {
        dprintf(work->tell,
                "shunt run: %u GPUs are not measured: their table is by `shunt tune` with another NCCL, or by hand; "
                "`shunt tune` measures them anew\n",
                work->note.ranks);
        tune_note_end(&work->note, note, TUNE_NOTE_NEVER);
        return;
    }
    find_reason(captured, work);
    dprintf(work->tell, "shunt run: %u GPUs are not measured: %s; estimates are used, and `shunt tune` measures them\n",
            work->note.ranks, work->why);
    tune_note_end(&work->note, note, work->unfit ? TUNE_NOTE_NEVER : TUNE_NOTE_FAILED);
}

static void follow_note(work_t *work, int captured)
{
    char table[PATH_MAX + 64];
    pid_t child;
    const int note = tune_note_lock(&work->note, limit_of(&work->note) + WAIT_SECONDS, work->tell);
    if (note < 0) {
        return;
    }
    if (is_measured(work)) {
        tune_note_end(&work->note, note, TUNE_NOTE_DONE);
        return;
    }
    path_of_table(work, table);
    work->declined = tune_table_is_others(table, work->note.class_name);
    if (work->declined) {
        conclude(work, note, captured, false);
        return;
    }
    (void)!ftruncate(captured, 0); /* messages about the table must not pass for the reason of a failure */
    (void)lseek(captured, 0, SEEK_SET);
    work->start = tune_now();
    tool_forget_variables();
    setenv("SHUNT_TUNE", "0", 1); /* the ranks leave no note */
    if (work->note.nccl_version != 0) {
        setenv("SHUNT_NCCL_PATH", work->note.nccl, 1);
    }
    if (fork_below(&child)) {
        _exit(measure(work) ? TOOL_OK : TOOL_FAILED);
    }
    conclude(work, note, captured, child > 0 && wait_for(child, work));
}

/* The keeper's work, in a process of its own. */
static void keep(void)
{
    work_t *work = mmap(NULL, sizeof *work, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int captured = memfd_create("shunt-run", MFD_CLOEXEC), tell = fcntl(2, F_DUPFD_CLOEXEC, 3);
    if (work == MAP_FAILED || captured < 0 || dup2(captured, 1) < 0 || dup2(captured, 2) < 0) {
        return;
    }
    work->tell = tell;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* reap the ranks after their parent has died */
    signal(SIGCHLD, SIG_DFL);         /* if ignored, as by some parents, the exit status is lost */
    if (bench_apart("run", "looking for a note", ask_folder, work) && tune_note_find(work->folder, &work->note)) {
        follow_note(work, captured);
    }
}

void tune_first(void)
{
    pid_t child;
    const char *tune = secure_getenv("SHUNT_TUNE"), *enable = secure_getenv("SHUNT_ENABLE");
    if ((tune != NULL && strcmp(tune, "0") == 0) || (enable != NULL && strcmp(enable, "0") == 0)) {
        return;
    }
    if (fork_below(&child)) {
        keep();
        _exit(0);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
}
