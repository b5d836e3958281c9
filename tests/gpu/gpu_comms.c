/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators on GPUs: split, made again and again, one thread for all, non-blocking, two at once. */
#include "gpu.h"

#include <pthread.h>

static void use(gpu_t *gpu, ncclComm_t comm, uint64_t seed, uint64_t *hash)
{
    int nranks, rank;
    CHECK_NCCL(ncclCommCount(comm, &nranks));
    CHECK_NCCL(ncclCommUserRank(comm, &rank));
    for (uint64_t i = 0; i < 5; i++) {
        data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, seed * 10 + i, 1 + 700 * i, nranks};
        gpu_shape_t shape = {0, 0, i % 2 == 1};
        gpu_run_on(gpu, comm, rank, &c, shape, hash);
    }
}

/* Destroy a communicator after all ranks have finished with it. With ranks in one process, the last destroy frees for
 * all of them and waits for kernels, which may wait for a rank's next call; this holds with the real NCCL, too. */
static void destroy(gpu_t *gpu, ncclComm_t comm)
{
    if (comm)
        CHECK_NCCL(ncclCommDestroy(comm));
    ranks_barrier(gpu->ranks);
}

static void split(gpu_t *gpu)
{
    ncclComm_t half = NULL, quarter = NULL, some = gpu->comm;
    uint64_t own = 0, whole = 0;
    int rank, last = gpu->nranks - 1;
    for (int round = 0; round < 2; round++) {
        CHECK_NCCL(ncclCommSplit(gpu->comm, gpu->rank % 2, -gpu->rank, &half, NULL));
        CHECK_NCCL(ncclCommUserRank(half, &rank));
        CHECK(rank == (last - gpu->rank) / 2);
        use(gpu, half, 1, &own);
        CHECK_NCCL(ncclCommSplit(half, 0, rank, &quarter, NULL));
        CHECK_NCCL(ncclCommSplit(gpu->comm, gpu->rank == 0 ? NCCL_SPLIT_NOCOLOR : 3, 0, &some, NULL));
        CHECK((some == NULL) == (gpu->rank == 0));
        use(gpu, quarter, 2, &own);
        if (some)
            use(gpu, some, 3, &own);
        use(gpu, gpu->comm, 4, &whole);
        destroy(gpu, some);
        destroy(gpu, half);
        use(gpu, quarter, 5, &own);
        destroy(gpu, quarter);
    }
    gpu_agree(gpu, whole);
}

/* Device memory stays constant over repeated inits and destroys of the same ranks. Few times, since the real NCCL takes
 * up to a second for each; gpu_creation has many. */
static void again(gpu_t *gpu)
{
    /* Every fourth is aborted, so its scratch is not reused; SETTLED and the last are destroyed. */
    enum { CYCLES = 9, SETTLED = 4, SLACK = 8 << 20 };
    size_t settled = 0, now, total;
    uint64_t hash = 0;
    for (int i = 0; i < CYCLES; i++) {
        ncclComm_t comm = ranks_init(gpu->ranks);
        use(gpu, comm, (uint64_t)i, &hash);
        CHECK_NCCL(i % 4 == 3 ? ncclCommAbort(comm) : ncclCommDestroy(comm));
        ranks_barrier(gpu->ranks);
        CHECK_CUDA(cudaMemGetInfo(&now, &total));
        if (i == SETTLED)
            settled = now;
        ranks_barrier(gpu->ranks);
    }
    CHECK(now + SLACK >= settled);
    gpu_agree(gpu, hash);
}

/* A long-lived communicator works beside short-lived ones of the same ranks. */
static void beside(gpu_t *gpu)
{
    uint64_t hash = 0;
    for (int i = 0; i < 3; i++) {
        ncclComm_t comm = ranks_init(gpu->ranks), second = ranks_init(gpu->ranks);
        use(gpu, gpu->comm, 1, &hash);
        use(gpu, comm, 2, &hash);
        destroy(gpu, comm);
        use(gpu, second, 3, &hash);
        use(gpu, gpu->comm, 4, &hash);
        destroy(gpu, second);
    }
    gpu_agree(gpu, hash);
}

static void check_started(ncclResult_t result)
{
    if (result != ncclInProgress)
        CHECK_NCCL(result);
}

static void non_blocking(gpu_t *gpu)
{
    uint64_t hash = 0;
    for (int round = 0; round < 2; round++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        ncclUniqueId id = ranks_id(gpu->ranks);
        ncclComm_t comm = NULL;
        config.blocking = 0;
        check_started(ncclCommInitRankConfig(&comm, gpu->nranks, id, gpu->rank, &config));
        gpu_ready(comm);
        for (uint64_t i = 0; i < 20; i++) {
            data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, i, 1 + 100 * i, gpu->nranks};
            gpu_shape_t shape = {0, 0, false};
            gpu_call_t call;
            gpu_prepare(gpu, &call, comm, gpu->rank, &c, shape);
            check_started(gpu_issue(&call, gpu->stream));
            gpu_ready(comm);
            CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
            gpu_verify(&call, gpu->rank, gpu->nranks, &hash);
            gpu_release(&call);
        }
        check_started(ncclCommFinalize(comm));
        gpu_ready(comm);
        CHECK_NCCL(ncclCommDestroy(comm));
    }
    gpu_agree(gpu, hash);
}

static void scalable(gpu_t *gpu)
{
    ncclUniqueId ids[2] = {ranks_id(gpu->ranks), ranks_id(gpu->ranks)};
    ncclComm_t comm = NULL;
    uint64_t hash = 0;
    CHECK_NCCL(ncclCommInitRankScalable(&comm, gpu->nranks, gpu->rank, 2, ids, NULL));
    use(gpu, comm, 1, &hash);
    gpu_agree(gpu, hash);
    CHECK_NCCL(ncclCommDestroy(comm));
}

typedef struct side {
    gpu_t gpu;
    uint64_t seed, hash;
} side_t;

static void *side_main(void *argument)
{
    side_t *side = argument;
    uint64_t shared = side->seed, own = side->seed * 7 + (uint64_t)side->gpu.rank;
    gpu_open(&side->gpu);
    for (int i = 0; i < 300; i++) {
        data_case_t c = gpu_random_case(&shared, side->gpu.nranks, 8000);
        if (data_below(&own, 20) == 0)
            usleep((useconds_t)data_below(&own, 2000));
        gpu_run(&side->gpu, &c, gpu_random_shape(&own, c.type), &side->hash);
    }
    return NULL;
}

/* Two threads of each rank can call at the same time, each with its own communicator and stream. */
static void at_once(gpu_t *gpu)
{
    side_t sides[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        sides[i] = (side_t){*gpu, gpu->options->seed + (uint64_t)i, 0};
        sides[i].gpu.comm = ranks_init(gpu->ranks);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, side_main, &sides[i]) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        gpu_agree(gpu, sides[i].hash);
        destroy(gpu, sides[i].gpu.comm);
        gpu_close(&sides[i].gpu);
    }
}

/* Communicators with a stream each make many large calls, which every other rank issues in the reverse order. A kernel
 * that waits for its predecessor must leave room for the first call of each other communicator, since the peers'
 * kernels of that call already run; otherwise the ranks deadlock. */
static void crossed_among(gpu_t *gpu, int count, const size_t *elements, int sizes)
{
    enum { CALLS = 4, MOST = 8, MOST_SIZES = 2 };
    ncclComm_t comms[MOST] = {gpu->comm};
    cudaStream_t streams[MOST] = {gpu->stream};
    gpu_call_t calls[MOST][MOST_SIZES];
    uint64_t hash = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0) {
            comms[i] = ranks_init(gpu->ranks);
            CHECK_CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        }
        for (int s = 0; s < sizes; s++) {
            data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, (uint64_t)i, elements[s], gpu->nranks};
            gpu_prepare(gpu, &calls[i][s], comms[i], gpu->rank, &c, (gpu_shape_t){0, 0, false});
        }
    }
    for (int turn = 0; turn < count; turn++) {
        const int i = gpu->rank % 2 ? count - 1 - turn : turn;
        for (int k = 0; k < CALLS * sizes; k++)
            CHECK_NCCL(gpu_issue(&calls[i][k % sizes], streams[i]));
    }
    for (int i = 0; i < count; i++)
        CHECK_CUDA(cudaStreamSynchronize(streams[i]));
    for (int i = count - 1; i >= 0; i--) {
        for (int s = sizes - 1; s >= 0; s--) {
            gpu_verify(&calls[i][s], gpu->rank, gpu->nranks, &hash);
            gpu_release(&calls[i][s]);
        }
    }
    gpu_agree(gpu, hash);
    for (int i = 1; i < count; i++) {
        CHECK_CUDA(cudaStreamDestroy(streams[i]));
        destroy(gpu, comms[i]);
    }
}

static void crossed(gpu_t *gpu)
{
    crossed_among(gpu, 2, &(size_t){12 << 20}, 1); /* two-shot; on three GPUs staged, which has the largest grids */
}

static void crossed_four(gpu_t *gpu)
{
    crossed_among(gpu, 4, &(size_t){12 << 20}, 1);
}

/* The same with short calls, which let longer ones start early. */
static void crossed_mixed(gpu_t *gpu)
{
    static const size_t sizes[] = {32 << 10, 4 << 20};
    crossed_among(gpu, 4, sizes, 2);
}

static void crossed_eight(gpu_t *gpu)
{
    crossed_among(gpu, 8, &(size_t){2 << 20}, 1);
}

/* Communicators on streams of their own, with one call each, eagerly or in a graph of two. */
enum { MANY = 32, FIRST_CAPTURED = 1, ALL_CAPTURED = MANY };
typedef struct many {
    int count;
    ncclComm_t comms[MANY];
    cudaStream_t streams[MANY];
    gpu_call_t calls[MANY];
    cudaGraphExec_t execs[MANY];
} many_t;

static cudaGraphExec_t captured_twice(gpu_call_t *call, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 2; i++)
        CHECK_NCCL(gpu_issue(call, stream));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* Open communicators; the first one's graph is captured while it is alone. */
static void many_open(gpu_t *gpu, many_t *many, int count, size_t elements, int captured)
{
    *many = (many_t){.count = count, .comms = {gpu->comm}, .streams = {gpu->stream}};
    for (int i = 0; i < count; i++) {
        if (i > 0) {
            many->comms[i] = ranks_init(gpu->ranks);
            CHECK_CUDA(cudaStreamCreateWithFlags(&many->streams[i], cudaStreamNonBlocking));
        }
        data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, (uint64_t)i, elements, gpu->nranks};
        gpu_prepare(gpu, &many->calls[i], many->comms[i], gpu->rank, &c, (gpu_shape_t){0, 0, false});
        if (i < captured)
            many->execs[i] = captured_twice(&many->calls[i], many->streams[i]);
    }
}

static void many_close(gpu_t *gpu, many_t *many, uint64_t *hash)
{
    for (int i = many->count - 1; i >= 0; i--) {
        gpu_verify(&many->calls[i], gpu->rank, gpu->nranks, hash);
        gpu_release(&many->calls[i]);
        if (many->execs[i])
            CHECK_CUDA(cudaGraphExecDestroy(many->execs[i]));
    }
    for (int i = 1; i < many->count; i++) {
        CHECK_CUDA(cudaStreamDestroy(many->streams[i]));
        destroy(gpu, many->comms[i]);
    }
}

static void many_rounds(gpu_t *gpu, int count, size_t elements, int captured, bool crosses)
{
    enum { ROUNDS = 20 };
    static many_t of_rank[REF_MAX_RANKS];
    many_t *many = &of_rank[gpu->rank];
    uint64_t hash = 0;
    many_open(gpu, many, count, elements, captured);
    for (int round = 0; round < ROUNDS; round++)
        for (int turn = 0; turn < count; turn++) {
            const int i = crosses && gpu->rank % 2 ? count - 1 - turn : turn;
            if (many->execs[i])
                CHECK_CUDA(cudaGraphLaunch(many->execs[i], many->streams[i]));
            else
                CHECK_NCCL(gpu_issue(&many->calls[i], many->streams[i]));
        }
    for (int i = 0; i < count; i++)
        CHECK_CUDA(cudaStreamSynchronize(many->streams[i]));
    many_close(gpu, many, &hash);
    gpu_agree(gpu, hash);
}

static const size_t many_sizes[] = {512, 512 << 10, 10 << 20}; /* 1 KB; 1 MB; 20 MB, which go by bulk copies */

/* 2, 4 and 8 communicators; the longest calls, whose results take seconds to verify, only with 8. The real NCCL
 * completes with eight, too, but hangs with sixteen. */
static void crossed_rounds(gpu_t *gpu, int captured)
{
    for (int count = 2; count <= 8; count *= 2)
        for (int s = 0; s < (count < 8 ? 2 : 3); s++)
            many_rounds(gpu, count, many_sizes[s], captured, true);
}

static void crossed_eager(gpu_t *gpu)
{
    crossed_rounds(gpu, 0);
}

static void crossed_captured(gpu_t *gpu)
{
    crossed_rounds(gpu, ALL_CAPTURED);
}

/* A graph that was captured while its communicator was alone completes beside seven others. */
static void crossed_first(gpu_t *gpu)
{
    for (int s = 0; s < 3; s++)
        many_rounds(gpu, 8, many_sizes[s], FIRST_CAPTURED, true);
}

/* More than eight communicators complete if all ranks use one order. */
static void many_in_order(gpu_t *gpu)
{
    many_rounds(gpu, 16, many_sizes[1], 0, false);
    many_rounds(gpu, 16, many_sizes[1], ALL_CAPTURED, false);
    many_rounds(gpu, 32, many_sizes[1], 0, false);
}

/* One thread that is all ranks: everything in groups. */
typedef struct solo {
    gpu_t gpus[REF_MAX_RANKS];
    ncclComm_t comms[REF_MAX_RANKS];
    int n;
} solo_t;

static void solo_calls(solo_t *solo, int rounds, bool captured)
{
    uint64_t seed = solo->gpus[0].options->seed;
    for (int round = 0; round < rounds; round++) {
        data_case_t c = gpu_random_case(&seed, solo->n, 20000);
        gpu_shape_t shape = {0, 0, round % 3 == 0};
        gpu_call_t calls[REF_MAX_RANKS];
        cudaGraph_t graphs[REF_MAX_RANKS];
        cudaGraphExec_t execs[REF_MAX_RANKS];
        uint64_t hash = 0;
        for (int r = 0; r < solo->n; r++) {
            CHECK_CUDA(cudaSetDevice(r));
            gpu_prepare(&solo->gpus[r], &calls[r], solo->comms[r], r, &c, shape);
        }
        for (int r = 0; r < solo->n && captured; r++)
            CHECK_CUDA(cudaStreamBeginCapture(solo->gpus[r].stream, cudaStreamCaptureModeThreadLocal));
        CHECK_NCCL(ncclGroupStart());
        for (int r = 0; r < solo->n; r++)
            CHECK_NCCL(gpu_issue(&calls[r], solo->gpus[r].stream));
        CHECK_NCCL(ncclGroupEnd());
        for (int r = 0; r < solo->n && captured; r++)
            CHECK_CUDA(cudaStreamEndCapture(solo->gpus[r].stream, &graphs[r]));
        for (int r = 0; r < solo->n && captured; r++)
            CHECK_CUDA(cudaGraphInstantiate(&execs[r], graphs[r], 0));
        for (int k = 0; k < (captured && !shape.in_place ? 20 : captured ? 1 : 0); k++)
            for (int r = 0; r < solo->n; r++)
                CHECK_CUDA(cudaGraphLaunch(execs[r], solo->gpus[r].stream));
        for (int r = 0; r < solo->n; r++)
            CHECK_CUDA(cudaStreamSynchronize(solo->gpus[r].stream));
        for (int r = 0; r < solo->n; r++) {
            calls[r].taken = false; /* grouped: the looser check */
            gpu_verify(&calls[r], r, solo->n, &hash);
        }
        for (int r = 0; r < solo->n; r++) {
            if (captured) {
                CHECK_CUDA(cudaGraphExecDestroy(execs[r]));
                CHECK_CUDA(cudaGraphDestroy(graphs[r]));
            }
            gpu_release(&calls[r]);
        }
    }
}

/* A group may have more calls than a GPU's launch queue holds. */
static void solo_queue(solo_t *solo)
{
    enum { MANY = 3000 };
    data_case_t c = {ncclBfloat16, REF_SUM, DATA_RANDOM, 9, 700, solo->n};
    gpu_call_t calls[REF_MAX_RANKS];
    uint64_t hash = 0;
    for (int r = 0; r < solo->n; r++) {
        CHECK_CUDA(cudaSetDevice(r));
        gpu_prepare(&solo->gpus[r], &calls[r], solo->comms[r], r, &c, (gpu_shape_t){0, 0, false});
    }
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < solo->n; r++)
        for (int i = 0; i < MANY; i++)
            CHECK_NCCL(gpu_issue(&calls[r], solo->gpus[r].stream));
    CHECK_NCCL(ncclGroupEnd());
    for (int r = 0; r < solo->n; r++)
        CHECK_CUDA(cudaStreamSynchronize(solo->gpus[r].stream));
    for (int r = 0; r < solo->n; r++) {
        calls[r].taken = false; /* grouped: the looser check */
        gpu_verify(&calls[r], r, solo->n, &hash);
        gpu_release(&calls[r]);
    }
}

static void one_thread(gpu_t *gpu)
{
    solo_t solo = {.n = gpu->nranks};
    ncclUniqueId id;
    for (int r = 0; r < solo.n; r++) {
        solo.gpus[r] = *gpu;
        solo.gpus[r].device = r;
        gpu_open(&solo.gpus[r]);
    }
    CHECK_NCCL(ncclCommInitAll(solo.comms, solo.n, NULL));
    solo_calls(&solo, 80, false);
    solo_calls(&solo, 20, true);
    solo_queue(&solo);
    for (int r = 0; r < solo.n; r++)
        CHECK_NCCL(ncclCommDestroy(solo.comms[r]));

    CHECK_NCCL(ncclGetUniqueId(&id));
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < solo.n; r++) {
        CHECK_CUDA(cudaSetDevice(r));
        CHECK_NCCL(ncclCommInitRank(&solo.comms[r], solo.n, id, r));
    }
    CHECK_NCCL(ncclGroupEnd());
    solo_calls(&solo, 80, false);
    CHECK_NCCL(ncclGroupStart());
    for (int r = 0; r < solo.n; r++)
        CHECK_NCCL(ncclCommDestroy(solo.comms[r]));
    CHECK_NCCL(ncclGroupEnd());
    for (int r = 0; r < solo.n; r++)
        gpu_close(&solo.gpus[r]);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"split", split, GPU_RANKS, 50},
        {"again", again, GPU_RANKS, 50},
        {"beside", beside, GPU_RANKS, 50},
        {"non-blocking", non_blocking, GPU_RANKS, 50},
        {"scalable", scalable, GPU_RANKS, 30},
        {"at-once", at_once, GPU_RANKS, 60},
        {"crossed", crossed, GPU_RANKS, 60},
        {"one-thread", one_thread, GPU_SOLO, 90},
        {"crossed-four", crossed_four, GPU_RANKS, 60},
        {"crossed-eight", crossed_eight, GPU_RANKS, 60},
        {"crossed-mixed", crossed_mixed, GPU_RANKS, 60},
        {"crossed-eager", crossed_eager, GPU_RANKS, 60},
        {"crossed-captured", crossed_captured, GPU_RANKS, 60},
        {"crossed-first", crossed_first, GPU_RANKS, 60},
        {"many", many_in_order, GPU_RANKS, 90},
    };
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
