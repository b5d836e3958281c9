/* SPDX-License-Identifier: Apache-2.0 */
/* Captured calls: every capture mode, replays mixed with eager calls, ordered and not, graphs that outlive the
 * communicator and graphs that precede eager calls. */
#include "gpu.h"

enum { CALLS = 6, REPLAYS = 120 };

typedef struct recorded {
    gpu_call_t calls[CALLS];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
} recorded_t;

/* Capture CALLS random calls. Barriers keep other threads' allocations out of a global capture. */
static void record_on(gpu_t *gpu, recorded_t *r, ncclComm_t comm, uint64_t *seed, uint64_t *own, bool in_place,
                      enum cudaStreamCaptureMode mode)
{
    for (int i = 0; i < CALLS; i++) {
        data_case_t c = gpu_random_case(seed, gpu->nranks, 20000);
        gpu_shape_t shape = gpu_random_shape(own, c.type);
        shape.in_place = shape.in_place && in_place;
        gpu_prepare(gpu, &r->calls[i], comm, gpu->rank, &c, shape);
    }
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, mode));
    for (int i = 0; i < CALLS; i++)
        CHECK_NCCL(gpu_issue(&r->calls[i], gpu->stream));
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &r->graph));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphInstantiate(&r->exec, r->graph, 0));
}

static void record(gpu_t *gpu, recorded_t *r, uint64_t *seed, uint64_t *own, enum cudaStreamCaptureMode mode)
{
    record_on(gpu, r, gpu->comm, seed, own, true, mode);
}

/* Launch the graph `times`, then check; if a rank may have reduced its own input in place, load fresh inputs and launch
 * once more. All ranks launch equally often. */
static void replay(gpu_t *gpu, recorded_t *r, int times, uint64_t *hash)
{
    for (int i = 0; i < times; i++)
        CHECK_CUDA(cudaGraphLaunch(r->exec, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    if (times > 1) {
        for (int i = 0; i < CALLS; i++)
            gpu_load(&r->calls[i]);
        CHECK_CUDA(cudaGraphLaunch(r->exec, gpu->stream));
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    }
    for (int i = 0; i < CALLS; i++)
        gpu_verify(&r->calls[i], gpu->rank, gpu->nranks, hash);
    for (int i = 0; i < CALLS; i++)
        gpu_load(&r->calls[i]);
}

static void forget(recorded_t *r)
{
    if (r->exec)
        CHECK_CUDA(cudaGraphExecDestroy(r->exec));
    CHECK_CUDA(cudaGraphDestroy(r->graph));
    for (int i = CALLS - 1; i >= 0; i--)
        gpu_release(&r->calls[i]);
}

static void modes(gpu_t *gpu)
{
    static const enum cudaStreamCaptureMode all[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                                     cudaStreamCaptureModeRelaxed};
    uint64_t seed = gpu->options->seed, own = seed + (uint64_t)gpu->rank, hash = 0;
    for (int m = 0; m < 3; m++) {
        recorded_t r = {0};
        record(gpu, &r, &seed, &own, all[m]);
        for (int i = 0; i < REPLAYS; i++) {
            data_case_t c = gpu_random_case(&seed, gpu->nranks, 20000);
            replay(gpu, &r, i % 4 == 3 ? 20 : 1, &hash);
            if (i % 3 == 0)
                gpu_run(gpu, &c, gpu_random_shape(&own, c.type), &hash);
        }
        gpu_agree(gpu, hash);
        forget(&r);
    }
}

/* Several graphs of one communicator replay right in any order, on streams that the program orders. */
static void several(gpu_t *gpu)
{
    enum { GRAPHS = 3 };
    recorded_t r[GRAPHS] = {0};
    uint64_t seed = gpu->options->seed + 1, own = seed + (uint64_t)gpu->rank, hash = 0;
    for (int g = 0; g < GRAPHS; g++)
        record(gpu, &r[g], &seed, &own, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < REPLAYS; i++)
        replay(gpu, &r[data_below(&seed, GRAPHS)], 1 + (int)data_below(&seed, 5), &hash);
    gpu_agree(gpu, hash);
    for (int g = GRAPHS - 1; g >= 0; g--)
        forget(&r[g]);
}

/* Two graphs and eager calls of one communicator, on streams that the program does not order, are ordered by the
 * communicator. If `other` is given, the graphs also have its calls. */
static void race(gpu_t *gpu, ncclComm_t other)
{
    enum { GRAPHS = 2, EAGER = 3, ROUNDS = 200, GATHERED = 64 };
    cudaStream_t streams[GRAPHS + 1];
    recorded_t r[2 * GRAPHS] = {0};
    const int graphs = other ? 2 * GRAPHS : GRAPHS;
    uint64_t seed = gpu->options->seed + 4, own = seed + (uint64_t)gpu->rank, hash = 0;
    size_t bytes = (size_t)gpu->nranks * GATHERED * sizeof(float);
    float *gathered, *whole = calloc(1, bytes);
    CHECK(whole != NULL);
    CHECK_CUDA(cudaMalloc((void **)&gathered, bytes));
    for (int i = 0; i < GATHERED; i++)
        whole[gpu->rank * GATHERED + i] = (float)(gpu->rank * 1000 + i);
    CHECK_CUDA(cudaMemcpy(gathered, whole, bytes, cudaMemcpyHostToDevice));
    for (int i = 0; i < GRAPHS + 1; i++)
        CHECK_CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    CHECK_NCCL(ncclAllGather(gathered + gpu->rank * GATHERED, gathered, GATHERED, ncclFloat32, gpu->comm, streams[0]));
    CHECK_CUDA(cudaStreamSynchronize(streams[0]));
    for (int g = 0; g < graphs; g++)
        record_on(gpu, &r[g], g < GRAPHS ? gpu->comm : other, &seed, &own, false, cudaStreamCaptureModeThreadLocal);
    for (int round = 0; round < ROUNDS; round++) {
        gpu_call_t calls[EAGER];
        for (int i = 0; i < EAGER; i++) {
            data_case_t c = gpu_random_case(&seed, gpu->nranks, 20000);
            gpu_prepare(gpu, &calls[i], gpu->comm, gpu->rank, &c, gpu_random_shape(&own, c.type));
        }
        for (int i = 0; i < EAGER; i++) {
            for (int g = i % GRAPHS; g < graphs; g += GRAPHS)
                CHECK_CUDA(cudaGraphLaunch(r[g].exec, streams[g % GRAPHS]));
            if (data_below(&own, 8) == 0)
                usleep((useconds_t)data_below(&own, 1000));
            if (i == 1)
                CHECK_NCCL(ncclAllGather(gathered + gpu->rank * GATHERED, gathered, GATHERED, ncclFloat32, gpu->comm,
                                         streams[GRAPHS]));
            CHECK_NCCL(gpu_issue(&calls[i], streams[GRAPHS]));
        }
        for (int i = 0; i < GRAPHS + 1; i++)
            CHECK_CUDA(cudaStreamSynchronize(streams[i]));
        for (int g = 0; g < graphs; g++)
            for (int i = 0; i < CALLS; i++) {
                gpu_verify(&r[g].calls[i], gpu->rank, gpu->nranks, &hash);
                gpu_load(&r[g].calls[i]);
            }
        for (int i = 0; i < EAGER; i++)
            gpu_verify(&calls[i], gpu->rank, gpu->nranks, &hash);
        for (int i = EAGER - 1; i >= 0; i--)
            gpu_release(&calls[i]);
    }
    gpu_agree(gpu, hash);
    CHECK_CUDA(cudaMemcpy(whole, gathered, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < gpu->nranks * GATHERED; i++)
        CHECK(whole[i] == (float)(i / GATHERED * 1000 + i % GATHERED));
    ranks_barrier(gpu->ranks);
    for (int g = graphs - 1; g >= 0; g--)
        forget(&r[g]);
    for (int i = 0; i < GRAPHS + 1; i++)
        CHECK_CUDA(cudaStreamDestroy(streams[i]));
    CHECK_CUDA(cudaFree(gathered));
    free(whole);
}

static void unordered(gpu_t *gpu)
{
    race(gpu, NULL);
}

static void unordered_two(gpu_t *gpu)
{
    ncclComm_t other = ranks_init(gpu->ranks);
    race(gpu, other);
    CHECK_NCCL(ncclCommDestroy(other));
    ranks_barrier(gpu->ranks);
}

/* A capture that forks to a second stream and joins again is right, with calls on both streams. */
static void forked(gpu_t *gpu)
{
    enum { SIDE = 3 };
    cudaStream_t other;
    cudaEvent_t fork, join;
    recorded_t r = {0};
    uint64_t seed = gpu->options->seed + 2, own = seed + (uint64_t)gpu->rank, hash = 0;
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    for (int i = 0; i < CALLS; i++) {
        data_case_t c = gpu_random_case(&seed, gpu->nranks, 5000);
        gpu_prepare(gpu, &r.calls[i], gpu->comm, gpu->rank, &c, gpu_random_shape(&own, c.type));
    }
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_CUDA(cudaEventRecord(fork, gpu->stream));
    CHECK_CUDA(cudaStreamWaitEvent(other, fork, 0));
    for (int i = 0; i < CALLS; i++)
        CHECK_NCCL(gpu_issue(&r.calls[i], i % 2 ? other : gpu->stream));
    CHECK_CUDA(cudaEventRecord(join, other));
    CHECK_CUDA(cudaStreamWaitEvent(gpu->stream, join, 0));
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &r.graph));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphInstantiate(&r.exec, r.graph, 0));
    for (int i = 0; i < REPLAYS / SIDE; i++)
        replay(gpu, &r, 1, &hash);
    gpu_agree(gpu, hash);
    forget(&r);
    CHECK_CUDA(cudaEventDestroy(fork));
    CHECK_CUDA(cudaEventDestroy(join));
    CHECK_CUDA(cudaStreamDestroy(other));
}

/* A captured group with a forwarded collective beside taken ones is right. */
static void grouped(gpu_t *gpu)
{
    recorded_t r = {0};
    uint64_t seed = gpu->options->seed + 3, own = seed + (uint64_t)gpu->rank, hash = 0;
    float *gathered, *whole = malloc((size_t)gpu->nranks * 64 * sizeof(float));
    CHECK(whole != NULL);
    CHECK_CUDA(cudaMalloc((void **)&gathered, (size_t)gpu->nranks * 64 * sizeof(float)));
    for (int i = 0; i < 64; i++)
        whole[gpu->rank * 64 + i] = (float)(gpu->rank * 1000 + i);
    CHECK_CUDA(cudaMemcpy(gathered, whole, (size_t)gpu->nranks * 64 * sizeof(float), cudaMemcpyHostToDevice));
    for (int i = 0; i < CALLS; i++) {
        data_case_t c = gpu_random_case(&seed, gpu->nranks, 5000);
        gpu_prepare(gpu, &r.calls[i], gpu->comm, gpu->rank, &c, gpu_random_shape(&own, c.type));
    }
    /* The real NCCL connects its ranks at the first call, and between threads not inside a capture. */
    CHECK_NCCL(ncclAllGather(gathered + gpu->rank * 64, gathered, 64, ncclFloat32, gpu->comm, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < CALLS; i++)
        CHECK_NCCL(gpu_issue(&r.calls[i], gpu->stream));
    CHECK_NCCL(ncclAllGather(gathered + gpu->rank * 64, gathered, 64, ncclFloat32, gpu->comm, gpu->stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &r.graph));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphInstantiate(&r.exec, r.graph, 0));
    for (int i = 0; i < CALLS; i++)
        r.calls[i].taken = false; /* a grouped call's route is not known to this test: the looser check */
    for (int i = 0; i < 20; i++)
        replay(gpu, &r, 1, &hash);
    CHECK_CUDA(cudaMemcpy(whole, gathered, (size_t)gpu->nranks * 64 * sizeof(float), cudaMemcpyDeviceToHost));
    for (int k = 0; k < gpu->nranks * 64; k++)
        CHECK(whole[k] == (float)(k / 64 * 1000 + k % 64));
    ranks_barrier(gpu->ranks);
    forget(&r);
    CHECK_CUDA(cudaFree(gathered));
    free(whole);
}

/* Order is kept in a graph that allocates memory, as cuBLAS does: CUDA cannot remove edges of such a graph. */
static void allocating(gpu_t *gpu)
{
    recorded_t r = {0};
    uint64_t seed = gpu->options->seed + 5, own = seed + (uint64_t)gpu->rank, hash = 0;
    for (int i = 0; i < CALLS; i++) {
        data_case_t c = gpu_random_case(&seed, gpu->nranks, 5000);
        gpu_prepare(gpu, &r.calls[i], gpu->comm, gpu->rank, &c, gpu_random_shape(&own, c.type));
    }
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++) {
        void *memory;
        CHECK_CUDA(cudaMallocAsync(&memory, 1 << 20, gpu->stream));
        CHECK_NCCL(gpu_issue(&r.calls[i], gpu->stream));
        CHECK_CUDA(cudaFreeAsync(memory, gpu->stream));
    }
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &r.graph));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphInstantiate(&r.exec, r.graph, 0));
    for (int i = 0; i < REPLAYS / 4; i++) {
        data_case_t c = gpu_random_case(&seed, gpu->nranks, 5000);
        replay(gpu, &r, 1, &hash);
        gpu_run(gpu, &c, gpu_random_shape(&own, c.type), &hash);
    }
    gpu_agree(gpu, hash);
    forget(&r);
}

/* A graph still replays after its communicator was destroyed. The real NCCL waits for its own graphs in
 * ncclCommDestroy, so this runs only if all captured calls are Shunt's. */
static void outlives(gpu_t *gpu)
{
    recorded_t r = {0};
    uint64_t hash = 0;
    bool all_taken = true;
    for (int i = 0; i < CALLS; i++) {
        data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, (uint64_t)i, 100 + 500 * (size_t)i, gpu->nranks};
        gpu_shape_t shape = {0, 0, false};
        gpu_prepare(gpu, &r.calls[i], gpu->comm, gpu->rank, &c, shape);
    }
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++) {
        CHECK_NCCL(gpu_issue(&r.calls[i], gpu->stream));
        all_taken = all_taken && r.calls[i].taken;
    }
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &r.graph));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphInstantiate(&r.exec, r.graph, 0));
    replay(gpu, &r, 1, &hash);
    if (all_taken) {
        CHECK_NCCL(ncclCommDestroy(gpu->comm));
        gpu->comm = NULL;
        ranks_barrier(gpu->ranks);
        for (int i = 0; i < 50; i++)
            replay(gpu, &r, 1 + i % 10, &hash);
        gpu_agree(gpu, hash);
    } else if (gpu->rank == 0) {
        printf("note: the table forwards captured calls here; no communicator was destroyed before its graph\n");
    }
    forget(&r);
    if (!gpu->comm)
        gpu->comm = ranks_init(gpu->ranks); /* frees the remains */
}

/* Calls are right after captures whose graphs were destroyed without being instantiated. */
static void abandoned(gpu_t *gpu)
{
    uint64_t hash = 0;
    data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 5, 900, gpu->nranks};
    gpu_shape_t shape = {0, 0, false};
    for (int i = 0; i < 30; i++) {
        gpu_call_t call;
        cudaGraph_t graph = NULL;
        gpu_prepare(gpu, &call, gpu->comm, gpu->rank, &c, shape);
        ranks_barrier(gpu->ranks);
        CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
        CHECK_NCCL(gpu_issue(&call, gpu->stream));
        CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
        ranks_barrier(gpu->ranks);
        CHECK_CUDA(cudaGraphDestroy(graph));
        gpu_release(&call);
        gpu_run(gpu, &c, shape, &hash);
    }
    gpu_agree(gpu, hash);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"modes", modes, GPU_RANKS, 120},          {"several", several, GPU_RANKS, 90},
        {"forked", forked, GPU_RANKS, 60},         {"grouped", grouped, GPU_RANKS, 60},
        {"outlives", outlives, GPU_RANKS, 60},     {"abandoned", abandoned, GPU_RANKS, 60},
        {"unordered", unordered, GPU_RANKS, 90},   {"unordered-two", unordered_two, GPU_RANKS, 120},
        {"allocating", allocating, GPU_RANKS, 60},
    };
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
