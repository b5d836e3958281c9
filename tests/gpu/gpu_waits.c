/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many replays of a graph, of which 1% are delayed on one rank: none is lost, and the statistics of late ranks
 * (shim/record/waits.c) agree with the delays. -t SECONDS stands for REPLAYS_A_SECOND replays each; a million: -t 500.
 *
 * Rank 0's outputs are also its inputs, so each replay adds the other ranks' inputs once, and a lost, repeated or stale
 * one leaves wrong sums.
 */
#include "gpu.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

enum {
    REPLAYS_A_SECOND = 2000,
    CALLS = 8,
    COUNT = 4096, /* floats of a call: 16 KB */
    VALUES = CALLS * COUNT,
    EXACT = 1 << 24, /* the largest sum that a float holds exactly */
    CHECKS = 4,      /* of the outputs */
    AHEAD = 128,     /* the host is at most twice as many replays ahead of the GPU */
    PART = 100,      /* replays to a delay, on average */
    APART = 20,      /* at least so many undelayed replays between two delays */
    LEAST_US = 2000, /* of a delay */
    MOST_US = 6000
};

/* How far the statistics may be from the delays.
 *
 * A wait's count: one each. Waits below 1 ms do not count, which a 2 ms delay can become if a watcher oversleeps.
 *
 * A wait's length is less than its delay: a kernel publishes its wait after about 0.2 ms, and the watcher, which looks
 * every 0.5 ms, sees that half a period later on average. At the end the waiting rank's and the late rank's watcher are
 * each up to one period off, in opposite directions, so sums lose nothing there.
 *
 * A rank without delays is late if the system stops its launching thread for longer than the queue lasts. */
#define SEEN_AFTER_NS UINT64_C(500000)
enum { COUNT_PERCENT = 5, COUNT_MORE = 2, LENGTH_PERCENT = 10, PUNCTUAL_PERCENT = 2 };

/* Of the words that ranks share with the main function; three have one of each rank. */
enum {
    WORD_PID,
    WORD_DELAYS = WORD_PID + RANKS_MAX,
    WORD_DELAYED_NS = WORD_DELAYS + RANKS_MAX,
    WORD_RANKS = WORD_DELAYED_NS + RANKS_MAX,
    WORD_PUNCTUAL,
    WORD_FORWARDS
};

static _Atomic uint64_t *g_words;
static char g_file[64]; /* the statistics' name, without the process id */
static int g_rank;      /* of this process, for callbacks */
static float g_step[VALUES], g_got[VALUES];

/* ---- A rank ------------------------------------------------------------------------------ */

/* The next delay. All ranks draw the same. */
typedef struct delay {
    uint64_t seed, replay;
    int rank, punctual; /* punctual: the rank that has none */
    uint32_t us;
} delay_t;

static void draw_delay(delay_t *delay, int nranks)
{
    const int rank = (int)data_below(&delay->seed, (uint64_t)nranks - 1);
    delay->rank = rank + (rank >= delay->punctual);
    delay->replay += APART + 1 + data_below(&delay->seed, 2 * (PART - APART) - 1);
    delay->us = LEAST_US + (uint32_t)data_below(&delay->seed, MOST_US - LEAST_US + 1);
}

/* Delays the stream, not the thread that launches, and counts what the system made of the time. */
static void sleep_in_stream(void *us)
{
    const struct timespec nap = {0, (long)(uintptr_t)us * 1000};
    const double start = ranks_seconds();
    nanosleep(&nap, NULL);
    atomic_fetch_add(&g_words[WORD_DELAYS + g_rank], 1);
    atomic_fetch_add(&g_words[WORD_DELAYED_NS + g_rank], (uint64_t)((ranks_seconds() - start) * 1e9));
}

static float input_of(int rank, int value)
{
    uint64_t seed = (uint64_t)value * RANKS_MAX + (uint64_t)rank;
    return (float)(1 + (data_random(&seed) & 1));
}

/* Rank 0 begins with zeros, whose place in the pool is its outputs'. */
static void fill(gpu_t *gpu, float *inputs, float *outputs)
{
    CHECK_CUDA(cudaMemsetAsync(outputs, 0, sizeof g_got, gpu->stream));
    for (int i = 0; i < VALUES; i++) {
        g_got[i] = input_of(gpu->rank, i);
        for (int r = 1; r < gpu->nranks; r++)
            g_step[i] += input_of(r, i);
    }
    if (gpu->rank != 0)
        CHECK_CUDA(cudaMemcpyAsync(inputs, g_got, sizeof g_got, cudaMemcpyHostToDevice, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
}

/* Uploads the graph, too: otherwise the first launches, which do that, would make ranks late. */
static cudaGraphExec_t capture(gpu_t *gpu, const float *inputs, float *outputs)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
    for (int at = 0; at < VALUES; at += COUNT)
        CHECK_NCCL(ncclAllReduce(inputs + at, outputs + at, COUNT, ncclFloat32, ncclSum, gpu->comm, gpu->stream));
    CHECK_CUDA(cudaStreamEndCapture(gpu->stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaGraphUpload(exec, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    return exec;
}

static void check_outputs(gpu_t *gpu, const float *outputs, uint64_t replays)
{
    CHECK_CUDA(cudaMemcpyAsync(g_got, outputs, sizeof g_got, cudaMemcpyDeviceToHost, gpu->stream));
    CHECK_CUDA(cudaStreamSynchronize(gpu->stream));
    for (int i = 0; i < VALUES; i++) {
        char fault[160];
        const float right = (float)replays * g_step[i];
        if (g_got[i] == right)
            continue;
        snprintf(fault, sizeof fault, "after %" PRIu64 " replays value %d of call %d is %.0f, not %.0f", replays,
                 i % COUNT, i / COUNT, (double)g_got[i], (double)right);
        check_failed(__FILE__, __LINE__, "no replay is lost: ", fault);
    }
    ranks_barrier(gpu->ranks); /* a rank that compares for longer would be late */
}

static void launch(gpu_t *gpu, cudaGraphExec_t exec, const float *outputs, uint64_t replays)
{
    cudaEvent_t behind[2];
    delay_t next = {.seed = gpu->options->seed, .punctual = (int)atomic_load(&g_words[WORD_PUNCTUAL])};
    for (int i = 0; i < 2; i++)
        CHECK_CUDA(cudaEventCreateWithFlags(&behind[i], cudaEventDisableTiming | cudaEventBlockingSync));
    draw_delay(&next, gpu->nranks);
    for (uint64_t i = 0; i < replays; i++) {
        if (i == next.replay) {
            if (next.rank == gpu->rank)
                CHECK_CUDA(cudaLaunchHostFunc(gpu->stream, sleep_in_stream, (void *)(uintptr_t)next.us));
            draw_delay(&next, gpu->nranks);
        }
        CHECK_CUDA(cudaGraphLaunch(exec, gpu->stream));
        if (i % AHEAD == 0) {
            CHECK_CUDA(cudaEventRecord(behind[i / AHEAD % 2], gpu->stream));
            CHECK_CUDA(cudaEventSynchronize(behind[(i / AHEAD + 1) % 2]));
        }
        if ((i + 1) % (replays / CHECKS) == 0)
            check_outputs(gpu, outputs, i + 1);
    }
    for (int i = 0; i < 2; i++)
        CHECK_CUDA(cudaEventDestroy(behind[i]));
}

static void replays(gpu_t *gpu)
{
    const uint64_t count = (uint64_t)gpu->options->seconds * REPLAYS_A_SECOND;
    uint64_t seed = ~gpu->options->seed;
    float *outputs = (float *)gpu->pool, *inputs = gpu->rank == 0 ? outputs : outputs + VALUES;
    if (count == 0 || count * 2 * (uint64_t)(gpu->nranks - 1) > EXACT)
        check_failed(__FILE__, __LINE__, "-t is 1 or more, and so small that all sums are exact", "");
    g_rank = gpu->rank;
    atomic_store(&g_words[WORD_PID + gpu->rank], (uint64_t)getpid());
    atomic_store(&g_words[WORD_RANKS], (uint64_t)gpu->nranks);
    atomic_store(&g_words[WORD_PUNCTUAL], data_below(&seed, (uint64_t)gpu->nranks));
    atomic_store(&g_words[WORD_FORWARDS], gpu->options->allow_forward);
    fill(gpu, inputs, outputs);
    const cudaGraphExec_t exec = capture(gpu, inputs, outputs);
    ranks_barrier(gpu->ranks);
    const double start = ranks_seconds();
    launch(gpu, exec, outputs, count);
    if (gpu->rank == 0)
        printf("%" PRIu64 " replays of %d calls in %.1f s\n", count, CALLS, ranks_seconds() - start);
    CHECK_CUDA(cudaGraphExecDestroy(exec));
}

/* ---- The account, in the main function --------------------------------------------------- */

typedef struct account {
    bool read;
    uint64_t waits[RANKS_MAX], waited_ns[RANKS_MAX]; /* by late rank */
} account_t;

/* Read and remove the statistics of a rank's process. */
static account_t read_account(int rank)
{
    account_t account = {0};
    char path[96], line[1024];
    snprintf(path, sizeof path, "%s-%" PRIu64, g_file, atomic_load(&g_words[WORD_PID + rank]));
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        uint64_t waits, waited_us;
        unsigned late;
        account.read = true;
        if (sscanf(line,
                   "shunt: communicator=%*[0-9a-f] ranks=%*u late_rank=%u waits=%" SCNu64 " waited_us=%" SCNu64 " ",
                   &late, &waits, &waited_us) != 3 ||
            late >= RANKS_MAX)
            continue;
        account.waits[late] += waits;
        account.waited_ns[late] += waited_us * 1000;
    }
    if (file != NULL)
        fclose(file);
    unlink(path);
    return account;
}

static bool is_near(uint64_t is, uint64_t expected, uint64_t tolerance)
{
    return is <= expected + tolerance && is + tolerance >= expected;
}

/* Compare what a rank waited for another one with the delays. */
static bool compare(const account_t *account, int rank, int late, uint64_t all_ns)
{
    const uint64_t delays = atomic_load(&g_words[WORD_DELAYS + late]);
    const uint64_t delayed_ns = atomic_load(&g_words[WORD_DELAYED_NS + late]), unseen_ns = delays * SEEN_AFTER_NS;
    const uint64_t waits = account->waits[late], waited_ns = account->waited_ns[late];
    const bool right = delays == 0 ? waited_ns <= all_ns * PUNCTUAL_PERCENT / 100
                                   : is_near(waits, delays, delays * COUNT_PERCENT / 100 + COUNT_MORE) &&
                                         is_near(waited_ns, delayed_ns - unseen_ns, delayed_ns * LENGTH_PERCENT / 100);
    printf("%s: rank %d waited for rank %d: %" PRIu64 " times for %" PRIu64 " delays, %.1f ms of %.1f, expected %.1f\n",
           right ? "right" : "WRONG", rank, late, waits, delays, 1e-6 * (double)waited_ns, 1e-6 * (double)delayed_ns,
           1e-6 * (double)(delayed_ns - unseen_ns));
    return right;
}

/* Returns the number of faults. */
static int compare_all(const account_t *accounts)
{
    const int nranks = (int)atomic_load(&g_words[WORD_RANKS]);
    uint64_t all_ns = 0;
    int wrong = 0;
    for (int r = 0; r < nranks; r++)
        all_ns += atomic_load(&g_words[WORD_DELAYED_NS + r]);
    for (int r = 0; r < nranks; r++) {
        if (!accounts[r].read || accounts[r].waits[r] != 0) {
            printf("WRONG: rank %d has %s\n", r, accounts[r].read ? "waited for itself" : "left no statistics");
            wrong++;
        }
        for (int late = 0; late < nranks; late++)
            wrong += late != r && !compare(&accounts[r], r, late, all_ns);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"replays", replays, GPU_PROCESSES, 120}};
    static account_t accounts[RANKS_MAX];
    char pattern[96];
    g_words = ranks_share()->words;
    snprintf(g_file, sizeof g_file, "/tmp/shunt-waits-%d", (int)getpid());
    snprintf(pattern, sizeof pattern, "%s-%%p", g_file);
    setenv("SHUNT_STATS", pattern, 1);
    const int status = gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
    for (int r = 0; r < (int)atomic_load(&g_words[WORD_RANKS]); r++)
        accounts[r] = read_account(r);
    if (status != 0)
        return status;
    if (atomic_load(&g_words[WORD_FORWARDS]) != 0) {
        printf("calls may be forwarded, and the real NCCL has no account of waits\n");
        return 0;
    }
    return compare_all(accounts) == 0 ? 0 : 1;
}
