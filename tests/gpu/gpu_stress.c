/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random work for -t seconds: calls of all sorts, eager and captured, alone and in
 * groups, on several streams and sixteen communicators, with stalls, and beside matrix
 * products. The seed, the same on all ranks, decides what is done; the rank decides where
 * and when.
 */
#include "gpu.h"
#include "tools/bench/load.h"

enum { STREAMS = 2, COMMS = 16, BATCH = 10, GRAPH_CALLS = 4, WORD_GO_ON = REF_MAX_RANKS };

typedef struct stress {
    gpu_t *gpu;
    cudaStream_t streams[STREAMS];
    ncclComm_t comms[COMMS];
    uint64_t shared, own, hash;
    uint32_t *passed; /* device memory for a send and a receive */
    tool_load_t *load;
} stress_t;

static void draw(stress_t *s, gpu_call_t *call, size_t largest)
{
    data_case_t c = gpu_random_case(&s->shared, s->gpu->nranks, largest);
    ncclComm_t comm = s->comms[data_below(&s->shared, COMMS)];
    gpu_prepare(s->gpu, call, comm, s->gpu->rank, &c, gpu_random_shape(&s->own, c.type));
}

static void stall(stress_t *s)
{
    if (data_below(&s->own, 12) == 0)
        usleep((useconds_t)data_below(&s->own, 4000));
}

static void finish(stress_t *s, gpu_call_t *calls, int count)
{
    for (int i = 0; i < STREAMS; i++)
        CHECK_CUDA(cudaStreamSynchronize(s->streams[i]));
    for (int i = 0; i < count; i++)
        gpu_verify(&calls[i], s->gpu->rank, s->gpu->nranks, &s->hash);
    for (int i = count - 1; i >= 0; i--)
        gpu_release(&calls[i]);
}

/* Now and then one that bulk copies serve. */
static size_t large_count(stress_t *s)
{
    return 1 + data_below(&s->shared, data_below(&s->shared, 4) ? 3000000 : 12000000);
}

/* A call of a size for two-shot, staged or bulk, between short ones. */
static void large(stress_t *s)
{
    static const ncclDataType_t types[] = {ncclBfloat16, ncclFloat32, ncclInt32, ncclFloat64};
    gpu_call_t call;
    data_case_t c = gpu_random_case(&s->shared, s->gpu->nranks, 300);
    c.type = types[data_below(&s->shared, sizeof(types) / sizeof(types[0]))];
    c.count = large_count(s);
    gpu_prepare(s->gpu, &call, s->comms[data_below(&s->shared, COMMS)], s->gpu->rank, &c,
                gpu_random_shape(&s->own, c.type));
    stall(s);
    CHECK_NCCL(gpu_issue(&call, s->streams[0]));
    finish(s, &call, 1);
}

/* Calls of several communicators outside a group, on one stream, so that both sides order them alike. */
static void eager(stress_t *s)
{
    gpu_call_t calls[BATCH];
    int count = 1 + (int)data_below(&s->shared, BATCH);
    for (int i = 0; i < count; i++)
        draw(s, &calls[i], 100000);
    for (int i = 0; i < count; i++) {
        stall(s);
        CHECK_NCCL(gpu_issue(&calls[i], s->streams[0]));
    }
    finish(s, calls, count);
}

/* A call of each communicator, in one order on all ranks, on streams that nothing orders. */
static void crowd(stress_t *s)
{
    gpu_call_t calls[COMMS];
    const int first = (int)data_below(&s->shared, COMMS);
    for (int i = 0; i < COMMS; i++) {
        data_case_t c = gpu_random_case(&s->shared, s->gpu->nranks, 300000);
        gpu_prepare(s->gpu, &calls[i], s->comms[(first + i) % COMMS], s->gpu->rank, &c,
                    gpu_random_shape(&s->own, c.type));
    }
    for (int i = 0; i < COMMS; i++) {
        stall(s);
        CHECK_NCCL(gpu_issue(&calls[i], s->streams[i % STREAMS]));
    }
    finish(s, calls, COMMS);
}

/* Calls of one communicator on alternating streams. */
static void spread(stress_t *s)
{
    gpu_call_t calls[BATCH];
    ncclComm_t comm = s->comms[data_below(&s->shared, COMMS)];
    for (int i = 0; i < BATCH; i++) {
        data_case_t c = gpu_random_case(&s->shared, s->gpu->nranks, 50000);
        gpu_prepare(s->gpu, &calls[i], comm, s->gpu->rank, &c, gpu_random_shape(&s->own, c.type));
    }
    for (int i = 0; i < BATCH; i++) {
        stall(s);
        CHECK_NCCL(gpu_issue(&calls[i], s->streams[data_below(&s->shared, STREAMS)]));
    }
    finish(s, calls, BATCH);
}

static void group(stress_t *s)
{
    gpu_call_t calls[BATCH];
    for (int i = 0; i < BATCH; i++)
        draw(s, &calls[i], 50000);
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < BATCH; i++)
        CHECK_NCCL(gpu_issue(&calls[i], s->streams[i % STREAMS]));
    stall(s);
    CHECK_NCCL(ncclGroupEnd());
    for (int i = 0; i < BATCH; i++)
        calls[i].taken = false; /* the route of a grouped call is not known here */
    finish(s, calls, BATCH);
}

static void graph(stress_t *s)
{
    gpu_call_t calls[GRAPH_CALLS], between;
    cudaStream_t stream = s->streams[0];
    cudaGraph_t captured;
    cudaGraphExec_t exec;
    int rounds = 1 + (int)data_below(&s->shared, 6);
    for (int i = 0; i < GRAPH_CALLS; i++)
        draw(s, &calls[i], 20000);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < GRAPH_CALLS; i++)
        CHECK_NCCL(gpu_issue(&calls[i], stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &captured));
    CHECK_CUDA(cudaGraphInstantiate(&exec, captured, 0));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < GRAPH_CALLS; i++)
            gpu_load(&calls[i]);
        draw(s, &between, 5000);
        stall(s);
        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_NCCL(gpu_issue(&between, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < GRAPH_CALLS; i++)
            gpu_verify(&calls[i], s->gpu->rank, s->gpu->nranks, &s->hash);
        finish(s, &between, 1);
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(captured));
    for (int i = GRAPH_CALLS - 1; i >= 0; i--)
        gpu_release(&calls[i]);
}

/* Graphs and eager calls of one communicator on unordered streams. */
static void unordered(stress_t *s)
{
    gpu_call_t calls[STREAMS][GRAPH_CALLS], between[STREAMS];
    cudaGraph_t captured[STREAMS];
    cudaGraphExec_t execs[STREAMS];
    ncclComm_t comm = s->comms[data_below(&s->shared, COMMS)];
    int rounds = 1 + (int)data_below(&s->shared, 6);
    for (int g = 0; g < STREAMS; g++) {
        for (int i = 0; i < GRAPH_CALLS; i++) {
            data_case_t c = gpu_random_case(&s->shared, s->gpu->nranks, 20000);
            gpu_prepare(s->gpu, &calls[g][i], comm, s->gpu->rank, &c, gpu_random_shape(&s->own, c.type));
        }
        CHECK_CUDA(cudaStreamBeginCapture(s->streams[g], cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < GRAPH_CALLS; i++)
            CHECK_NCCL(gpu_issue(&calls[g][i], s->streams[g]));
        CHECK_CUDA(cudaStreamEndCapture(s->streams[g], &captured[g]));
        CHECK_CUDA(cudaGraphInstantiate(&execs[g], captured[g], 0));
    }
    for (int round = 0; round < rounds; round++) {
        for (int g = 0; g < STREAMS; g++) {
            data_case_t c = gpu_random_case(&s->shared, s->gpu->nranks, 5000);
            for (int i = 0; i < GRAPH_CALLS; i++)
                gpu_load(&calls[g][i]);
            gpu_prepare(s->gpu, &between[g], comm, s->gpu->rank, &c, gpu_random_shape(&s->own, c.type));
        }
        for (int g = 0; g < STREAMS; g++) {
            CHECK_CUDA(cudaGraphLaunch(execs[g], s->streams[g]));
            stall(s);
            CHECK_NCCL(gpu_issue(&between[g], s->streams[data_below(&s->shared, STREAMS)]));
        }
        for (int i = 0; i < STREAMS; i++)
            CHECK_CUDA(cudaStreamSynchronize(s->streams[i]));
        for (int g = 0; g < STREAMS; g++)
            for (int i = 0; i < GRAPH_CALLS; i++)
                gpu_verify(&calls[g][i], s->gpu->rank, s->gpu->nranks, &s->hash);
        finish(s, between, STREAMS);
    }
    for (int g = STREAMS - 1; g >= 0; g--) {
        CHECK_CUDA(cudaGraphExecDestroy(execs[g]));
        CHECK_CUDA(cudaGraphDestroy(captured[g]));
        for (int i = GRAPH_CALLS - 1; i >= 0; i--)
            gpu_release(&calls[g][i]);
    }
}

static void pass_on(stress_t *s, ncclComm_t comm, cudaStream_t stream)
{
    const int rank = s->gpu->rank, nranks = s->gpu->nranks;
    CHECK_NCCL(ncclSend(s->passed, 1, ncclUint32, (rank + 1) % nranks, comm, stream));
    CHECK_NCCL(ncclRecv(s->passed + 1, 1, ncclUint32, (rank + nranks - 1) % nranks, comm, stream));
}

/* All-reduces beside sends and receives: a group on some ranks, one after another on the rest. */
static void apart(stress_t *s)
{
    const int rank = s->gpu->rank, nranks = s->gpu->nranks;
    const bool whole = (data_below(&s->shared, 2) + (uint64_t)rank) % 2;
    uint32_t data[2] = {(uint32_t)rank, ~0u};
    gpu_call_t calls[BATCH];
    cudaStream_t stream = s->streams[0];
    ncclComm_t comm = s->comms[data_below(&s->shared, COMMS)];
    for (int i = 0; i < BATCH; i++) {
        data_case_t c = gpu_random_case(&s->shared, nranks, 20000);
        gpu_prepare(s->gpu, &calls[i], comm, rank, &c, gpu_random_shape(&s->own, c.type));
    }
    gpu_policy(comm, data_below(&s->shared, 2) ? "" : "sendrecv:nccl");
    CHECK_NCCL(ncclGroupStart()); /* the real NCCL connects its ranks */
    pass_on(s, comm, stream);
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaMemcpyAsync(s->passed, data, sizeof(data), cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    if (whole)
        CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < BATCH; i++)
        CHECK_NCCL(gpu_issue(&calls[i], stream));
    stall(s);
    if (!whole)
        CHECK_NCCL(ncclGroupStart());
    pass_on(s, comm, stream);
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaMemcpyAsync(data, s->passed, sizeof(data), cudaMemcpyDeviceToHost, stream));
    for (int i = 0; i < BATCH; i++)
        calls[i].taken = false; /* the route of a grouped call is not known here */
    finish(s, calls, BATCH);
    CHECK(data[1] == (uint32_t)((rank + nranks - 1) % nranks));
}

static void renew(stress_t *s)
{
    ncclComm_t *comm = &s->comms[1 + data_below(&s->shared, COMMS - 1)];
    CHECK_NCCL(ncclCommDestroy(*comm));
    *comm = ranks_init(s->gpu->ranks);
}

/* Whether there is time for another round: rank 0 decides for all. */
static bool go_on(stress_t *s, double end)
{
    _Atomic uint64_t *word = &s->gpu->ranks->shared->words[WORD_GO_ON];
    if (s->gpu->rank == 0)
        atomic_store(word, ranks_seconds() < end);
    gpu_agree(s->gpu, s->hash);
    return atomic_load(word);
}

static void stress(gpu_t *gpu)
{
    static void (*const steps[])(stress_t *) = {eager, eager, spread, group, graph, unordered, apart, crowd};
    stress_t s = {.gpu = gpu, .shared = gpu->options->seed, .own = gpu->options->seed * 31 + (uint64_t)gpu->rank};
    double end = ranks_seconds() + gpu->options->seconds;
    uint64_t rounds = 0;
    s.comms[0] = gpu->comm;
    for (int i = 1; i < COMMS; i++)
        s.comms[i] = ranks_init(gpu->ranks);
    for (int i = 0; i < STREAMS; i++)
        CHECK_CUDA(cudaStreamCreateWithFlags(&s.streams[i], cudaStreamNonBlocking));
    CHECK_CUDA(cudaMalloc((void **)&s.passed, 2 * sizeof(*s.passed)));
    char error[TOOL_LOAD_ERROR_BYTES];
    const char *nccl = getenv("SHUNT_NCCL_PATH");
    s.load = tool_load_open(nccl ? nccl : "", error);
    if (s.load == NULL)
        fprintf(stderr, "no matrix products to run beside: %s\n", error);
    CHECK(s.load != NULL);
    while (go_on(&s, end)) {
        const bool beside = data_below(&s.own, 2) != 0; /* on some ranks */
        if (beside)
            CHECK(tool_load_start(s.load, s.streams[0]) == 0);
        large(&s);
        for (int i = 0; i < 20; i++)
            steps[data_below(&s.shared, sizeof(steps) / sizeof(steps[0]))](&s);
        if (beside)
            CHECK(tool_load_join(s.load, s.streams[0]) == 0);
        if (++rounds % 10 == 0)
            renew(&s);
    }
    if (gpu->rank == 0)
        printf("%llu rounds of 21 steps\n", (unsigned long long)rounds);
    CHECK_CUDA(cudaDeviceSynchronize());
    tool_load_close(s.load);
    for (int i = 1; i < COMMS; i++)
        CHECK_NCCL(ncclCommDestroy(s.comms[i]));
    CHECK_CUDA(cudaFree(s.passed));
    for (int i = 0; i < STREAMS; i++)
        CHECK_CUDA(cudaStreamDestroy(s.streams[i]));
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"stress", stress, GPU_RANKS, 90}};
    return gpu_main(argc, argv, cases, 1);
}
