/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of experts on GPUs, through the table that libnccl_ep.so.0 uses: whole and staged calls, captured ones,
 * collectives beside them, an abort, and many groups, whose creation is measured.
 */
#include "../experts/experts.h"
#include "gpu.h"

#include <pthread.h>

/* SLACK: two groups of 29.4 MB, the one destroyed last and one that the peer still mapped (shim/experts/agree.c). */
enum { REPLAYS = 20, GROUPS = 200, SLACK = 64 << 20 };

static void *make(size_t bytes)
{
    void *memory = NULL;
    CHECK_CUDA(cudaMallocManaged(&memory, bytes + 1, cudaMemAttachGlobal));
    return memory;
}

static void drop(void *memory)
{
    CHECK_CUDA(cudaFree(memory));
}

static void wait(void)
{
    CHECK_CUDA(cudaStreamSynchronize(experts_stream));
}

/* Also a collective: a program fails in which Shunt takes none. */
static void settle(gpu_t *gpu)
{
    const data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, 1, 4000, gpu->nranks};
    uint64_t hash = 0;
    experts_place = (experts_place_t){NULL, make, drop, wait};
    experts_stream = gpu->stream;
    gpu_run(gpu, &c, (gpu_shape_t){0, 0, false}, &hash);
}

static shim_experts_group_t *begin(gpu_t *gpu)
{
    settle(gpu);
    return experts_group(gpu->comm, gpu->nranks);
}

static void end(experts_round_t *r)
{
    CHECK_NCCL(experts_service()->handle_destroy(r->handle));
    experts_round_free(r);
}

static void values(gpu_t *gpu)
{
    shim_experts_group_t *group = begin(gpu);
    for (uint64_t i = 0; i < 20; i++)
        experts_run(group, gpu->rank, gpu->nranks, i % 2, gpu->options->seed + i);
    CHECK_NCCL(experts_service()->destroy(group));
}

static void staged(gpu_t *gpu)
{
    shim_experts_group_t *group = begin(gpu);
    for (uint64_t seed = gpu->options->seed; seed < gpu->options->seed + 10; seed++) {
        experts_round_t *one = experts_round(group, NULL, gpu->rank, gpu->nranks, false, seed);
        experts_round_t *other = experts_round(group, NULL, gpu->rank, gpu->nranks, true, seed + 10);
        one->config.send_only = one->combine.send_only = 1;
        other->config.send_only = other->combine.send_only = 1;
        CHECK_NCCL(experts_dispatch(one));
        experts_run(group, gpu->rank, gpu->nranks, true, seed + 20);
        CHECK_NCCL(experts_dispatch(other));
        CHECK_NCCL(experts_complete(other));
        experts_check_dispatch(other);
        CHECK_NCCL(experts_complete(one));
        experts_check_dispatch(one);
        CHECK_NCCL(experts_combine(other));
        CHECK_NCCL(experts_combine(one));
        CHECK_NCCL(experts_complete(one));
        CHECK_NCCL(experts_complete(other));
        experts_check_combine(one);
        experts_check_combine(other);
        end(one);
        end(other);
    }
    CHECK_NCCL(experts_service()->destroy(group));
}

static void clear(experts_round_t *r)
{
    for (size_t i = 0; i < r->out.sizes[0] * r->out.sizes[1] * EXPERTS_HIDDEN; i++)
        ((float *)r->out.t.data)[i] = -1;
    for (size_t i = 0; i < r->combined.sizes[0] * EXPERTS_HIDDEN; i++)
        ((float *)r->combined.t.data)[i] = -1;
}

/* A handle is made during the capture, too; its memory is the caller's or is not freed before the graph. */
static void captured(gpu_t *gpu)
{
    shim_experts_group_t *group = begin(gpu);
    experts_round_t *r = experts_round(group, NULL, gpu->rank, gpu->nranks, false, 4);
    shim_experts_handle_t *inside = NULL;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    experts_place.wait = NULL;
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeGlobal));
    CHECK_NCCL(experts_dispatch(r));
    CHECK_NCCL(experts_combine(r));
    CHECK_NCCL(experts_service()->handle_create(group, NCCL_EP_LAYOUT_RANK_MAJOR, 1, NULL, &inside));
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    experts_place.wait = wait;
    for (int i = 0; i < REPLAYS; i++) {
        clear(r);
        CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
        wait();
        experts_check_dispatch(r);
        experts_check_combine(r);
        if (i % 5 == 0) /* eager calls between replays */
            experts_run(group, gpu->rank, gpu->nranks, true, (uint64_t)i);
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_NCCL(experts_service()->handle_destroy(inside));
    end(r);
    CHECK_NCCL(experts_service()->destroy(group));
}

/* Collectives of the communicator on another stream. */
static void beside(gpu_t *gpu)
{
    shim_experts_group_t *group = begin(gpu);
    cudaStream_t other;
    float *data = make(1 << 20);
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    for (uint64_t round = 0; round < 20; round++) {
        for (int i = 0; i < 1 << 18; i++)
            data[i] = (float)gpu->rank;
        for (int i = 0; i < 10; i++)
            CHECK_NCCL(ncclAllReduce(data, data, 1 << 18, ncclFloat32, ncclMax, gpu->comm, other));
        experts_run(group, gpu->rank, gpu->nranks, round % 2, gpu->options->seed + round);
        CHECK_CUDA(cudaStreamSynchronize(other));
        CHECK(data[round] == (float)(gpu->nranks - 1));
    }
    CHECK_CUDA(cudaStreamDestroy(other));
    drop(data);
    CHECK_NCCL(experts_service()->destroy(group));
}

/* One rank calls alone; its kernel leaves when the communicator is aborted. */
static void abort_alone(gpu_t *gpu)
{
    shim_experts_group_t *group = begin(gpu);
    experts_run(group, gpu->rank, gpu->nranks, false, 4);
    ranks_barrier(gpu->ranks);
    if (gpu->rank == 0) {
        experts_round_t *r = experts_round(group, NULL, gpu->rank, gpu->nranks, false, 4);
        experts_place.wait = NULL;
        CHECK_NCCL(experts_dispatch(r));
        usleep(100000);
        CHECK(cudaStreamQuery(gpu->stream) == cudaErrorNotReady);
        CHECK_NCCL(ncclCommAbort(gpu->comm));
        wait();
        CHECK_FAILS(experts_dispatch(r));
        end(r);
        ranks_barrier(gpu->ranks);
    } else {
        ranks_barrier(gpu->ranks);
        CHECK_NCCL(ncclCommAbort(gpu->comm));
    }
    gpu->comm = NULL;
    CHECK_NCCL(experts_service()->destroy(group));
}

/* One rank calls alone, and its kernel leaves at the group's own limit. The others' calls fail too. */
static void alone(gpu_t *gpu)
{
    ncclEpGroupConfig_t config = experts_config(gpu->nranks);
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    settle(gpu);
    config.timeout_ns = 300000000;
    CHECK_NCCL(experts_service()->create(gpu->comm, &config, &group, &why));
    CHECK(group != NULL);
    experts_round_t *r = experts_round(group, NULL, gpu->rank, gpu->nranks, false, 4);
    if (gpu->rank == 0) {
        CHECK_NCCL(experts_dispatch(r));
        CHECK_RESULT(experts_dispatch(r), ncclRemoteError);
    }
    ranks_barrier(gpu->ranks);
    if (gpu->rank != 0) { /* rank 0 has sent its tokens, so the dispatch may still end well */
        ncclResult_t result = experts_dispatch(r);
        if (result == ncclSuccess)
            result = experts_combine(r);
        CHECK_RESULT(result == ncclSuccess ? experts_dispatch(r) : result, ncclRemoteError);
    }
    end(r);
    CHECK_NCCL(experts_service()->destroy(group));
    ranks_barrier(gpu->ranks);
    group = experts_group(gpu->comm, gpu->nranks); /* the communicator goes on */
    experts_run(group, gpu->rank, gpu->nranks, true, 4);
    CHECK_NCCL(experts_service()->destroy(group));
}

/* A group as a program of 128 tokens and 7168 elements makes it. */
static double create(gpu_t *gpu, shim_experts_group_t **group)
{
    ncclEpGroupConfig_t config = experts_config(gpu->nranks);
    const char *why = NULL;
    config.num_experts = (unsigned)(64 / gpu->nranks * gpu->nranks);
    config.max_dispatch_tokens_per_rank = 128;
    config.max_token_bytes = 2 * 7168;
    config.num_topk = 8;
    ranks_barrier(gpu->ranks);
    const double start = ranks_seconds();
    CHECK_NCCL(experts_service()->create(gpu->comm, &config, group, &why));
    const double end = ranks_seconds();
    if (*group == NULL)
        check_failed(__FILE__, __LINE__, "the group is served, but: ", why);
    return end - start;
}

static void groups(gpu_t *gpu)
{
    double seconds[GROUPS];
    size_t settled = 0, with = 0, now = 0;
    settle(gpu);
    const size_t before = gpu_free_memory(gpu);
    for (int i = 0; i < GROUPS; i++) {
        shim_experts_group_t *group = NULL;
        seconds[i] = create(gpu, &group);
        if (i == 0)
            with = gpu_free_memory(gpu);
        CHECK_NCCL(experts_service()->destroy(group));
        if (i == 10)
            settled = gpu_free_memory(gpu);
    }
    now = gpu_free_memory(gpu);
    if (gpu->rank == 0)
        printf("group 1: %.1f ms, %.1f MB of the GPU; median of %d more: %.1f ms; taken since the eleventh: %.1f MB\n",
               seconds[0] * 1e3, ((double)before - (double)with) / 1e6, GROUPS - 1,
               gpu_median(seconds + 1, GROUPS - 1) * 1e3, ((double)settled - (double)now) / 1e6);
    CHECK(now + SLACK >= settled);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"values", values, GPU_PROCESSES | GPU_THREADS, 60},
                                       {"staged", staged, GPU_PROCESSES | GPU_THREADS, 60},
                                       {"captured", captured, GPU_PROCESSES, 60},
                                       {"beside", beside, GPU_PROCESSES, 60},
                                       {"abort", abort_alone, GPU_PROCESSES, 60},
                                       {"alone", alone, GPU_PROCESSES, 60},
                                       {"groups", groups, GPU_PROCESSES, 120}};
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
