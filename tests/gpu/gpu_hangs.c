/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that wait too long, and ranks that call different things: each is reported with the rank at fault and what it
 * does. The rank at fault continues after the report, so no result depends on the machine's speed.
 */
#include "gpu.h"

#include <string.h>

enum { TEXT_BYTES = 65536, SECONDS = 40, COUNT = 1000, LIMIT_MS = 2000 };

static char g_file[64];

static void read_reports(char text[TEXT_BYTES])
{
    FILE *file = fopen(g_file, "r");
    size_t size = file ? fread(text, 1, TEXT_BYTES - 1, file) : 0;
    text[size] = '\0';
    if (file)
        fclose(file);
}

static int lines_of(const char *text)
{
    int lines = 0;
    while ((text = strchr(text, '\n'))) {
        text++;
        lines++;
    }
    return lines;
}

/* Wait for this many reports. */
static void wait_for_reports(int lines)
{
    static _Thread_local char text[TEXT_BYTES];
    for (int naps = 0; naps < SECONDS * 100; naps++) {
        read_reports(text);
        if (lines_of(text) >= lines)
            return;
        usleep(10000);
    }
    check_failed(__FILE__, __LINE__, "there is a report", text);
}

/* Makes no CUDA call, so a CUDA callback may use it. */
static void wait_for_report(void *unused)
{
    (void)unused;
    wait_for_reports(1);
}

static void wait_in_child(const void *unused)
{
    (void)unused;
    wait_for_report(NULL);
}

static void sum_on(gpu_t *gpu, ncclComm_t comm, cudaStream_t stream)
{
    float *x = (float *)gpu->pool;
    CHECK_NCCL(ncclAllReduce(x, x + 4096, COUNT, ncclFloat32, ncclSum, comm, stream));
}

static void sum(gpu_t *gpu)
{
    sum_on(gpu, gpu->comm, gpu->stream);
}

static void begin(gpu_t *gpu)
{
    ranks_barrier(gpu->ranks);
    if (gpu->rank == 0)
        unlink(g_file);
    for (int i = 0; i < 3; i++)
        sum(gpu);
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    ranks_barrier(gpu->ranks);
}

/* Check on rank 0 that there are exactly this many reports, with all of `parts`, of which the last is NULL. */
static void expect_parts(gpu_t *gpu, int lines, const char *const *parts)
{
    static char text[TEXT_BYTES];
    if (gpu->rank != 0)
        return;
    read_reports(text);
    if (lines_of(text) != lines)
        check_failed(__FILE__, __LINE__, "another number of reports: ", text);
    for (; *parts; parts++)
        if (!strstr(text, *parts))
            check_failed(__FILE__, __LINE__, *parts, text);
}

static void expect(gpu_t *gpu, const char *cause, const char *call, const char *words)
{
    expect_parts(gpu, 1, (const char *const[]){cause, call, words, NULL});
}

static void finish(gpu_t *gpu)
{
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    ranks_barrier(gpu->ranks);
}

static void not_called(gpu_t *gpu)
{
    begin(gpu);
    if (gpu->rank == 1)
        wait_for_report(NULL);
    sum(gpu);
    finish(gpu);
    expect(gpu, "\"cause\":\"not-called\"", "all-reduce #4 of 1,000 fp32 on a communicator of ", "for rank 1 (pid ");
}

/* The report on a list names the missing call: the others wait in one kernel for three calls, of which rank 1 has made
 * two. */
static void list(gpu_t *gpu)
{
    begin(gpu);
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < 3; i++) {
        if (i == 2 && gpu->rank == 1) {
            CHECK_NCCL(ncclGroupEnd());
            CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
            wait_for_report(NULL);
            CHECK_NCCL(ncclGroupStart());
        }
        sum(gpu);
    }
    CHECK_NCCL(ncclGroupEnd());
    finish(gpu);
    expect(gpu, "\"cause\":\"not-called\"", "all-reduce #6 of 1,000 fp32 on a communicator of ",
           "it has not made this call: its last call was all-reduce #5 of 1,000 fp32");
}

/* A call that has not begun on rank 1, whose stream a callback delays as a long kernel would, is reported as such. */
static void not_begun(gpu_t *gpu)
{
    begin(gpu);
    if (gpu->rank == 1)
        CHECK_CUDA(cudaLaunchHostFunc(gpu->stream, wait_for_report, NULL));
    sum(gpu);
    finish(gpu);
    expect(gpu, "\"cause\":\"not-begun\"", "all-reduce #4 of 1,000 fp32 on a communicator of ",
           "it has made the call, but has not begun it: its GPU still computes");
}

/* A stopped rank is reported. */
static void stopped(gpu_t *gpu)
{
    begin(gpu);
    if (gpu->rank == 1)
        ranks_stop_while(wait_in_child, NULL);
    sum(gpu);
    finish(gpu);
    expect(gpu, "\"cause\":\"stopped\"", "all-reduce #4 of 1,000 fp32",
           "its process is stopped (SIGSTOP, or a debugger)");
}

static void gone(gpu_t *gpu)
{
    begin(gpu);
    if (gpu->rank == 1) {
        gpu_count(gpu);
        ranks_leave(gpu->ranks); /* the barrier behind the body */
        _exit(0);
    }
    sum(gpu);
    wait_for_report(NULL);
    CHECK_NCCL(ncclCommAbort(gpu->comm));
    gpu->comm = NULL;
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    expect(gpu, "\"cause\":\"dead\"", "all-reduce #4 of 1,000 fp32", "its process is gone");
}

/* A missing replay is reported: rank 1 omits it until there is a report. */
static void replay(gpu_t *gpu)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    begin(gpu);
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 8; i++)
        sum(gpu);
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 1000; i++) {
        if (i == 999 && gpu->rank == 1)
            wait_for_report(NULL);
        CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
    }
    finish(gpu);
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    expect(gpu, "\"cause\":\"not-begun\"", "captured all-reduce #1 of 1,000 fp32 on a communicator of ",
           "for rank 1 (pid ");
}

/* Wait until the communicator fails since its ranks called different things, then abort it. */
static void abort_mismatch(gpu_t *gpu, ncclComm_t comm, cudaStream_t stream)
{
    ncclResult_t async = ncclSuccess;
    for (int naps = 0; naps < SECONDS * 100 && async != ncclInvalidUsage; naps++) {
        CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
        usleep(10000);
    }
    CHECK(async == ncclInvalidUsage);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    ranks_barrier(gpu->ranks); /* who leaves is no fault of its own */
    CHECK_NCCL(ncclCommAbort(comm));
}

static void other_call(gpu_t *gpu)
{
    float *x = (float *)gpu->pool;
    begin(gpu);
    CHECK_NCCL(
        ncclAllReduce(x, x + 4096, COUNT, gpu->rank == 1 ? ncclInt32 : ncclFloat32, ncclSum, gpu->comm, gpu->stream));
    abort_mismatch(gpu, gpu->comm, gpu->stream);
    gpu->comm = NULL;
    expect(gpu, "\"report\":\"mismatch\"", "all-reduce #4 of 1,000 fp32, sum", "all-reduce #4 of 1,000 int32, sum");
}

/* ---- Faults in a drawn order, each on one of several communicators ----------------------- */

enum { COMMS = 3, FAULTS = 50 };

typedef enum fault {
    SLEEPS,
    COMPUTES,
    STOPS,
    OMITS_REPLAY,
    ELSEWHERE, /* it calls on another communicator first */
    OTHER_COUNT,
    OTHER_TYPE,
    OTHER_OPERATOR,
    OTHER_ROOT,
    SWAPS,
    FAULT_KINDS
} fault_t;

typedef struct group {
    ncclComm_t comm;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay; /* of one sum */
    int calls;              /* not captured */
} group_t;

static void sum_in(gpu_t *gpu, group_t *group)
{
    sum_on(gpu, group->comm, group->stream);
    group->calls++;
}

static void open_group(gpu_t *gpu, group_t *group)
{
    *group = (group_t){.comm = ranks_init(gpu->ranks)};
    CHECK_CUDA(cudaStreamCreateWithFlags(&group->stream, cudaStreamNonBlocking));
    sum_in(gpu, group);
    CHECK_CUDA(cudaStreamSynchronize(group->stream)); /* a graph is not made beside a kernel that waits */
    CHECK_CUDA(cudaStreamBeginCapture(group->stream, cudaStreamCaptureModeThreadLocal));
    sum_on(gpu, group->comm, group->stream);
    CHECK_CUDA(cudaStreamEndCapture(group->stream, &group->graph));
    CHECK_CUDA(cudaGraphInstantiate(&group->replay, group->graph, 0));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphLaunch(group->replay, group->stream));
    CHECK_CUDA(cudaStreamSynchronize(group->stream));
}

static void close_group(group_t *group)
{
    CHECK_CUDA(cudaGraphExecDestroy(group->replay));
    CHECK_CUDA(cudaGraphDestroy(group->graph));
    CHECK_CUDA(cudaStreamDestroy(group->stream));
    if (group->comm)
        CHECK_NCCL(ncclCommDestroy(group->comm));
}

/* The rank `late` is late on one of the two groups, until that is reported. Returns the seconds that took. */
static double be_late(gpu_t *gpu, fault_t fault, int late, group_t *group, group_t *other)
{
    const double start = ranks_seconds();
    const bool at_fault = gpu->rank == late;
    char number[64], named[64], where[64];
    static const char *const words[] = {
        [SLEEPS] = "\"cause\":\"not-called\"",    [COMPUTES] = "\"cause\":\"not-begun\"",
        [STOPS] = "\"cause\":\"stopped\"",        [OMITS_REPLAY] = "captured all-reduce #1 of 1,000 fp32",
        [ELSEWHERE] = "it waits in all-reduce #",
    };
    if (fault == ELSEWHERE) {
        sum_in(gpu, at_fault ? other : group);
        wait_for_reports(2);
        sum_in(gpu, at_fault ? group : other);
    } else {
        if (at_fault && fault == COMPUTES)
            CHECK_CUDA(cudaLaunchHostFunc(group->stream, wait_for_report, NULL));
        else if (at_fault && fault == STOPS)
            ranks_stop_while(wait_in_child, NULL);
        else if (at_fault)
            wait_for_report(NULL);
        if (fault == OMITS_REPLAY)
            CHECK_CUDA(cudaGraphLaunch(group->replay, group->stream));
        else
            sum_in(gpu, group);
    }
    CHECK_CUDA(cudaStreamSynchronize(group->stream));
    CHECK_CUDA(cudaStreamSynchronize(other->stream));
    const double seconds = ranks_seconds() - start;
    ranks_barrier(gpu->ranks);
    snprintf(number, sizeof number, "all-reduce #%d of 1,000 fp32", fault == OMITS_REPLAY ? 1 : group->calls);
    snprintf(named, sizeof named, "for rank %d (pid ", late);
    snprintf(where, sizeof where, "all-reduce #%d of 1,000 fp32", other->calls);
    expect_parts(gpu, fault == ELSEWHERE ? 2 : 1,
                 (const char *const[]){words[fault], number, named, fault == ELSEWHERE ? where : NULL, NULL});
    return seconds;
}

/* The rank `other` makes another call than the rest, which is reported; the group is made anew. Returns the seconds
 * until the calls had failed. */
static double call_differently(gpu_t *gpu, fault_t fault, int other, group_t *group)
{
    float *x = (float *)gpu->pool, *y = x + 4096;
    const bool at_fault = gpu->rank == other;
    const double start = ranks_seconds();
    char right[64], wrong[64], first[128], second[128];
    static const char *const words[][2] = {
        [OTHER_COUNT] = {"all-reduce #%d of 1,000 fp32, sum", "all-reduce #%d of 500 fp32, sum"},
        [OTHER_TYPE] = {"all-reduce #%d of 1,000 fp32, sum", "all-reduce #%d of 1,000 int32, sum"},
        [OTHER_OPERATOR] = {"all-reduce #%d of 1,000 fp32, sum", "all-reduce #%d of 1,000 fp32, maximum"},
        [OTHER_ROOT] = {"broadcast #%d of 1,000 fp32, root 0", "broadcast #%d of 1,000 fp32, root 1"},
        [SWAPS] = {"all-reduce #%d of 1,000 fp32, sum", "broadcast #%d of 1,000 fp32, root 0"},
    };
    if (fault == OTHER_ROOT || (fault == SWAPS && at_fault))
        CHECK_NCCL(
            ncclBroadcast(x, y, COUNT, ncclFloat32, fault == OTHER_ROOT && at_fault, group->comm, group->stream));
    else
        CHECK_NCCL(ncclAllReduce(x, y, fault == OTHER_COUNT && at_fault ? COUNT / 2 : COUNT,
                                 fault == OTHER_TYPE && at_fault ? ncclInt32 : ncclFloat32,
                                 fault == OTHER_OPERATOR && at_fault ? ncclMax : ncclSum, group->comm, group->stream));
    if (fault == SWAPS) {
        const ncclResult_t result = at_fault
                                        ? ncclAllReduce(x, y, COUNT, ncclFloat32, ncclSum, group->comm, group->stream)
                                        : ncclBroadcast(x, y, COUNT, ncclFloat32, 0, group->comm, group->stream);
        CHECK(result == ncclSuccess || result == ncclInvalidUsage); /* it may have been seen already */
    }
    abort_mismatch(gpu, group->comm, group->stream);
    const double seconds = ranks_seconds() - start;
    snprintf(right, sizeof right, words[fault][0], group->calls + 1);
    snprintf(wrong, sizeof wrong, words[fault][1], group->calls + 1);
    /* the report is on rank 0 and the first rank that differs from it */
    snprintf(first, sizeof first, ") has called %s, and rank %d (pid ", other == 0 ? wrong : right,
             other == 0 ? 1 : other);
    snprintf(second, sizeof second, ") has called %s; such calls", other == 0 ? right : wrong);
    expect_parts(gpu, 1, (const char *const[]){"\"report\":\"mismatch\"", first, second, NULL});
    group->comm = NULL;
    close_group(group);
    open_group(gpu, group);
    return seconds;
}

/* Every fault is named rightly, within a second of the limit. */
static void draw_faults(gpu_t *gpu, bool processes)
{
    uint64_t seed = gpu->options->seed;
    double longest = 0;
    group_t groups[COMMS];
    for (int i = 0; i < COMMS; i++)
        open_group(gpu, &groups[i]);
    for (int i = 0; i < FAULTS; i++) {
        const int rank = (int)data_below(&seed, (uint64_t)gpu->nranks), at = (int)data_below(&seed, COMMS);
        const fault_t drawn = (fault_t)data_below(&seed, FAULT_KINDS);
        const fault_t fault = drawn == STOPS && !processes ? SLEEPS : drawn;
        ranks_barrier(gpu->ranks);
        if (gpu->rank == 0)
            unlink(g_file);
        ranks_barrier(gpu->ranks);
        const double seconds = fault < OTHER_COUNT ? be_late(gpu, fault, rank, &groups[at], &groups[(at + 1) % COMMS])
                                                   : call_differently(gpu, fault, rank, &groups[at]);
        longest = seconds > longest ? seconds : longest;
        CHECK(fault >= OTHER_COUNT || seconds > 0.001 * LIMIT_MS);
        CHECK(seconds < 0.001 * LIMIT_MS + 1);
    }
    if (gpu->rank == 0)
        printf("%d faults, the longest lasted %.1f s (limit: %.1f)\n", FAULTS, longest, 0.001 * LIMIT_MS);
    for (int i = 0; i < COMMS; i++)
        close_group(&groups[i]);
}

static void drawn(gpu_t *gpu)
{
    draw_faults(gpu, true);
}

static void drawn_threads(gpu_t *gpu)
{
    draw_faults(gpu, false);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"not-called", not_called, GPU_RANKS, 60},
        {"list", list, GPU_RANKS, 60},
        {"not-begun", not_begun, GPU_RANKS, 60},
        {"stopped", stopped, GPU_PROCESSES, 60},
        {"gone", gone, GPU_PROCESSES, 60},
        {"replay", replay, GPU_RANKS, 60},
        {"other-call", other_call, GPU_RANKS, 60},
        {"drawn", drawn, GPU_PROCESSES, 240},
        {"drawn-threads", drawn_threads, GPU_THREADS, 240},
    };
    char limit[16];
    snprintf(limit, sizeof limit, "%d", LIMIT_MS);
    snprintf(g_file, sizeof g_file, "/tmp/shunt-hangs-%d", (int)getpid());
    setenv("SHUNT_HANG_FILE", g_file, 1);
    setenv("SHUNT_HANG_WARN_MS", limit, 1);
    setenv("SHUNT_MISMATCH_ERROR", "1", 1);
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
