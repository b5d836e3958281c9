/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The costs of the parts of an all-reduce between two nodes of one GPU each, as CSV, for the model of
 * docs/lab/hosts.md.
 *
 *   kernel   the kernel on one node: it lays out what it would send, and waits for nobody
 *   echo     the same with another node that answers at once: a thread that sees the words of a step raises the flag,
 *            so the data crosses PCIe out and back, and no network
 *   look     one look of a polling thread, which takes and gives a lock, reads the clock and yields, as the proxy does
 *   sockets  one way of a put between two threads, over TCP on the loopback, in steps as the proxy makes them
 *
 * bf16 sums; graphs of 20 calls, the median of 9 replays; half of a round trip, the median of 200.
 *
 * Usage: gpu_relay [blocks threads]
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "algorithms/nodes/relay.h"
#include "tests/algorithms/gpu_team.h"
#include "transport/network/network.h"

enum { CALLS = 20, ROUNDS = 9, PUTS = 200, LOOKS = 100000, LEAST = 1024, MOST = 1 << 20 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return values[count / 2];
}

/* ---- The other node ---------------------------------------------------------------- */

typedef struct echo {
    uint8_t *relay;
    atomic_bool stop;
} echo_t;

static bool is_laid(const uint8_t *relay, uint64_t tag, uint32_t slot, bool *last)
{
    const uint64_t *word = (const uint64_t *)(relay + RELAY_WORDS + (size_t)slot * RELAY_BLOCKS * RELAY_WORD_BYTES);
    if (__atomic_load_n(word + 1, __ATOMIC_ACQUIRE) != tag)
        return false;
    const uint32_t blocks = (uint32_t)(word[0] >> 32) & (RELAY_LAST - 1);
    *last = word[0] >> 32 & RELAY_LAST;
    for (uint32_t b = 1; b < blocks; b++) {
        if (__atomic_load_n(word + 2 * b + 1, __ATOMIC_ACQUIRE) != tag)
            return false;
    }
    return true;
}

static void *answer(void *argument)
{
    echo_t *echo = argument;
    uint64_t call = 0;
    uint32_t step = 0;
    while (!atomic_load_explicit(&echo->stop, memory_order_relaxed)) {
        bool last;
        if (!is_laid(echo->relay, RELAY_TAG(call, step), RELAY_SLOT(call, step), &last))
            continue;
        __atomic_store_n((uint64_t *)(echo->relay + RELAY_FLAGS) + 1, RELAY_TAG(call, step), __ATOMIC_RELEASE);
        step = last ? 0 : step + 1;
        call += last;
    }
    return NULL;
}

static double time_graph(gpu_team_t *g, const alg_call_t *call)
{
    const alg_algorithm_t *exchange = alg_find(ALG_ALL_REDUCE, "exchange");
    double us[ROUNDS];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t event[2];
    GPU(cudaEventCreate(&event[0]));
    GPU(cudaEventCreate(&event[1]));
    GPU(cudaStreamBeginCapture(g->stream[0], cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++)
        GPU((cudaError_t)exchange->launch_cuda(&g->team[0], call, g->stream[0]));
    GPU(cudaStreamEndCapture(g->stream[0], &graph));
    GPU(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    for (int r = 0; r < ROUNDS; r++) {
        float ms;
        GPU(cudaGraphLaunch(exec, g->stream[0]));
        GPU(cudaEventRecord(event[0], g->stream[0]));
        GPU(cudaGraphLaunch(exec, g->stream[0]));
        GPU(cudaEventRecord(event[1], g->stream[0]));
        gpu_team_sync(g);
        GPU(cudaEventElapsedTime(&ms, event[0], event[1]));
        us[r] = ms * 1e3 / CALLS;
    }
    GPU(cudaGraphExecDestroy(exec));
    GPU(cudaGraphDestroy(graph));
    GPU(cudaEventDestroy(event[0]));
    GPU(cudaEventDestroy(event[1]));
    return median(us, ROUNDS);
}

static void time_kernel(const char *part, uint32_t nodes, uint32_t blocks, uint32_t threads)
{
    gpu_team_t g;
    echo_t echo = {.stop = false};
    pthread_t thread;
    void *buffer[2];
    gpu_team_make(&g, 1, 1, ALG_MEMORY_PEER, 8 << 20);
    GPU(cudaHostAlloc((void **)&echo.relay, relay_bytes(2), cudaHostAllocMapped | cudaHostAllocPortable));
    memset(echo.relay, 0, relay_bytes(2));
    g.team[0].nodes = nodes;
    g.team[0].relay = echo.relay;
    for (int i = 0; i < 2; i++) {
        GPU(cudaMalloc(&buffer[i], MOST));
        GPU(cudaMemset(buffer[i], 0, MOST));
    }
    pthread_create(&thread, NULL, answer, &echo);
    for (size_t bytes = LEAST; bytes <= MOST; bytes *= 2) {
        const alg_call_t call = {.collective = ALG_ALL_REDUCE,
                                 .input = buffer[0],
                                 .output = buffer[1],
                                 .count = bytes / 2,
                                 .type = ALG_BFLOAT16,
                                 .op = ALG_SUM,
                                 .blocks = blocks,
                                 .threads = threads};
        printf("%s,%zu,%.2f\n", part, bytes, time_graph(&g, &call));
    }
    atomic_store(&echo.stop, true);
    pthread_join(thread, NULL);
    GPU(cudaFree(buffer[0]));
    GPU(cudaFree(buffer[1]));
    GPU(cudaFreeHost(echo.relay));
    gpu_team_free(&g);
}

static void time_looks(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const double begin = now_us();
    for (int i = 0; i < LOOKS; i++) {
        pthread_mutex_lock(&lock);
        (void)now_us();
        pthread_mutex_unlock(&lock);
        sched_yield();
    }
    printf("look,0,%.3f\n", (now_us() - begin) / LOOKS);
}

/* ---- The network ------------------------------------------------------------------- */

typedef struct side {
    uint32_t rank;
    net_invitation_t invitation;
    pthread_barrier_t *barrier;
} side_t;

static void put_all(net_network_t *network, uint32_t peer, const uint8_t *data, size_t bytes, uint64_t *flag)
{
    for (size_t at = 0; at < bytes; at += RELAY_STEP_BYTES) {
        const size_t left = bytes - at, some = left < RELAY_STEP_BYTES ? left : RELAY_STEP_BYTES;
        const uint64_t place = *flag % RELAY_SLOTS * RELAY_STEP_BYTES;
        ++*flag;
        while (net_network_put(network, peer, place, data + place, some, *flag) != 0)
            net_network_progress(network, 0);
    }
}

static void *play(void *argument)
{
    const side_t *side = argument;
    static const net_interfaces_t loopback = {"lo", NULL};
    const net_limit_t limit = {0, NULL};
    const net_key_t key = {{1, 2}};
    const uint32_t peer = 1 - side->rank;
    uint64_t flags[2] = {0}, sent = 0;
    uint8_t *windows = calloc(2, RELAY_WINDOW_BYTES), *data = calloc(1, RELAY_WINDOW_BYTES);
    const net_landing_t landing = {.windows = windows, .window_bytes = RELAY_WINDOW_BYTES, .flags = flags};
    net_address_t own, all[2];
    net_network_t *network;
    net_meeting_t *meeting;
    if (net_network_open(&loopback, NULL, &network, &own) != 0 ||
        net_meeting_join(&side->invitation, &key, side->rank, 2, 1, &limit, &meeting) != 0 ||
        net_meeting_exchange(meeting, &own, sizeof(own), all, &limit) != 0 ||
        net_network_connect(network, &side->invitation, &key, side->rank, 2, all, &landing, &limit) != 0)
        gpu_fail(__FILE__, __LINE__, "the network", "no connection");
    net_meeting_leave(meeting);
    uint64_t wanted = 0;
    for (size_t bytes = LEAST; bytes <= MOST; bytes *= 2) {
        double us[PUTS];
        pthread_barrier_wait(side->barrier);
        for (int i = 0; i < PUTS; i++) {
            const double begin = now_us();
            wanted += (bytes + RELAY_STEP_BYTES - 1) / RELAY_STEP_BYTES;
            if (side->rank == 0)
                put_all(network, peer, data, bytes, &sent);
            while (__atomic_load_n(&flags[peer], __ATOMIC_ACQUIRE) < wanted)
                net_network_progress(network, 0);
            if (side->rank == 1)
                put_all(network, peer, data, bytes, &sent);
            while (net_network_sent(network, peer) < sent)
                net_network_progress(network, 0);
            us[i] = (now_us() - begin) / 2;
        }
        if (side->rank == 0)
            printf("sockets,%zu,%.2f\n", bytes, median(us, PUTS));
    }
    pthread_barrier_wait(side->barrier);
    net_network_close(network);
    free(windows);
    free(data);
    return NULL;
}

static void time_network(void)
{
    static const net_interfaces_t loopback = {"lo", NULL};
    pthread_t thread[2];
    pthread_barrier_t barrier;
    side_t side[2] = {{.rank = 0, .barrier = &barrier}, {.rank = 1, .barrier = &barrier}};
    pthread_barrier_init(&barrier, NULL, 2);
    if (net_invite(&loopback, &side[0].invitation) != 0)
        gpu_fail(__FILE__, __LINE__, "net_invite", "no listener");
    side[1].invitation = side[0].invitation;
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, play, &side[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&barrier);
}

int main(int argc, char **argv)
{
    const uint32_t blocks = argc > 2 ? (uint32_t)atoi(argv[1]) : 4, threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 512;
    printf("part,bytes,us\n");
    time_looks();
    time_network();
    time_kernel("kernel", 1, blocks, threads);
    time_kernel("echo", 2, blocks, threads);
    return 0;
}
