/* SPDX-License-Identifier: Apache-2.0 */
/* Abort frees kernels that wait for a rank that never comes; stalled ranks are waited for, and cost no more than their
 * delay. How busy the host is changes nothing: of several aborts the fastest counts, and the GPU times delays. */
#include "gpu.h"

/* Shared words below REF_MAX_RANKS belong to gpu_agree. */
enum { WORD_WAITING = REF_MAX_RANKS, WORD_FREED, WORD_LAUNCHED };

static void use(gpu_t *gpu, ncclComm_t comm, int times)
{
    gpu_shape_t shape = {0, 0, false};
    uint64_t hash = 0;
    for (int i = 0; i < times; i++) {
        data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, (uint64_t)i, 10 + 900 * (size_t)i, gpu->nranks};
        gpu_run_on(gpu, comm, gpu->rank, &c, shape, &hash);
    }
    gpu_agree(gpu, hash);
}

static void note_time(void *seconds)
{
    *(double *)seconds = ranks_seconds();
}

/* Seconds from the abort to the end of the kernels that wait in the stream. The real NCCL's own part takes up to a
 * second. */
static double abort_and_recover(gpu_t *gpu, ncclComm_t comm)
{
    double start, freed = 0;
    CHECK_CUDA(cudaLaunchHostFunc(gpu->stream, note_time, &freed));
    start = ranks_seconds();
    CHECK_NCCL(ncclCommAbort(comm));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    CHECK(freed >= start);
    printf("rank %d: abort freed the stream in %.1f ms\n", gpu->rank, 1e3 * (freed - start));
    return freed - start;
}

/* At least one of several aborts frees the stream at once; on a busy host the callback of some is late. */
static void abort_at_once(gpu_t *gpu, double (*abort_once)(gpu_t *))
{
    enum { TRIES = 4 };
    double fastest = 1;
    for (int i = 0; i < TRIES; i++) {
        const double freed = abort_once(gpu);
        fastest = freed < fastest ? freed : fastest;
        if (gpu->rank == 0) {
            atomic_store(&gpu->ranks->shared->words[WORD_WAITING], 0);
            atomic_store(&gpu->ranks->shared->words[WORD_FREED], 0);
        }
        ranks_barrier(gpu->ranks);
    }
    CHECK(gpu->rank == 0 || fastest < 0.1);
}

static void wait_all_in(gpu_t *gpu)
{
    atomic_fetch_add(&gpu->ranks->shared->words[WORD_WAITING], 1);
    ranks_wait(gpu->ranks, WORD_WAITING, (uint64_t)gpu->nranks - 1);
    usleep(300000); /* long enough for the kernels to spin */
}

/* Rank 0 never makes the call. */
static double abort_eager_once(gpu_t *gpu)
{
    double freed = 0;
    ncclComm_t comm = ranks_init(gpu->ranks);
    float *x = (float *)gpu->pool;
    use(gpu, comm, 3);
    if (gpu->rank != 0) {
        for (int i = 0; i < 3; i++)
            CHECK_NCCL(ncclAllReduce(x, x + 4096, 1000, ncclFloat32, ncclSum, comm, gpu->stream));
        CHECK(cudaStreamQuery(gpu->stream) == cudaErrorNotReady);
        wait_all_in(gpu);
        freed = abort_and_recover(gpu, comm);
        atomic_fetch_add(&gpu->ranks->shared->words[WORD_FREED], 1);
    } else {
        ranks_wait(gpu->ranks, WORD_FREED, (uint64_t)gpu->nranks - 1);
        CHECK_NCCL(ncclCommAbort(comm));
    }
    ranks_barrier(gpu->ranks);
    comm = ranks_init(gpu->ranks);
    use(gpu, comm, 5);
    CHECK_NCCL(ncclCommDestroy(comm));
    return freed;
}

static void abort_eager(gpu_t *gpu)
{
    abort_at_once(gpu, abort_eager_once);
}

/* The same with a captured graph that waits. */
static double abort_graph_once(gpu_t *gpu)
{
    double freed = 0;
    ncclComm_t comm = ranks_init(gpu->ranks);
    float *x = (float *)gpu->pool;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    use(gpu, comm, 3);
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 3; i++)
        CHECK_NCCL(ncclAllReduce(x, x + 4096, 1000, ncclFloat32, ncclSum, comm, gpu->stream));
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    if (gpu->rank != 0) {
        CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
        wait_all_in(gpu);
        freed = abort_and_recover(gpu, comm);
        atomic_fetch_add(&gpu->ranks->shared->words[WORD_FREED], 1);
    } else {
        ranks_wait(gpu->ranks, WORD_FREED, (uint64_t)gpu->nranks - 1);
        CHECK_NCCL(ncclCommAbort(comm));
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
    CHECK_CUDA(cudaGraphDestroy(graph));
    ranks_barrier(gpu->ranks);
    comm = ranks_init(gpu->ranks);
    use(gpu, comm, 5);
    CHECK_NCCL(ncclCommDestroy(comm));
    return freed;
}

static void abort_graph(gpu_t *gpu)
{
    abort_at_once(gpu, abort_graph_once);
}

/* Kernels of two communicators wait for rank 0, which exits, and one thread aborts both in turn: the first abort's
 * frees must not wait for the second's kernel. Only as threads: as processes this did not end on 4 H200 with the real
 * NCCL alone either (22 s). */
static void abort_both(gpu_t *gpu)
{
    ncclComm_t a = ranks_init(gpu->ranks), b = ranks_init(gpu->ranks);
    float *x = (float *)gpu->pool;
    cudaStream_t other;
    CHECK_CUDA(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    use(gpu, a, 3);
    use(gpu, b, 3);
    if (gpu->rank != 0) {
        CHECK_NCCL(ncclAllReduce(x, x + 4096, 1000, ncclFloat32, ncclSum, a, gpu->stream));
        CHECK_NCCL(ncclAllReduce(x + 8192, x + 12288, 1000, ncclFloat32, ncclSum, b, other));
        wait_all_in(gpu);
        CHECK(cudaStreamQuery(other) == cudaErrorNotReady);
        (void)abort_and_recover(gpu, a);
        CHECK(cudaStreamQuery(other) == cudaErrorNotReady); /* it still waits, and the abort did not */
        CHECK_NCCL(ncclCommAbort(b));
        CHECK_CUDA(cudaStreamSynchronize(other));
        atomic_fetch_add(&gpu->ranks->shared->words[WORD_FREED], 1);
    } else {
        ranks_wait(gpu->ranks, WORD_FREED, (uint64_t)gpu->nranks - 1);
        CHECK_NCCL(ncclCommAbort(a));
        CHECK_NCCL(ncclCommAbort(b));
    }
    CHECK_CUDA(cudaStreamDestroy(other));
    ranks_barrier(gpu->ranks);
    a = ranks_init(gpu->ranks);
    use(gpu, a, 5);
    CHECK_NCCL(ncclCommDestroy(a));
}

/* Memory of aborted communicators is freed while others exist: it does not grow with the number of aborts. */
static void abort_many(gpu_t *gpu)
{
    size_t first = 0, now = 0, total;
    for (int i = 0; i < 12; i++) {
        ncclComm_t comm = ranks_init(gpu->ranks);
        use(gpu, comm, 1);
        ranks_barrier(gpu->ranks);
        CHECK_NCCL(ncclCommAbort(comm));
        CHECK_CUDA(cudaMemGetInfo(&now, &total));
        if (i == 3)
            first = now;
    }
    printf("rank %d: %zu MB free after 4 aborts, %zu after 12\n", gpu->rank, first >> 20, now >> 20);
    CHECK(now + ((size_t)300 << 20) > first);
}

/* Results are right if each rank's host is sometimes late by up to 20 ms, and once by a second. */
static void stalled(gpu_t *gpu)
{
    uint64_t shared = gpu->options->seed, own = shared + (uint64_t)gpu->rank + 1, hash = 0;
    for (int i = 0; i < 300; i++) {
        data_case_t c = gpu_random_case(&shared, gpu->nranks, 30000);
        if (data_below(&own, 10) == 0)
            usleep((useconds_t)data_below(&own, 20000));
        if (i == 100 + gpu->rank)
            sleep(1);
        gpu_run(gpu, &c, gpu_random_shape(&own, c.type), &hash);
    }
    gpu_agree(gpu, hash);
}

/* Two calls in a graph, on rank 0 between two events: its second call needs the others' ends of the first. */
static cudaGraphExec_t two_calls(gpu_t *gpu, gpu_call_t *call, const cudaEvent_t event[2])
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 2; i++) {
        if (i == 0 && gpu->rank == 0)
            CHECK_CUDA(cudaEventRecordWithFlags(event[0], gpu->stream, cudaEventRecordExternal));
        CHECK_NCCL(gpu_issue(call, gpu->stream));
        if (i == 1 && gpu->rank == 0)
            CHECK_CUDA(cudaEventRecordWithFlags(event[1], gpu->stream, cudaEventRecordExternal));
    }
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* On rank 0 the median time of the two calls by its GPU, `us` or more after those of the others began to wait. */
static double through(gpu_t *gpu, cudaGraphExec_t exec, const cudaEvent_t event[2], double us)
{
    enum { ROUNDS = 21 };
    double times[ROUNDS] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        _Atomic uint64_t *launched = &gpu->ranks->shared->words[WORD_LAUNCHED];
        ranks_barrier(gpu->ranks);
        if (gpu->rank == 0) {
            ranks_wait(gpu->ranks, WORD_LAUNCHED, (uint64_t)gpu->nranks - 1);
            atomic_store(launched, 0);
            usleep((useconds_t)us);
        }
        CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
        if (gpu->rank != 0)
            atomic_fetch_add(launched, 1);
        CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
        float ms = 0;
        if (gpu->rank == 0)
            CHECK_CUDA(cudaEventElapsedTime(&ms, event[0], event[1]));
        times[i] = 1e-3 * (double)ms;
    }
    return gpu_median(times, ROUNDS);
}

/* A call is not slow after its peer was late, although a kernel that waits long polls words in pinned memory. */
static void late(gpu_t *gpu)
{
    static const size_t bytes[] = {64 << 10, 256 << 10, 4 << 20, 64 << 20};
    static const double lateness[] = {1000, 3000, 10000}; /* us */
    cudaEvent_t event[2];
    for (int i = 0; i < 2; i++)
        CHECK_CUDA(cudaEventCreate(&event[i]));
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, i, bytes[i] / 4, gpu->nranks};
        gpu_shape_t shape = {0, 0, false};
        gpu_call_t call;
        gpu_prepare(gpu, &call, gpu->comm, gpu->rank, &c, shape);
        cudaGraphExec_t exec = two_calls(gpu, &call, event);
        const double prompt = through(gpu, exec, event, 100);
        for (size_t k = 0; k < sizeof(lateness) / sizeof(lateness[0]); k++) {
            const double waited = through(gpu, exec, event, lateness[k]);
            if (gpu->rank == 0)
                printf("2 x %zu bytes: %.1f us; %.1f with others that wait for %.1f ms\n", bytes[i], prompt * 1e6,
                       waited * 1e6, 1e-3 * lateness[k]);
            CHECK(waited < 1.5 * prompt + 50e-6);
        }
        CHECK_CUDA(cudaGraphExecDestroy(exec));
        gpu_release(&call);
    }
    for (int i = 0; i < 2; i++)
        CHECK_CUDA(cudaEventDestroy(event[i]));
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"abort-eager", abort_eager, GPU_RANKS, 60}, {"abort-graph", abort_graph, GPU_RANKS, 60},
        {"abort-both", abort_both, GPU_THREADS, 60}, {"abort-many", abort_many, GPU_RANKS, 120},
        {"stalled", stalled, GPU_RANKS, 90},         {"late", late, GPU_RANKS, 60},
    };
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
