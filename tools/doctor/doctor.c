/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor.c - `shunt doctor [-- CMD]`: whether Shunt serves programs on this machine, and if not, why.
 */
#include "tools/doctor/doctor.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/folder.h"
#include "tools/base/output.h"
#include "tools/base/signals.h"
#include "tools/base/terminal.h"

enum { DEFAULT_LIMIT_S = 20 };

static const char help[] =
    "usage: shunt doctor [--limit S] [--json FILE] [-- CMD [ARGUMENT...]]\n\n"
    "Checks in about half a minute whether Shunt serves programs on this machine: GPUs and links, NCCL, shared "
    "memory,\n"
    "settings, tuned table. With CMD also which NCCL its processes load, whether NCCL is linked statically into one "
    "of\n"
    "their files, and what happened to their calls. Then it runs a short bench beside NCCL. Each fault comes with "
    "what\n"
    "to do. Without a GPU it checks the CPU device.\n\n"
    "  --limit S     end CMD after this many seconds (default 20); the report is fullest if CMD ends by itself\n"
    "  --json FILE   write the same as JSON (docs/settings.md has the names); to standard output with -, and the text\n"
    "                to standard error\n"
    "  --help        print this\n\n"
    "Exit status: 0 if all is well, 1 if there is a fault, 2 for a wrong option.\n";

void doctor_print(doctor_t *doctor, doctor_level_t level, const char *what_to_do, const char *format, ...)
{
    static const char *const words[] = {"ok   ", "note ", "fault"}, *const colours[] = {"32", "33", "1;31"};
    doctor_report_t *report = doctor->report;
    doctor_finding_t finding = {.level = level, .check = doctor->check, .what_to_do = what_to_do};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding.text, sizeof finding.text, format, arguments);
    va_end(arguments);
    if (doctor->colours) {
        fprintf(doctor->out, "\033[%sm%s\033[0m  %s\n", colours[level], words[level], finding.text);
    } else {
        fprintf(doctor->out, "%s  %s\n", words[level], finding.text);
    }
    if (what_to_do != NULL) {
        fprintf(doctor->out, "       what to do: %s\n", what_to_do);
    }
    fflush(doctor->out);
    if (report->count < DOCTOR_MOST_FINDINGS) {
        report->finding[report->count++] = finding;
    }
    report->faults += level == DOCTOR_FAULT;
}

static int parse(int argc, char **argv, doctor_t *doctor, bool *asked)
{
    for (int i = 1; i < argc; i++) {
        uint64_t seconds;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *asked = true;
            return TOOL_OK;
        }
        if (strcmp(argv[i], "--limit") == 0 && i + 1 < argc) {
            if (!tool_number(argv[++i], 1, 86400, &seconds)) {
                return tool_usage("doctor", "--limit %s: must be a number from 1 to 86400", argv[i]);
            }
            doctor->limit_s = (uint32_t)seconds;
        } else if (strcmp(argv[i], "--json") == 0 && tool_is_value(argv[i + 1])) {
            doctor->json = argv[++i];
        } else if (strcmp(argv[i], "--") == 0 && i + 1 < argc) {
            doctor->command = argv + i + 1;
            return TOOL_OK;
        } else {
            return tool_usage("doctor",
                              argv[i][0] == '-' ? "option %s is unknown, or needs a value"
                                                : "%s: a command "
                                                  "stands behind --",
                              argv[i]);
        }
    }
    return TOOL_OK;
}

static void examine(doctor_t *doctor)
{
    if (doctor_machine(doctor)) {
        if (doctor->command != NULL) {
            doctor_command(doctor);
        }
        doctor_bench(doctor);
        tool_counts_free(&doctor->counts);
    }
    doctor->report->complete = true;
}

/* Wait for the child or a signal that ends the doctor; returns 0 or that signal. */
static int wait_for(pid_t child, const sigset_t *set, int *status)
{
    while (waitpid(child, status, WNOHANG) == 0) {
        const int signal = sigwaitinfo(set, NULL);
        if (signal > 0 && signal != SIGCHLD) {
            return signal;
        }
    }
    return 0;
}

static bool write_json(const doctor_t *doctor, FILE *file)
{
    tool_json_t json = {.file = file, .lines = 2};
    doctor_json(doctor, &json);
    return tool_output_close("doctor", doctor->json, file);
}

/* Examine in a child: however the child or this process ends, no processes and no folder remain, and the JSON is
 * complete. */
static int examine_apart(doctor_t *doctor, FILE *json)
{
    sigset_t set, old;
    int status = -1;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    tool_signals_add(&set);
    sigprocmask(SIG_BLOCK, &set, &old);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &old, NULL);
        examine(doctor);
        const bool whole = tool_output_close("doctor", "standard output", doctor->out);
        _exit(doctor->report->faults == 0 && whole ? TOOL_OK : TOOL_FAILED);
    }
    if (child < 0) {
        perror("shunt doctor: fork");
    }
    const int asked = child > 0 ? wait_for(child, &set, &status) : 0;
    tool_processes_end();
    tool_folder_remove(doctor->folder);
    const bool written = write_json(doctor, json);
    if (asked != 0) {
        raise(asked); /* ends the process when the signals are unblocked below */
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    return WIFEXITED(status) && written ? WEXITSTATUS(status) : TOOL_FAILED;
}

int tool_doctor(int argc, char **argv)
{
    static doctor_t doctor = {.limit_s = DEFAULT_LIMIT_S};
    bool asked = false;
    const int fault = parse(argc, argv, &doctor, &asked);
    if (fault != TOOL_OK) {
        return fault;
    }
    if (asked) {
        fputs(help, stdout);
        return TOOL_OK;
    }
    struct {
        bench_machine_t machine;
        doctor_facts_t facts;
        doctor_report_t report;
    } *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FILE *json;
    if (shared == MAP_FAILED || !tool_folder_make("doctor", doctor.folder)) {
        return TOOL_FAILED;
    }
    if (!tool_output_open("doctor", doctor.json, &json)) {
        tool_folder_remove(doctor.folder);
        return TOOL_FAILED;
    }
    doctor.machine = &shared->machine;
    doctor.facts = &shared->facts;
    doctor.report = &shared->report;
    doctor.out = tool_output_text(doctor.json);
    doctor.colours = tool_has_colours(doctor.out);
    const int result = examine_apart(&doctor, json);
    munmap(shared, sizeof *shared);
    return result;
}
