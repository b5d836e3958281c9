/* SPDX-License-Identifier: Apache-2.0 */
/* Abort frees kernels that wait for a rank that never comes; stalled ranks are waited for, and cost no more than their
 * delay. */
#include "gpu.h"

/* Shared words below REF_MAX_RANKS belong to gpu_agree. */
enum { WORD_WAITING = REF_MAX_RANKS, WORD_FREED, WORD_ISSUED };

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

/* The kernels that wait in the stream end within 100 ms of the abort. The real NCCL's own part takes up to a second. */
static void abort_and_recover(gpu_t *gpu, ncclComm_t comm)
{
    double start, freed = 0;
    CHECK_CUDA(cudaLaunchHostFunc(gpu->stream, note_time, &freed));
    start = ranks_seconds();
    CHECK_NCCL(ncclCommAbort(comm));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    CHECK(ranks_seconds() - start < 1 + 0.5 * gpu->nranks);
    CHECK(freed >= start);
    printf("rank %d: abort freed the stream in %.1f ms\n", gpu->rank, 1e3 * (freed - start));
    CHECK(freed - start < 0.1);
}

static void wait_all_in(gpu_t *gpu)
{
    atomic_fetch_add(&gpu->ranks->shared->words[WORD_WAITING], 1);
    ranks_wait(gpu->ranks, WORD_WAITING, (uint64_t)gpu->nranks - 1);
    usleep(300000); /* long enough for the kernels to spin */
}

/* Rank 0 never makes the call. */
static void abort_eager(gpu_t *gpu)
{
    ncclComm_t comm = ranks_init(gpu->ranks);
    float *x = (float *)gpu->pool;
    use(gpu, comm, 3);
    if (gpu->rank != 0) {
        for (int i = 0; i < 3; i++)
            CHECK_NCCL(ncclAllReduce(x, x + 4096, 1000, ncclFloat32, ncclSum, comm, gpu->stream));
        CHECK(cudaStreamQuery(gpu->stream) == cudaErrorNotReady);
        wait_all_in(gpu);
        abort_and_recover(gpu, comm);
        atomic_fetch_add(&gpu->ranks->shared->words[WORD_FREED], 1);
    } else {
        ranks_wait(gpu->ranks, WORD_FREED, (uint64_t)gpu->nranks - 1);
        CHECK_NCCL(ncclCommAbort(comm));
    }
    ranks_barrier(gpu->ranks);
    comm = ranks_init(gpu->ranks);
    use(gpu, comm, 5);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* The same with a captured graph that waits. */
static void abort_graph(gpu_t *gpu)
{
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
        abort_and_recover(gpu, comm);
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
}

/* Kernels of two communicators wait for rank 0, which exits, and one thread aborts them one after the other: the first
 * abort's frees must not wait for the second's kernel. Only as threads: as processes it did not end on 4 H200 with the
 * real NCCL alone either (22 s). */
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
        abort_and_recover(gpu, a);
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

/* Memory of aborted communicators is freed while others live: it does not grow with their number. */
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

/* Each rank is sometimes late, on the host, by up to 20 ms, and once by a second. */
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

/* Rank 0 delays its work without sleeping: after 10 ms of sleep the next call alone keeps its host for 60 us, with the
 * real NCCL for 90. */
static void work_for(gpu_t *gpu, double us)
{
    const double end = ranks_seconds() + 1e-6 * us;
    while (ranks_seconds() < end) {
        CHECK_CUDA(cudaMemsetAsync(gpu->pool + gpu->pool_used, 0, 4, gpu->stream));
        while (cudaStreamQuery(gpu->stream) == cudaErrorNotReady)
            ;
    }
}

/* Median time from rank 0's call to this rank's end, when rank 0 comes `us` after the others. */
static double through(gpu_t *gpu, gpu_call_t *call, double us)
{
    enum { ROUNDS = 21 };
    double times[ROUNDS];
    _Atomic uint64_t *issued = &gpu->ranks->shared->words[WORD_ISSUED];
    for (int i = 0; i < ROUNDS; i++) {
        ranks_barrier(gpu->ranks);
        if (gpu->rank == 0) {
            work_for(gpu, us);
            atomic_store(issued, (uint64_t)(ranks_seconds() * 1e9));
        }
        CHECK_NCCL(gpu_issue(call, gpu->stream));
        while (cudaStreamQuery(gpu->stream) == cudaErrorNotReady)
            ;
        const double end = ranks_seconds();
        ranks_barrier(gpu->ranks);
        times[i] = end - (double)atomic_load(issued) * 1e-9;
    }
    return gpu_median(times, ROUNDS);
}

/* A rank that waits long polls the host's words sometimes; that must not slow the call once the peer is there. */
static void late(gpu_t *gpu)
{
    static const size_t bytes[] = {64 << 10, 256 << 10, 4 << 20, 64 << 20};
    static const double lateness[] = {300, 1000, 3000, 10000}; /* us */
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, i, bytes[i] / 4, gpu->nranks};
        gpu_shape_t shape = {0, 0, false};
        gpu_call_t call;
        gpu_prepare(gpu, &call, gpu->comm, gpu->rank, &c, shape);
        const double prompt = through(gpu, &call, 0);
        for (size_t k = 0; k < sizeof(lateness) / sizeof(lateness[0]); k++) {
            const double waited = through(gpu, &call, lateness[k]);
            if (gpu->rank == 1)
                printf("%zu bytes: %.1f us after rank 0; %.1f when that is %.1f ms late\n", bytes[i], prompt * 1e6,
                       waited * 1e6, 1e-3 * lateness[k]);
            CHECK(waited < 1.5 * prompt + 50e-6);
        }
        gpu_release(&call);
    }
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
