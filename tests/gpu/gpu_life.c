/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program does to its devices, contexts and processes while it has communicators: it resets a device without a
 * destroy, makes a context of its own current, exits while other threads call and poll, and forks children that exit.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

#include "gpu.h"

enum { SHORT = 1000, LONG = 300000 }; /* elements: of a small part of the GPU, and of the large one */

/* Make an all-reduce and check it. */
static void call_on(gpu_t *gpu, ncclComm_t comm, size_t count, uint64_t *hash)
{
    const data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 11, count, gpu->nranks};
    (void)gpu_run_on(gpu, comm, gpu->rank, &c, (gpu_shape_t){0, 0, false}, hash);
}

static void calls_on(gpu_t *gpu, ncclComm_t comm)
{
    uint64_t hash = 0;
    call_on(gpu, comm, SHORT, &hash);
    call_on(gpu, comm, LONG, &hash);
    gpu_agree(gpu, hash);
}

/* ---- A reset without a destroy: all handles of the communicator are gone -------------------- */

static void reset(gpu_t *gpu)
{
    calls_on(gpu, gpu->comm);
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaDeviceReset());
    ranks_barrier(gpu->ranks);
    gpu_open(gpu);
    gpu->comm = ranks_init(gpu->ranks);
    calls_on(gpu, gpu->comm);
}

/* ---- A context of cuCtxCreate is current, and all else is of the primary one ------------------ */

typedef struct contexts {
    CUresult (*create)(CUcontext *context, unsigned flags, CUdevice device);
    CUresult (*destroy)(CUcontext context);
    CUresult (*current)(CUcontext *context);
} contexts_t;

static void *driver_function(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *function = library ? dlsym(library, name) : NULL;
    CHECK(function != NULL);
    return function;
}

static contexts_t find_contexts(void)
{
    return (contexts_t){(CUresult(*)(CUcontext *, unsigned, CUdevice))driver_function("cuCtxCreate_v2"),
                        (CUresult(*)(CUcontext))driver_function("cuCtxDestroy_v2"),
                        (CUresult(*)(CUcontext *))driver_function("cuCtxGetCurrent")};
}

/* Make a call while the context is current. NCCL leaves the primary context current; Shunt restores the program's. */
static void call_within(gpu_t *gpu, const contexts_t *contexts, cudaStream_t stream, bool grouped)
{
    const data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 12, LONG, gpu->nranks};
    CUcontext context, now = NULL;
    uint64_t hash = 0;
    gpu_call_t call;
    gpu_prepare(gpu, &call, gpu->comm, gpu->rank, &c, (gpu_shape_t){0, 0, false});
    CHECK(contexts->create(&context, 0, (CUdevice)gpu->device) == CUDA_SUCCESS);
    if (grouped)
        CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(gpu_issue(&call, stream));
    if (grouped)
        CHECK_NCCL(ncclGroupEnd());
    CHECK(contexts->current(&now) == CUDA_SUCCESS);
    CHECK(now == context || !call.taken);
    CHECK(contexts->destroy(context) == CUDA_SUCCESS);
    CHECK_CUDA(cudaSetDevice(gpu->device));
    CHECK_CUDA(cudaDeviceSynchronize());
    gpu_verify(&call, 0, 1, &hash);
    gpu_release(&call);
    gpu_agree(gpu, hash);
}

/* Calls in a foreign context are right. Ranks are processes: in one process they may hang (docs/limits.md). */
static void foreign_context(gpu_t *gpu)
{
    const contexts_t contexts = find_contexts();
    calls_on(gpu, gpu->comm);
    for (int grouped = 0; grouped < 2; grouped++) {
        call_within(gpu, &contexts, gpu->stream, grouped != 0);
        call_within(gpu, &contexts, NULL, grouped != 0);
    }
    calls_on(gpu, gpu->comm);
}

/* ---- The process exits while other threads call and poll ------------------------------------ */

static gpu_t *left; /* its communicator lives at the exit */
static bool aborts; /* an exit handler aborts it */

static void *call_for_ever(void *unused)
{
    cudaStream_t stream;
    float *x;
    CHECK_CUDA(cudaSetDevice(left->device));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc((void **)&x, SHORT * sizeof(*x)));
    for (;;)
        if (ncclAllReduce(x, x, SHORT, ncclFloat32, ncclMax, left->comm, stream) != ncclSuccess)
            usleep(1000);
    return unused;
}

static void *poll_for_ever(void *unused)
{
    ncclResult_t result;
    for (;;)
        (void)ncclCommGetAsyncError(left->comm, &result);
    return unused;
}

/* Registered before the ranks begin, so it runs after the library's exit handlers. */
static void abort_at_exit(void)
{
    if (left && aborts)
        (void)ncclCommAbort(left->comm);
}

static void exit_beside_threads(gpu_t *gpu)
{
    pthread_t thread;
    calls_on(gpu, gpu->comm);
    left = gpu;
    CHECK(pthread_create(&thread, NULL, call_for_ever, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, poll_for_ever, NULL) == 0);
    usleep(200000); /* long enough for a full launch queue */
    gpu_count(gpu);
    ranks_barrier(gpu->ranks);
    exit(0);
}

static void exit_and_abort(gpu_t *gpu)
{
    aborts = true;
    exit_beside_threads(gpu);
}

/* ---- Children that exit ------------------------------------------------------------------------ */

/* Forked children that exit do not disturb the rank. No split follows, since the real NCCL then crashes in
 * ncclCommSplit even alone (2.28.9). */
static void children(gpu_t *gpu)
{
    for (int i = 0; i < 8; i++) {
        int status;
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        calls_on(gpu, gpu->comm);
    }
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"reset", reset, GPU_PROCESSES, 60},
                                       {"foreign-context", foreign_context, GPU_PROCESSES, 60},
                                       {"exit-threads", exit_beside_threads, GPU_PROCESSES, 30},
                                       {"exit-abort", exit_and_abort, GPU_PROCESSES, 30},
                                       {"children", children, GPU_PROCESSES, 60}};
    atexit(abort_at_exit);
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
