/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_command.c - runs a command as `shunt run` does, and checks what its processes load and log.
 *
 * At the time limit the command gets SIGINT first, so that Python exits normally and writes statistics. Its output goes
 * into the private folder; the last lines are shown if the command fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/clock.h"
#include "tools/base/folder.h"
#include "tools/doctor/doctor.h"
#include "tools/run/run.h"

enum { LOOK_MS = 100 };

typedef struct watched {
    tool_processes_t *processes;
    int status; /* the command's, from waitpid */
    bool ended; /* the command ended within the limit */
    double seconds;
} watched_t;

static bool set_folder(const doctor_t *doctor, const char *variable, const char *name)
{
    char pattern[PATH_MAX + 16];
    snprintf(pattern, sizeof pattern, "%s/%s", doctor->folder, name);
    return setenv(variable, pattern, 1) == 0;
}

static void start_command(const doctor_t *doctor)
{
    char output[PATH_MAX + 16];
    snprintf(output, sizeof output, "%s/output", doctor->folder);
    const int file = open(output, O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int none = open("/dev/null", O_RDONLY);
    if (file < 0 || none < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0 ||
        dup2(none, STDIN_FILENO) < 0 || !set_folder(doctor, "SHUNT_STATS", "stats.%h.%p") ||
        !set_folder(doctor, "SHUNT_DEBUG_FILE", "log.%h.%p") || setenv("SHUNT_DEBUG", "info", 1) != 0) {
        _exit(TOOL_FAILED);
    }
    close(file);
    close(none);
    _exit(tool_run_command(doctor->command, false));
}

/* Reap ended processes; true once the command itself has ended. */
static bool reap(pid_t command, int *status)
{
    int one;
    bool ended = false;
    for (pid_t pid; (pid = waitpid(-1, &one, WNOHANG)) > 0;) {
        if (pid == command) {
            *status = one;
            ended = true;
        }
    }
    return ended;
}

static bool wait_until(pid_t command, watched_t *watched, double end)
{
    while (tool_now() < end) {
        tool_processes_update(watched->processes);
        if (reap(command, &watched->status)) {
            return true;
        }
        poll(NULL, 0, LOOK_MS);
    }
    return false;
}

static bool watch(doctor_t *doctor, watched_t *watched)
{
    const double start = tool_now();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    const pid_t command = fork();
    if (command == 0) {
        start_command(doctor);
    }
    if (command < 0) {
        doctor_print(doctor, DOCTOR_FAULT, NULL, "fork: %s", strerror(errno));
        return false;
    }
    watched->ended = wait_until(command, watched, start + doctor->limit_s);
    watched->seconds = tool_now() - start;
    tool_processes_end(); /* children that the ended command left would disturb the bench */
    return true;
}

static bool print_tail(const char *text, void *context)
{
    const doctor_t *doctor = context;
    doctor_report_t *report = doctor->report;
    const char *at = text + strlen(text);
    for (int lines = 0; at > text; at--) {
        lines += at[-1] == '\n';
        if (lines > DOCTOR_LAST_LINES) {
            break;
        }
    }
    for (; at[0] != '\0'; at += strcspn(at, "\n"), at += at[0] == '\n') {
        const int length = (int)strcspn(at, "\n");
        fprintf(doctor->out, "       | %.*s\n", length, at);
        if (report->lines < DOCTOR_LAST_LINES) {
            snprintf(report->line[report->lines++], DOCTOR_LINE_BYTES, "%.*s", length, at);
        }
    }
    return true;
}

static void report_end(doctor_t *doctor, const watched_t *watched)
{
    const int status = watched->status;
    if (!watched->ended) {
        doctor_print(doctor, DOCTOR_NOTE, NULL, "%s was ended after %.0f s (--limit)", doctor->command[0],
                     watched->seconds);
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        doctor_print(doctor, DOCTOR_OK, NULL, "%s ran to its end in %.1f s", doctor->command[0], watched->seconds);
        return;
    }
    doctor_print(doctor, DOCTOR_FAULT, "see whether it fails without Shunt as well",
                 "%s ended with %s %d; its last lines:", doctor->command[0],
                 WIFSIGNALED(status) ? "signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    (void)tool_folder_each(doctor->folder, "output", print_tail, doctor);
}

/* Whether Shunt itself opened this NCCL, perhaps in a parent: forked children inherit it. */
static bool opened_by_shunt(const doctor_log_t *log, const char *nccl)
{
    char path[PATH_MAX];
    for (uint32_t i = 0; i < log->real.count; i++) {
        if (realpath(log->real.text[i], path) != NULL && strcmp(path, nccl) == 0) {
            return true;
        }
    }
    return false;
}

static bool gets_past(const tool_process_t *process, const doctor_log_t *log)
{
    return process->nccl != NULL && (!process->shunt || !opened_by_shunt(log, process->nccl));
}

static bool same_fault(const tool_process_t *a, const tool_process_t *b, const doctor_log_t *log)
{
    const bool past[] = {gets_past(a, log), gets_past(b, log)};
    return a->static_in == b->static_in && past[0] == past[1] && a->preload == b->preload &&
           (!past[0] || strcmp(a->nccl, b->nccl) == 0);
}

static void report_process(doctor_t *doctor, const tool_process_t *process, const doctor_log_t *log)
{
    if (process->static_in != NULL) {
        doctor_print(
            doctor, DOCTOR_FAULT, "take a build of it that links libnccl.so.2 (Horovod: HOROVOD_NCCL_LINK=SHARED)",
            "%s (process %s) has NCCL linked into it: Shunt cannot take its place", process->static_in, process->name);
    }
    if (gets_past(process, log) && process->preload) {
        doctor_print(doctor, DOCTOR_FAULT, "run it by `shunt run --audit -- CMD`",
                     "%s opened %s by its path, which a preload does not change", process->name, process->nccl);
    } else if (gets_past(process, log)) {
        doctor_print(doctor, DOCTOR_FAULT,
                     "put `shunt run --` behind its launcher (mpirun -np N shunt run -- CMD), or at the start of a "
                     "container's command",
                     "%s loaded %s: it was started without Shunt's LD_PRELOAD", process->name, process->nccl);
    }
}

/* Whether a process has loaded an NCCL that LD_PRELOAD does not replace. Equal processes get one line. */
static bool report_processes(doctor_t *doctor, const tool_processes_t *processes, const doctor_log_t *log)
{
    const uint32_t faults = doctor->report->faults;
    for (uint32_t i = 0; i < processes->count; i++) {
        bool told = false;
        for (uint32_t k = 0; k < i && !told; k++) {
            told = same_fault(&processes->process[k], &processes->process[i], log);
        }
        if (!told) {
            report_process(doctor, &processes->process[i], log);
        }
    }
    return doctor->report->faults > faults;
}

static uint32_t count_preloaded(const tool_processes_t *processes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < processes->count; i++) {
        count += processes->process[i].shunt;
    }
    return count;
}

static void report_log(doctor_t *doctor, const doctor_log_t *log)
{
    for (uint32_t i = 0; i < log->forwarded.count; i++) {
        const char *advice = log->forwarded.advice[i];
        const bool meant = advice != NULL && strncmp(advice, "nothing", 7) == 0;
        doctor_print(doctor, meant ? DOCTOR_NOTE : DOCTOR_FAULT, advice, "communicators forwarded to NCCL (%u): %s",
                     log->forwarded.times[i], log->forwarded.text[i]);
    }
    for (uint32_t i = 0; i < log->warnings.count; i++) {
        doctor_print(doctor, DOCTOR_NOTE, NULL, "warned: %s", log->warnings.text[i]);
    }
}

static void report_counts(doctor_t *doctor, const watched_t *watched, const doctor_log_t *log)
{
    const tool_counts_t *counts = &doctor->counts;
    char text[TOOL_ERROR_BYTES];
    if (tool_counts_pin_text(counts, text, sizeof text)) {
        doctor_print(doctor, DOCTOR_NOTE, NULL, "%s", text);
    }
    if (secure_getenv("NCCL_GRAPH_MIXING_SUPPORT") == NULL && tool_counts_graphs_text(counts, text, sizeof text)) {
        doctor_print(doctor, DOCTOR_NOTE, NULL, "%s", text);
    }
    if (log->attached == 0) {
        return;
    }
    if (counts->processes == 0) {
        doctor_print(doctor, DOCTOR_NOTE, watched->ended ? NULL : "raise --limit, or give the command less to do",
                     "Shunt serves its communicators (%u attached); %s", log->attached,
                     watched->ended
                         ? "no process has left counts of its calls (none made, or ended by _exit or a signal)"
                         : "the number of taken calls is not known, since the processes were ended");
    } else if (counts->taken == 0) {
        doctor_print(doctor, DOCTOR_FAULT, "run `shunt run --report -- CMD`, which gives the reason for each size",
                     "Shunt took none of %llu calls", (unsigned long long)counts->forwarded);
    } else {
        doctor_print(doctor, DOCTOR_OK, NULL, "taken: %llu calls, forwarded %llu, in %u process%s",
                     (unsigned long long)counts->taken, (unsigned long long)counts->forwarded, counts->processes,
                     counts->processes == 1 ? "" : "es");
    }
}

static void read_counts(doctor_t *doctor)
{
    doctor_report_t *report = doctor->report;
    report->counted = tool_counts_read(doctor->folder, &doctor->counts) && doctor->counts.processes > 0;
    report->processes = doctor->counts.processes;
    report->taken = doctor->counts.taken;
    report->forwarded = doctor->counts.forwarded;
}

void doctor_command(doctor_t *doctor)
{
    doctor_log_t log;
    watched_t watched = {.processes = calloc(1, sizeof *watched.processes)};
    if (watched.processes == NULL) {
        return;
    }
    watched.processes->library = doctor->report->library;
    doctor->check = "command";
    if (watch(doctor, &watched)) {
        report_end(doctor, &watched);
        doctor_log_read(doctor->folder, "log.", &log);
        read_counts(doctor);
        const uint32_t preloaded = count_preloaded(watched.processes);
        doctor->check = "processes";
        const bool past = report_processes(doctor, watched.processes, &log);
        doctor->check = "communicators";
        report_log(doctor, &log);
        doctor->check = "calls";
        report_counts(doctor, &watched, &log);
        if (!past && log.attached == 0 && log.forwarded.count == 0) {
            doctor->check = "communicators";
            doctor_print(doctor, DOCTOR_FAULT,
                         "run a command that makes a communicator within the time limit (--limit)",
                         "no process made a communicator (Shunt was loaded in %u)", preloaded);
        }
    }
    tool_processes_free(watched.processes);
    free(watched.processes);
}
