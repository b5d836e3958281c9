/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - `shunt run -- CMD`: executes CMD in an environment where programs that link NCCL, or open it by name, load
 * Shunt. With --report CMD runs in a child, and a report on its calls follows.
 *
 * LD_PRELOAD serves programs that link libnccl.so.2 or open it by that name. vLLM and SGLang may open it by an
 * absolute path, which a preload does not change, so the variables that hold the path are set too. For other such
 * programs --audit sets LD_AUDIT to the audit library. That is not the default, since under LD_AUDIT calls between
 * libraries are slower.
 *
 * Programs that link libnccl_ep.so.0 find Shunt's by LD_LIBRARY_PATH. It is not preloaded, since Python opens NVIDIA's
 * by an absolute path: calls of that library's own functions would then reach ours. Python needs --audit.
 */
#include "tools/run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/real/real_parts.h"
#include "tools/base/folder.h"
#include "tools/base/output.h"
#include "tools/base/tool.h"
#include "tools/run/behind.h"
#include "tools/run/report.h"
#include "tools/tune/tune.h"

static const char help[] =
    "usage: shunt run [--audit] [--deterministic] [--no-tune] [--report [--json FILE]] [--] CMD [ARGUMENT...]\n\n"
    "Runs CMD with Shunt's libnccl.so.2 in NCCL's place: puts it in front of LD_PRELOAD and into\n"
    "VLLM_NCCL_SO_PATH and SGLANG_NCCL_SO_PATH; an NCCL that these named becomes SHUNT_NCCL_PATH. Puts the folder of\n"
    "Shunt's libnccl_ep.so.0 in front of LD_LIBRARY_PATH.\n\n"
    "  --audit       give Shunt also to programs that open NCCL or nccl_ep by any other absolute path (LD_AUDIT,\n"
    "                libshunt_audit.so)\n"
    "  --deterministic\n"
    "                give the same bits for the same values at every size, also where NCCL's variables pin an\n"
    "                algorithm (SHUNT_DETERMINISTIC=1)\n"
    "  --no-tune     measure nothing (SHUNT_TUNE=0); otherwise, if an earlier program found no table of these GPUs,\n"
    "                they are measured first, once: at most 6 s for 2 GPUs, 12 s for 8\n"
    "  --report      at the end, on stderr: for each collective and size how many calls were taken or forwarded, why,\n"
    "                and what that saved, where `shunt tune` measured it on this machine; and which ranks calls "
    "waited\n"
    "                for, how long (uses SHUNT_STATS)\n"
    "  --json FILE   write that report as JSON, too (docs/settings.md has the names); with - to standard output, "
    "after\n"
    "                what CMD writes there\n"
    "  --help        print this\n\n"
    "Exit status: CMD's; 127 if there is no such program, 126 if it cannot be run; with --report 128 and the signal's\n"
    "number if a signal ended CMD.\n";

typedef struct options {
    bool audit, deterministic, report, no_tune;
    const char *json; /* file of --json; NULL: none */
} options_t;

/* Put a library first in LD_PRELOAD or LD_AUDIT, or a folder in LD_LIBRARY_PATH. The loader splits each at colons
 * (LD_PRELOAD also at blanks), without quoting. */
static bool put_first(const char *variable, const char *path)
{
    const char *old = secure_getenv(variable);
    if (old == NULL || old[0] == '\0') {
        return setenv(variable, path, 1) == 0;
    }
    size_t size = strlen(path) + strlen(old) + 2;
    char *value = malloc(size);
    if (value == NULL) {
        return false;
    }
    snprintf(value, size, "%s:%s", path, old);
    bool set = setenv(variable, value, 1) == 0;
    free(value);
    return set;
}

static bool can_preload(const char *path)
{
    return strpbrk(path, " \t:") == NULL;
}

/* If the program's NCCL has functions that Shunt lacks, preload that NCCL after Shunt. */
static bool put_behind(const char *library, const char *command)
{
    char real[PATH_MAX], name[128];
    if (!tool_behind(library, command, real, name, sizeof name)) {
        return true;
    }
    if (!can_preload(real)) {
        fprintf(
            stderr,
            "shunt run: %s has %s, which this Shunt does not know, and LD_PRELOAD cannot name its path, which has a "
            "blank or a colon: take a newer Shunt, or move that library and name it by SHUNT_NCCL_PATH\n",
            real, name);
        return false;
    }
    fprintf(stderr,
            "shunt run: %s is newer than this Shunt; %s, and whatever else Shunt does not know, goes to it "
            "directly\n",
            real, name);
    if (put_first("LD_PRELOAD", real)) {
        return true;
    }
    perror("shunt run");
    return false;
}

/* Remove the audit libraries of other Shunts, set by an outer `shunt run`, from LD_AUDIT: of several, the last one
 * decides. */
static bool drop_audits(void)
{
    const char *old = secure_getenv("LD_AUDIT");
    char *list = strdup(old != NULL ? old : ""), *kept = calloc(1, strlen(old != NULL ? old : "") + 2), *rest = NULL;
    bool set = list != NULL && kept != NULL;
    for (char *path = set ? strtok_r(list, ":", &rest) : NULL; path != NULL; path = strtok_r(NULL, ":", &rest)) {
        const char *slash = strrchr(path, '/');
        if (strcmp(slash != NULL ? slash + 1 : path, "libshunt_audit.so") != 0) {
            strcat(strcat(kept, kept[0] != '\0' ? ":" : ""), path);
        }
    }
    set = set && setenv("LD_AUDIT", kept, 1) == 0;
    free(list);
    free(kept);
    return set;
}

/* A library without libnccl_ep.so.0 beside it was put somewhere alone, and so serves no experts. */
static bool put_experts(const char *library)
{
    char path[PATH_MAX + 32];
    int folder = (int)(strrchr(library, '/') - library);
    snprintf(path, sizeof path, "%.*s/libnccl_ep.so.0", folder, library);
    if (access(path, R_OK) != 0) {
        return true;
    }
    path[folder] = '\0';
    return put_first("LD_LIBRARY_PATH", path);
}

/* No SHUNT_LIB is set: children with another Shunt would inherit it. The audit library looks beside itself. */
static bool audit(const char *library)
{
    char path[PATH_MAX + 32];
    int folder = (int)(strrchr(library, '/') - library);
    snprintf(path, sizeof path, "%.*s/libshunt_audit.so", folder, library);
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "shunt run: %s: %s\n", path, strerror(errno));
        return false;
    }
    return drop_audits() && put_first("LD_AUDIT", path);
}

/* Make a variable that holds NCCL's path hold Shunt's. The NCCL that the variable named becomes the real one. */
static bool replace(const char *variable, const char *library)
{
    char why[128];
    const char *named = secure_getenv(variable), *real = secure_getenv("SHUNT_NCCL_PATH");
    const bool has_real = real != NULL && real[0] != '\0';
    bool set = true;
    if (named == NULL || named[0] == '\0' || strcmp(named, library) == 0 || (has_real && strcmp(named, real) == 0)) {
        return setenv(variable, library, 1) == 0;
    }
    fprintf(stderr, "shunt run: %s=%s is replaced by Shunt's library, which ", variable, named);
    if (has_real) {
        fprintf(stderr, "forwards to SHUNT_NCCL_PATH=%s\n", real);
    } else if (shim_elf_check(named, why, sizeof why)) {
        fprintf(stderr, "forwards to it (SHUNT_NCCL_PATH)\n");
        set = setenv("SHUNT_NCCL_PATH", named, 1) == 0;
    } else {
        fprintf(stderr, "cannot forward to it (%s): SHUNT_NCCL_PATH may name another NCCL\n", why);
    }
    return set && setenv(variable, library, 1) == 0;
}

int tool_run_command(char **command, bool audited)
{
    char library[PATH_MAX];
    char error[TOOL_ERROR_BYTES];
    if (!tool_library_path(library, error)) {
        fprintf(stderr, "shunt run: %s\n", error);
        return TOOL_FAILED;
    }
    if (!can_preload(library)) {
        fprintf(stderr, "shunt run: LD_PRELOAD cannot name a path with a blank or a colon: %s\n", library);
        return TOOL_FAILED;
    }
    if (!replace("VLLM_NCCL_SO_PATH", library) || !replace("SGLANG_NCCL_SO_PATH", library)) {
        perror("shunt run");
        return TOOL_FAILED;
    }
    if (!put_behind(library, command[0])) {
        return TOOL_FAILED;
    }
    if (!put_first("LD_PRELOAD", library) || !put_experts(library)) {
        perror("shunt run");
        return TOOL_FAILED;
    }
    if (audited && !audit(library)) {
        return TOOL_FAILED;
    }
    execvp(command[0], command);
    const int why = errno;
    fprintf(stderr, "shunt run: %s: %s\n", command[0], strerror(why));
    return why == ENOENT ? 127 : 126;
}

/* Block all signals that could end this process before it removes its folder. Faults and the terminal's stop signals
 * stay unblocked. */
static void block_signals(sigset_t *blocked, sigset_t *old)
{
    static const int kept[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGTSTP, SIGTTIN, SIGTTOU};
    sigfillset(blocked);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        sigdelset(blocked, kept[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would lose the exit status */
    sigprocmask(SIG_BLOCK, blocked, old);
}

/* Whether the command has received the signal too: the terminal signals the whole foreground group, but a hangup may
 * reach only the session's leader. */
static bool command_has_it(const siginfo_t *signal)
{
    return signal->si_code > 0 && signal->si_signo != SIGHUP;
}

/* Wait for the command, and pass on signals that it lacks, such as a scheduler's warning. */
static int wait_for(pid_t pid, const sigset_t *blocked)
{
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        siginfo_t signal;
        if (sigwaitinfo(blocked, &signal) > 0 && signal.si_signo != SIGCHLD && !command_has_it(&signal)) {
            kill(pid, signal.si_signo);
        }
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void print_report(const char *folder, int status, FILE *file)
{
    tool_json_t json = {.file = file, .lines = 2};
    tool_counts_t counts;
    tool_times_t times = {0};
    const bool whole = tool_counts_read(folder, &counts);
    if (!whole) {
        fprintf(stderr, "shunt run: cannot read all of %s: the report is incomplete\n", folder);
    }
    tool_report_times(counts.machine, &times);
    tool_json_begin(&json, NULL, '{');
    tool_json_value(&json, "status", "%d", status);
    tool_json_bool(&json, "complete", whole);
    tool_report_print(stderr, &json, &counts, &times);
    tool_json_end(&json, '}');
    tool_counts_free(&counts);
    free(times.row);
}

static bool open_report(const char *json, char folder[PATH_MAX], FILE **file)
{
    if (!tool_folder_make("run", folder)) {
        return false;
    }
    if (!tool_output_open("run", json, file)) {
        tool_folder_remove(folder);
        return false;
    }
    return true;
}

static int report(char **command, const options_t *options)
{
    FILE *json;
    char folder[PATH_MAX], pattern[PATH_MAX + 16];
    sigset_t blocked, old;
    const char *stats = secure_getenv("SHUNT_STATS");
    if (stats != NULL && stats[0] != '\0') {
        fprintf(stderr, "shunt run: --report takes the place of SHUNT_STATS=%s\n", stats);
    }
    block_signals(&blocked, &old);
    if (!open_report(options->json, folder, &json)) {
        return TOOL_FAILED;
    }
    snprintf(pattern, sizeof pattern, "%s/stats.%%h.%%p", folder);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &old, NULL);
        _exit(setenv("SHUNT_STATS", pattern, 1) == 0 ? tool_run_command(command, options->audit) : TOOL_FAILED);
    }
    int status = TOOL_FAILED;
    if (pid > 0) {
        status = wait_for(pid, &blocked);
    } else {
        perror("shunt run: fork");
    }
    print_report(folder, status, json);
    (void)tool_output_close("run", options->json, json); /* the status is CMD's */
    tool_folder_remove(folder);
    return status;
}

/* Index of the command in argv; 0 after a message if there is none. */
static int read_options(int argc, char **argv, options_t *options)
{
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (strcmp(argv[at], "--audit") == 0) {
            options->audit = true;
        } else if (strcmp(argv[at], "--deterministic") == 0) {
            options->deterministic = true;
        } else if (strcmp(argv[at], "--no-tune") == 0) {
            options->no_tune = true;
        } else if (strcmp(argv[at], "--report") == 0) {
            options->report = true;
        } else if (strcmp(argv[at], "--json") == 0 && tool_is_value(argv[at + 1])) {
            options->json = argv[++at];
        } else {
            tool_usage("run", "option %s is unknown, or needs a value", argv[at]);
            return 0;
        }
    }
    if (options->json != NULL && !options->report) {
        tool_usage("run", "--json goes with --report");
        return 0;
    }
    if (at < argc) {
        return at;
    }
    tool_usage("run", "no command to run");
    return 0;
}

int tool_run(int argc, char **argv)
{
    options_t options = {0};
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(help, stdout);
        return TOOL_OK;
    }
    const int first = read_options(argc, argv, &options);
    if (first == 0) {
        return TOOL_USAGE;
    }
    tool_warn_of_names("run");
    if (options.deterministic && setenv("SHUNT_DETERMINISTIC", "1", 1) != 0) {
        perror("shunt run");
        return TOOL_FAILED;
    }
    if (!options.no_tune) {
        tune_first();
    }
    if (options.no_tune ? setenv("SHUNT_TUNE", "0", 1) != 0 : setenv("SHUNT_RUN", "1", 1) != 0) {
        perror("shunt run");
        return TOOL_FAILED;
    }
    return options.report ? report(argv + first, &options) : tool_run_command(argv + first, options.audit);
}
