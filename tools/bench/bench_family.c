/* SPDX-License-Identifier: Apache-2.0 */
/* bench_family.c - the parent of a measurement's processes.
 * The parent makes no CUDA call, since CUDA does not survive a fork: work that needs CUDA before the fork runs in a
 * separate process. The parent passes on rank 0's rows. It ends all ranks when one fails, dies, or makes no progress
 * for a minute, or when the rows' receiver asks. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/clock.h"
#include "tools/bench/bench.h"

enum { STALL_SECONDS = 60, POLL_MS = 100, APART_SECONDS = 60, MOST_ROW_BYTES = 1024 };

static void look_around(void *argument)
{
    bench_machine_t *machine = argument;
    tool_shunt_t shunt;
    tool_nccl_t nccl;
    if (!tool_open_shunt(&shunt, &nccl, machine->error)) {
        return;
    }
    machine->shunt_version = shunt.shunt_version();
    machine->cpu = shunt.shunt_host_mode() == 1;
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        const bool known = shunt.shunt_algorithm(alg_collective_name((alg_collective_t)c), 0) != NULL;
        machine->collectives |= (uint32_t)known << c;
    }
    shunt_setting_t setting;
    for (uint32_t i = 0; shunt.shunt_setting(i, &setting) == 0; i++) {
        machine->policy = machine->policy || (strcmp(setting.name, "SHUNT_ALGO") == 0 && setting.value[0] != '\0');
    }
    if (!machine->cpu) {
        shunt_communicator_t facts = {.size = sizeof facts};
        if (shunt.shunt_topology_class(NULL, &facts) == 0) {
            machine->fingerprint = facts.machine;
            snprintf(machine->class_name, sizeof machine->class_name, "%s", facts.class_name);
        }
        tool_gpus_read(&machine->gpus);
        const char *path = shunt.shunt_nccl_path();
        if (path != NULL && nccl.ncclGetVersion(&machine->nccl_version) == ncclSuccess) {
            snprintf(machine->nccl_path, sizeof machine->nccl_path, "%s", path);
        }
    }
}

/* Fork; true in the child, which dies with its parent. */
static bool fork_child(pid_t *child)
{
    pid_t parent = getpid();
    fflush(NULL); /* else the child would print this process's buffers again */
    *child = fork();
    if (*child != 0) {
        return false;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(TOOL_FAILED); /* the parent died before prctl */
    }
    return true;
}

/* A signal may interrupt waitpid. */
static bool wait_for(pid_t child, int *status)
{
    pid_t ended;
    while ((ended = waitpid(child, status, 0)) < 0 && errno == EINTR) {
    }
    return ended == child;
}

bool bench_apart(const char *command, const char *what, void (*work)(void *argument), void *argument)
{
    pid_t child;
    if (fork_child(&child)) {
        alarm(APART_SECONDS);
        work(argument);
        _exit(TOOL_OK);
    }
    int status = 0;
    if (child < 0 || !wait_for(child, &status)) {
        fprintf(stderr, "shunt %s: fork: %s\n", command, strerror(errno));
        return false;
    }
    if (status != 0) {
        fprintf(stderr, "shunt %s: %s failed (%s %d)\n", command, what, WIFSIGNALED(status) ? "signal" : "exit status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return status == 0;
}

bool bench_look(const char *command, bench_machine_t *machine)
{
    if (!bench_apart(command, "looking at the machine", look_around, machine)) {
        return false;
    }
    if (machine->error[0] != '\0') {
        fprintf(stderr, "shunt %s: %s\n", command, machine->error);
        return false;
    }
    return true;
}

typedef struct floor_job {
    uint32_t gpus;
    tool_floor_t *floor;
} floor_job_t;

static void find_floor(void *argument)
{
    const floor_job_t *job = argument;
    tool_floor_measure(job->gpus, job->floor);
}

bool bench_floor(const char *command, uint32_t gpus, tool_floor_t *floor)
{
    floor_job_t job = {gpus, floor};
    if (!bench_apart(command, "measuring the floor", find_floor, &job)) {
        return false;
    }
    if (floor->error[0] != '\0') {
        fprintf(stderr, "shunt %s: the floor cannot be measured: %s\n", command, floor->error);
        return false;
    }
    return true;
}

static void kill_all(bench_family_t *family)
{
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (family->pid[i] > 0) {
            kill(family->pid[i], SIGKILL);
        }
    }
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (family->pid[i] > 0) {
            (void)wait_for(family->pid[i], NULL);
            family->pid[i] = 0;
        }
    }
}

static uint32_t number_of(const bench_family_t *family, uint32_t index)
{
    return family->first + index;
}

static bool fork_ranks(bench_family_t *family, bench_body_t body, const void *job)
{
    int ends[2];
    if (pipe(ends) != 0) {
        fprintf(stderr, "shunt %s: pipe: %s\n", family->command, strerror(errno));
        return false;
    }
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (fork_child(&family->pid[i])) {
            close(ends[0]);
            setenv("SHUNT_TIMEOUT_MS", "0", 0); /* the parent detects hangs; a busy machine delays ranks */
            /* Runs the library's exit handler, for SHUNT_STATS (`shunt run --report`), but not CUDA's, which may wait
             * for a peer. */
            quick_exit(body(job, family->shared, number_of(family, i), ends[1]) ? TOOL_OK : TOOL_FAILED);
        }
        if (family->pid[i] < 0) {
            fprintf(stderr, "shunt %s: fork: %s\n", family->command, strerror(errno));
            close(ends[0]);
            close(ends[1]);
            kill_all(family);
            return false;
        }
    }
    close(ends[1]);
    family->rows = ends[0];
    family->pulse_time = tool_now();
    return true;
}

static void tell(const bench_family_t *family, uint32_t rank, int status)
{
    const char *error = family->shared->error[rank];
    if (error[0] != '\0') {
        fprintf(stderr, "shunt %s: rank %u: %s\n", family->command, rank, error);
    } else if (WIFSIGNALED(status)) {
        fprintf(stderr, "shunt %s: rank %u died of signal %d\n", family->command, rank, WTERMSIG(status));
    } else {
        fprintf(stderr, "shunt %s: rank %u ended with exit status %d\n", family->command, rank, WEXITSTATUS(status));
    }
}

/* Record ended ranks. False if one failed, or if no rank makes progress. */
static bool watch(bench_family_t *family)
{
    for (uint32_t i = 0; i < family->ranks; i++) {
        int status = 0;
        if (family->pid[i] > 0 && waitpid(family->pid[i], &status, WNOHANG) == family->pid[i]) {
            family->pid[i] = 0;
            family->pulse_time = tool_now();
            if (!WIFEXITED(status) || WEXITSTATUS(status) != TOOL_OK) {
                tell(family, number_of(family, i), status);
                return false;
            }
        }
    }
    unsigned long long pulse = 0;
    for (uint32_t i = 0; i < family->ranks; i++) {
        pulse += atomic_load_explicit(&family->shared->pulse[number_of(family, i)].steps, memory_order_relaxed);
    }
    if (pulse != family->pulse) {
        family->pulse = pulse;
        family->pulse_time = tool_now();
    } else if (tool_now() - family->pulse_time > STALL_SECONDS) {
        fprintf(stderr, "shunt %s: no rank has made progress for %d s: giving up\n", family->command, STALL_SECONDS);
        return false;
    }
    return true;
}

static bool any_alive(const bench_family_t *family)
{
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (family->pid[i] > 0) {
            return true;
        }
    }
    return false;
}

/* 1: a row; 0: none within POLL_MS; -1: the pipe is closed. Rows fit into one atomic write to the pipe. */
static int next_row(const bench_family_t *family, void *row, size_t bytes)
{
    struct pollfd wait = {.fd = family->rows, .events = POLLIN};
    if (poll(&wait, 1, POLL_MS) <= 0) {
        return 0;
    }
    ssize_t got = read(family->rows, row, bytes);
    if (got < 0 && errno == EINTR) {
        return 0;
    }
    return got == (ssize_t)bytes ? 1 : -1;
}

static bool collect(bench_family_t *family, size_t row_bytes, bench_take_t take, void *context)
{
    bool open = true;
    while (open || any_alive(family)) {
        _Alignas(16) char row[MOST_ROW_BYTES];
        int got = open ? next_row(family, row, row_bytes) : (poll(NULL, 0, POLL_MS), 0);
        if (!take(context, got > 0 ? row : NULL)) {
            return true;
        }
        open = open && got >= 0;
        if (!watch(family)) {
            return false;
        }
    }
    return true;
}

bool bench_family_run(bench_family_t *family, bench_body_t body, const void *job, size_t row_bytes, bench_take_t take,
                      void *context)
{
    if (row_bytes > MOST_ROW_BYTES || !fork_ranks(family, body, job)) {
        return false;
    }
    bool done = collect(family, row_bytes, take, context);
    kill_all(family);
    close(family->rows);
    return done;
}
