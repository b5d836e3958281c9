/*
 * bench.c - `shunt bench`: the parent of the ranks.
 *
 * It makes no CUDA call itself, since a process that has made one cannot fork
 * ranks: a probe, forked first, looks at the machine. Then it forks the ranks,
 * prints the rows that rank 0 sends, and ends all of them when one fails, dies,
 * or makes no progress for a minute.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

enum { STALL_SECONDS = 60, POLL_MS = 100, PROBE_SECONDS = 60 };

/* ---- The probe ---- */

static void look_around(void *argument)
{
    bench_machine_t *machine = argument;
    tool_shunt_t shunt;
    tool_nccl_t nccl;
    if (!tool_open_shunt(&shunt, &nccl, machine->error)) {
        return;
    }
    machine->shunt_version = shunt.shunt_version();
    machine->host = shunt.shunt_host_mode() == 1;
    if (!machine->host) {
        tool_gpus_read(&machine->gpus);
        const char *path = shunt.shunt_nccl_path();
        if (path != NULL && nccl.ncclGetVersion(&machine->nccl_version) == ncclSuccess) {
            snprintf(machine->nccl_path, sizeof machine->nccl_path, "%s", path);
        }
    }
}

/* Forked; true in the child, which dies with its parent. */
static bool fork_child(pid_t *child)
{
    pid_t parent = getpid();
    fflush(NULL); /* or the child would print our buffers again */
    *child = fork();
    if (*child != 0) {
        return false;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(TOOL_FAILED); /* it died before the line above */
    }
    return true;
}

/* Run it in a process of its own, which may call CUDA. False, and told: that process did not end well. */
static bool run_apart(const char *what, void (*work)(void *argument), void *argument)
{
    pid_t child;
    if (fork_child(&child)) {
        alarm(PROBE_SECONDS);
        work(argument);
        _exit(TOOL_OK);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("shunt bench: fork");
        return false;
    }
    if (status != 0) {
        fprintf(stderr, "shunt bench: %s failed (%s %d)\n", what, WIFSIGNALED(status) ? "signal" : "exit status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return status == 0;
}

static int probe(bench_machine_t *machine)
{
    if (!run_apart("looking at the machine", look_around, machine)) {
        return TOOL_FAILED;
    }
    if (machine->error[0] != '\0') {
        fprintf(stderr, "shunt bench: %s\n", machine->error);
        return TOOL_FAILED;
    }
    return TOOL_OK;
}

typedef struct floor_job {
    uint32_t ranks;
    tool_floor_t *floor;
} floor_job_t;

static void find_floor(void *argument)
{
    const floor_job_t *job = argument;
    tool_floor_measure(job->ranks, job->floor);
}

static int measure_floor(uint32_t ranks, tool_floor_t *floor)
{
    floor_job_t job = {ranks, floor};
    if (!run_apart("measuring the floor", find_floor, &job)) {
        return TOOL_FAILED;
    }
    if (floor->error[0] != '\0') {
        fprintf(stderr, "shunt bench: the floor cannot be measured: %s\n", floor->error);
        return TOOL_FAILED;
    }
    return TOOL_OK;
}

/* ---- Defaults that depend on the machine ---- */

static int settle_host(bench_options_t *options)
{
    if (options->graph || options->host_time) {
        return tool_usage("bench", "%s needs a GPU", options->graph ? "--graph" : "--host-time");
    }
    if (options->floor) {
        return tool_usage("bench", "--floor: the host device has no floor");
    }
    options->ranks = options->ranks != 0 ? options->ranks : 4;
    options->calls = options->calls != 0 ? options->calls : 20;
    options->factor = options->factor != 0 ? options->factor : 4;
    if (!options->sizes_given[1]) {
        options->to_bytes = 1 << 20;
    }
    return TOOL_OK;
}

static int settle_cuda(bench_options_t *options, const bench_machine_t *machine)
{
    if (bench_device_cuda == NULL || machine->gpus.count == 0) {
        fprintf(stderr, "shunt bench: the library uses CUDA, but no GPU can be used: %s\n", machine->gpus.error);
        return TOOL_FAILED;
    }
    if (options->ranks > machine->gpus.count) {
        return tool_usage("bench", "-g %u: there are %u GPUs", options->ranks, machine->gpus.count);
    }
    if (options->ranks == 0) {
        options->ranks = machine->gpus.count < BENCH_MAX_RANKS ? machine->gpus.count : BENCH_MAX_RANKS;
    }
    if (options->floor && options->ranks < 2) {
        return tool_usage("bench", "--floor: one rank has nothing to wait for");
    }
    options->calls = options->calls != 0 ? options->calls : 50;
    options->factor = options->factor != 0 ? options->factor : 2;
    if (!options->sizes_given[1]) {
        options->to_bytes = 16 << 20;
    }
    return TOOL_OK;
}

static int settle(bench_options_t *options, const bench_machine_t *machine)
{
    int fault = machine->host ? settle_host(options) : settle_cuda(options, machine);
    if (fault != TOOL_OK) {
        return fault;
    }
    if (!options->sizes_given[1] && options->from_bytes > options->to_bytes) {
        options->to_bytes = options->from_bytes;
    }
    if (options->from_bytes > options->to_bytes) {
        return tool_usage("bench", "-b is more than -e");
    }
    return TOOL_OK;
}

static uint32_t count_cases(const bench_options_t *options, const bench_machine_t *machine)
{
    uint32_t cases = 0;
    for (int32_t type = 0; type < (int32_t)bench_type_count; type++) {
        for (int32_t op = 0; op < (int32_t)bench_op_count; op++) {
            for (uint64_t bytes = options->from_bytes; bytes <= options->to_bytes; bytes *= options->factor) {
                cases += bench_wanted(options, machine, type, op) && bytes >= bench_types[type].bytes;
            }
        }
    }
    return cases;
}

/* ---- The ranks ---- */

typedef struct family {
    bench_shared_t *shared;
    uint32_t ranks;
    pid_t pid[BENCH_MAX_RANKS]; /* 0: ended */
    int rows;                   /* our end of the pipe */
    unsigned long long pulse;
    double pulse_time;
} family_t;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void kill_all(family_t *family)
{
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (family->pid[i] > 0) {
            kill(family->pid[i], SIGKILL);
        }
    }
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (family->pid[i] > 0) {
            waitpid(family->pid[i], NULL, 0);
            family->pid[i] = 0;
        }
    }
}

static bool fork_ranks(family_t *family, const bench_options_t *options)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("shunt bench: pipe");
        return false;
    }
    family->ranks = options->ranks;
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (fork_child(&family->pid[i])) {
            close(ends[0]);
            _exit(bench_rank_run(options, family->shared, i, ends[1]) ? TOOL_OK : TOOL_FAILED);
        }
        if (family->pid[i] < 0) {
            perror("shunt bench: fork");
            close(ends[0]);
            close(ends[1]);
            kill_all(family);
            return false;
        }
    }
    close(ends[1]);
    family->rows = ends[0];
    family->pulse_time = now();
    return true;
}

static void tell(const family_t *family, uint32_t rank, int status)
{
    const char *error = family->shared->error[rank];
    if (error[0] != '\0') {
        fprintf(stderr, "shunt bench: rank %u: %s\n", rank, error);
    } else if (WIFSIGNALED(status)) {
        fprintf(stderr, "shunt bench: rank %u died of signal %d\n", rank, WTERMSIG(status));
    } else {
        fprintf(stderr, "shunt bench: rank %u ended with exit status %d\n", rank, WEXITSTATUS(status));
    }
}

/* Note the ranks that have ended. False if one of them failed, or if none makes progress. */
static bool watch(family_t *family)
{
    for (uint32_t i = 0; i < family->ranks; i++) {
        int status = 0;
        if (family->pid[i] > 0 && waitpid(family->pid[i], &status, WNOHANG) == family->pid[i]) {
            family->pid[i] = 0;
            family->pulse_time = now();
            if (!WIFEXITED(status) || WEXITSTATUS(status) != TOOL_OK) {
                tell(family, i, status);
                return false;
            }
        }
    }
    unsigned long long pulse = 0;
    for (uint32_t i = 0; i < family->ranks; i++) {
        pulse += atomic_load_explicit(&family->shared->pulse[i].steps, memory_order_relaxed);
    }
    if (pulse != family->pulse) {
        family->pulse = pulse;
        family->pulse_time = now();
    } else if (now() - family->pulse_time > STALL_SECONDS) {
        fprintf(stderr, "shunt bench: no rank has made progress for %d s: giving up\n", STALL_SECONDS);
        return false;
    }
    return true;
}

static bool any_alive(const family_t *family)
{
    for (uint32_t i = 0; i < family->ranks; i++) {
        if (family->pid[i] > 0) {
            return true;
        }
    }
    return false;
}

/* 1: a row; 0: none within POLL_MS; -1: the pipe is closed. A row is smaller than the pipe's atomic size. */
static int next_row(const family_t *family, bench_row_t *row)
{
    struct pollfd wait = {.fd = family->rows, .events = POLLIN};
    if (poll(&wait, 1, POLL_MS) <= 0) {
        return 0;
    }
    ssize_t got = read(family->rows, row, sizeof *row);
    if (got < 0 && errno == EINTR) {
        return 0;
    }
    return got == (ssize_t)sizeof *row ? 1 : -1;
}

static bool collect(family_t *family, bench_report_t *report, bool *right)
{
    bool open = true;
    while (open || any_alive(family)) {
        bench_row_t row;
        int got = open ? next_row(family, &row) : (poll(NULL, 0, POLL_MS), 0);
        if (got > 0) {
            bench_report_row(report, &row);
            *right = *right && (row.wrong == 0 || row.wrong == UINT64_MAX);
        }
        open = open && got >= 0;
        if (!watch(family)) {
            return false;
        }
    }
    return true;
}

static int run_ranks(const bench_options_t *options, bench_shared_t *shared)
{
    bench_report_t *report = bench_report_open(options, &shared->machine, count_cases(options, &shared->machine));
    if (report == NULL) {
        return TOOL_FAILED;
    }
    family_t family = {.shared = shared};
    bool right = true;
    bool done = fork_ranks(&family, options);
    if (done) {
        done = collect(&family, report, &right);
        kill_all(&family);
        close(family.rows);
    }
    done = bench_report_close(report) && done;
    return done && right ? TOOL_OK : TOOL_FAILED;
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
    fault = probe(&shared->machine);
    if (fault == TOOL_OK) {
        fault = settle(&options, &shared->machine);
    }
    if (fault == TOOL_OK && options.floor) {
        fault = measure_floor(options.ranks, &shared->machine.floor);
    }
    if (fault == TOOL_OK) {
        fault = run_ranks(&options, shared);
    }
    munmap(shared, sizeof *shared);
    return fault;
}
