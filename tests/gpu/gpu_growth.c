/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator's memory grows when its calls need it: the first long call is in a group, in a capture on one rank
 * only, beside a kernel that waits for a peer, or while a kernel fills the GPU. And graphs that were captured before a
 * suspend are replayed after it (skipped if the real NCCL is older than 2.29.7). gpu_comms tests first long calls of
 * several communicators in crossed orders, of one thread and of non-blocking communicators.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "crowd.h"
#include "gpu.h"

enum { SHORT = 256, LONG = 2 << 20, ROUNDS = 20 };

static data_case_t case_of(const gpu_t *gpu, size_t count, uint64_t seed)
{
    return (data_case_t){ncclFloat32, REF_SUM, DATA_RANDOM, seed, count, gpu->nranks};
}

static void prepare(gpu_t *gpu, gpu_call_t *call, ncclComm_t comm, size_t count, uint64_t seed)
{
    const data_case_t c = case_of(gpu, count, seed);
    gpu_prepare(gpu, call, comm, gpu->rank, &c, (gpu_shape_t){0, 0, false});
    gpu_load(call);
}

static void finish(gpu_call_t *call, uint64_t *hash)
{
    gpu_verify(call, 0, 1, hash);
    gpu_release(call);
}

static void grouped(gpu_t *gpu)
{
    uint64_t hash = 0;
    gpu_call_t shorter, longer;
    prepare(gpu, &shorter, gpu->comm, SHORT, 1);
    prepare(gpu, &longer, gpu->comm, LONG, 2);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(gpu_issue(&shorter, gpu->stream));
    CHECK_NCCL(gpu_issue(&longer, gpu->stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    CHECK(longer.taken);
    finish(&longer, &hash);
    finish(&shorter, &hash);
    gpu_agree(gpu, hash);
}

static cudaGraphExec_t capture(gpu_call_t *calls, int count, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < count; i++)
        CHECK_NCCL(gpu_issue(&calls[i], stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* The first long call may be captured on rank 0 alone. */
static void captured(gpu_t *gpu)
{
    uint64_t hash = 0;
    gpu_call_t call;
    prepare(gpu, &call, gpu->comm, LONG, 3);
    CHECK_CUDA(cudaDeviceSynchronize());
    ranks_barrier(gpu->ranks);
    if (gpu->rank == 0) {
        cudaGraphExec_t exec = capture(&call, 1, gpu->stream);
        CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        CHECK_CUDA(cudaGraphExecDestroy(exec));
    } else {
        CHECK_NCCL(gpu_issue(&call, gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    }
    CHECK(call.taken);
    finish(&call, &hash);
    gpu_agree(gpu, hash);
}

/* The long call completes while rank 0's short call waits on the GPU for rank 1, which makes it only after the long
 * one. */
static void beside(gpu_t *gpu)
{
    uint64_t hash = 0;
    cudaStream_t other;
    gpu_call_t waiting, longer;
    ncclComm_t comm = ranks_init(gpu->ranks);
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    prepare(gpu, &waiting, gpu->comm, SHORT, 4);
    prepare(gpu, &longer, comm, LONG, 5);
    CHECK_CUDA(cudaDeviceSynchronize());
    ranks_barrier(gpu->ranks);
    if (gpu->rank == 0)
        CHECK_NCCL(gpu_issue(&waiting, other));
    CHECK_NCCL(gpu_issue(&longer, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    if (gpu->rank != 0)
        CHECK_NCCL(gpu_issue(&waiting, other));
    CHECK_CUDA(cudaStreamSynchronize(other));
    CHECK(longer.taken);
    finish(&longer, &hash);
    finish(&waiting, &hash);
    CHECK_CUDA(cudaStreamDestroy(other));
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
    gpu_agree(gpu, hash);
}

/* The host's part of a first long call ends while a kernel fills rank 0's GPU: memory is set without kernels. */
static void filled(gpu_t *gpu)
{
    uint64_t hash = 0;
    cudaStream_t other;
    gpu_call_t longer;
    int *go = NULL;
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaHostAlloc((void **)&go, sizeof *go, cudaHostAllocMapped));
    *go = 0;
    prepare(gpu, &longer, gpu->comm, LONG, 7);
    CHECK_CUDA(cudaDeviceSynchronize());
    ranks_barrier(gpu->ranks);
    if (gpu->rank == 0)
        CHECK_CUDA(crowd_fill(go, other));
    CHECK_NCCL(gpu_issue(&longer, gpu->stream));
    CHECK(longer.taken);
    __atomic_store_n(go, 1, __ATOMIC_RELEASE);
    CHECK_CUDA(cudaDeviceSynchronize());
    finish(&longer, &hash);
    CHECK_CUDA(cudaStreamDestroy(other));
    CHECK_CUDA(cudaFreeHost(go));
    gpu_agree(gpu, hash);
}

/* ---- Suspending ------------------------------------------------------------------------ */

typedef ncclResult_t (*suspend_t)(ncclComm_t comm, int flags);
typedef ncclResult_t (*resume_t)(ncclComm_t comm);

static size_t free_bytes(void)
{
    size_t now, total;
    CHECK_CUDA(cudaMemGetInfo(&now, &total));
    return now;
}

static void replay(gpu_t *gpu, cudaGraphExec_t exec, gpu_call_t *calls, uint64_t *hash)
{
    for (int i = 0; i < 2; i++)
        gpu_load(&calls[i]);
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    for (int i = 0; i < 2; i++)
        gpu_verify(&calls[i], 0, 1, hash);
    ranks_barrier(gpu->ranks);
}

static void suspended(gpu_t *gpu)
{
    const suspend_t suspend = (suspend_t)dlsym(RTLD_DEFAULT, "ncclCommSuspend");
    const resume_t resume = (resume_t)dlsym(RTLD_DEFAULT, "ncclCommResume");
    int version = 0;
    uint64_t hash = 0;
    gpu_call_t calls[2];
    CHECK_NCCL(ncclGetVersion(&version));
    prepare(gpu, &calls[0], gpu->comm, SHORT, 6);
    prepare(gpu, &calls[1], gpu->comm, LONG, 7);
    cudaGraphExec_t exec = capture(calls, 2, gpu->stream);
    replay(gpu, exec, calls, &hash);
    for (int round = 0; round < ROUNDS && version >= 22907 && suspend != NULL && resume != NULL; round++) {
        const size_t before = free_bytes();
        ranks_barrier(gpu->ranks);
        CHECK_NCCL(suspend(gpu->comm, 1));
        ranks_barrier(gpu->ranks);
        CHECK(!calls[1].taken || free_bytes() > before + ((size_t)30 << 20)); /* halves and the first piece */
        ranks_barrier(gpu->ranks);
        CHECK_NCCL(resume(gpu->comm));
        replay(gpu, exec, calls, &hash);
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    gpu_release(&calls[1]);
    gpu_release(&calls[0]);
    gpu_agree(gpu, hash);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"grouped", grouped, GPU_RANKS, 60},
                                       {"captured", captured, GPU_PROCESSES, 60},
                                       {"beside", beside, GPU_RANKS, 60},
                                       {"filled", filled, GPU_RANKS, 30},
                                       {"suspended", suspended, GPU_PROCESSES, 60}};
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
