/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that wait too long, and ranks that call different things: each is reported with the rank at fault and what it
 * does. The rank at fault continues after the report, so no result depends on the machine's speed.
 */
#include "gpu.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { TEXT_BYTES = 65536, SECONDS = 40, COUNT = 1000 };

static char g_file[64];

static void read_reports(char text[TEXT_BYTES])
{
    FILE *file = fopen(g_file, "r");
    size_t size = file ? fread(text, 1, TEXT_BYTES - 1, file) : 0;
    text[size] = '\0';
    if (file)
        fclose(file);
}

/* Wait for the report; makes no CUDA call, so a CUDA callback may use it. */
static void wait_for_report(void *unused)
{
    static char text[TEXT_BYTES];
    (void)unused;
    for (int naps = 0; naps < SECONDS * 100; naps++) {
        read_reports(text);
        if (strchr(text, '\n'))
            return;
        usleep(10000);
    }
    check_failed(__FILE__, __LINE__, "there is a report", "");
}

static void sum(gpu_t *gpu)
{
    float *x = (float *)gpu->pool;
    CHECK_NCCL(ncclAllReduce(x, x + 4096, COUNT, ncclFloat32, ncclSum, gpu->comm, gpu->stream));
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

/* Check that there is exactly one report, with all of this. */
static void expect(gpu_t *gpu, const char *cause, const char *call, const char *words)
{
    static char text[TEXT_BYTES];
    if (gpu->rank != 0)
        return;
    read_reports(text);
    const char *end = strchr(text, '\n');
    printf("%s", text);
    if (!end || end[1] != '\0' || !strstr(text, cause) || !strstr(text, call) || !strstr(text, words))
        check_failed(__FILE__, __LINE__, words, text);
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

/* A stopped rank is reported. Its child, which makes no CUDA call, continues it after the report. */
static void stopped(gpu_t *gpu)
{
    begin(gpu);
    if (gpu->rank == 1) {
        const pid_t self = getpid(), child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            wait_for_report(NULL);
            kill(self, SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        CHECK(waitpid(child, NULL, 0) == child);
    }
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

static void other_call(gpu_t *gpu)
{
    float *x = (float *)gpu->pool;
    ncclResult_t async = ncclSuccess;
    begin(gpu);
    CHECK_NCCL(
        ncclAllReduce(x, x + 4096, COUNT, gpu->rank == 1 ? ncclInt32 : ncclFloat32, ncclSum, gpu->comm, gpu->stream));
    for (int naps = 0; naps < SECONDS * 100 && async != ncclInvalidUsage; naps++) {
        CHECK_NCCL(ncclCommGetAsyncError(gpu->comm, &async));
        usleep(10000);
    }
    CHECK(async == ncclInvalidUsage);
    finish(gpu);
    expect(gpu, "\"report\":\"mismatch\"", "all-reduce #4 of 1,000 fp32, sum", "all-reduce #4 of 1,000 int32, sum");
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommAbort(gpu->comm));
    gpu->comm = NULL;
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"not-called", not_called, GPU_RANKS, 60}, {"list", list, GPU_RANKS, 60},
        {"not-begun", not_begun, GPU_RANKS, 60},   {"stopped", stopped, GPU_PROCESSES, 60},
        {"gone", gone, GPU_PROCESSES, 60},         {"replay", replay, GPU_RANKS, 60},
        {"other-call", other_call, GPU_RANKS, 60},
    };
    snprintf(g_file, sizeof g_file, "/tmp/shunt-hangs-%d", (int)getpid());
    setenv("SHUNT_HANG_FILE", g_file, 1);
    setenv("SHUNT_HANG_WARN_MS", "2000", 1);
    setenv("SHUNT_MISMATCH_ERROR", "1", 1);
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
