/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No launch waits for running kernels, since the set-up has loaded all kernels (preload_cuda). Otherwise a thread that
 * drives several GPUs could hang, or a message that waits for a peer beside a call whose launch waits for that message.
 * While a kernel waits for a rank that never calls, the test launches every kernel on a failed scratch, where it ends
 * at once. Needs 2 GPUs. Usage: gpu_loads [-g GPUs]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/algorithms/gpu_team.h"

enum { PATIENCE_S = 10, BLOCK = 4096, AREA = 1 << 20 };

static uint8_t *area;

/* Rank 0 of `g` makes a call, whose kernel waits until an abort. */
static void wait_alone(gpu_team_t *g)
{
    const uint64_t first = 0;
    const alg_call_t call = {.collective = ALG_ALL_GATHER,
                             .input = area,
                             .output = area + BLOCK,
                             .count = 64,
                             .type = ALG_UINT8,
                             .blocks = 1,
                             .threads = 32};
    GPU(cudaStreamSynchronize(g->stream[0]));
    GPU(cudaMemcpy(g->team[0].own + ALG_EPOCH_OFFSET, &first, sizeof first, cudaMemcpyHostToDevice));
    memset((void *)g->control[0], 0, sizeof *g->control[0]);
    GPU((cudaError_t)alg_find(ALG_ALL_GATHER, "push")->launch_cuda(&g->team[0], &call, g->stream[0]));
}

static void launch(gpu_team_t *g, const alg_algorithm_t *algorithm, alg_type_t type, alg_op_t op, bool whole)
{
    const size_t off = whole ? 0 : alg_type_bytes(type);
    const alg_call_t call = {.collective = algorithm->collective,
                             .input = area + off,
                             .output = area + AREA / 2 + off,
                             .count = 256,
                             .type = type,
                             .op = op,
                             .blocks = 1,
                             .threads = 64};
    GPU((cudaError_t)algorithm->launch_cuda(&g->team[0], &call, g->stream[0]));
}

/* A thread that ends the waiting kernel if a launch does not return for PATIENCE_S, since it waits for that kernel. */
typedef struct patience {
    alg_control_t *control; /* of the waiting kernel */
    atomic_int launches;
    atomic_bool ended; /* by the test */
    atomic_bool lost;
} patience_t;

static void *patience_main(void *argument)
{
    enum { STEPS_A_SECOND = 100 };
    patience_t *p = argument;
    int seen = -1, still = 0;
    while (!atomic_load(&p->ended)) {
        const int now = atomic_load(&p->launches);
        still = now == seen ? still + 1 : 0;
        seen = now;
        if (still == PATIENCE_S * STEPS_A_SECOND) {
            p->lost = true;
            __atomic_store_n(&p->control->abort, 1, __ATOMIC_RELEASE);
            break;
        }
        usleep(1000000 / STEPS_A_SECOND);
    }
    return NULL;
}

/* Returns whether all launches of `g` returned while the kernel of `waiting` was waiting. */
static bool launch_all(gpu_team_t *waiting, gpu_team_t *g)
{
    static const alg_op_t ops[] = {ALG_SUM, ALG_MAX, ALG_PROD}; /* one of each kind (device/reduce.h) */
    patience_t p = {.control = waiting->control[0]};
    pthread_t watcher;
    wait_alone(waiting);
    if (pthread_create(&watcher, NULL, patience_main, &p) != 0) {
        perror("pthread_create");
        exit(1);
    }
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        const alg_algorithm_t *algorithm = alg_registry[i];
        if (algorithm->memory != ALG_MEMORY_PEER || algorithm->collective == ALG_SEND_RECV)
            continue;
        for (int type = 0; type < ALG_TYPE_COUNT; type++) {
            for (int kind = 0; kind < 3 * 2; kind++) {
                const bool lost = p.lost;
                launch(g, algorithm, (alg_type_t)type, ops[kind / 2], kind % 2);
                atomic_fetch_add(&p.launches, 1);
                if (p.lost && !lost)
                    printf("%s %s, %d ranks, type %d, operator %d, %s: the launch waited for a running kernel\n",
                           alg_collective_name(algorithm->collective), algorithm->name, g->nranks, type, ops[kind / 2],
                           kind % 2 ? "aligned" : "unaligned");
            }
        }
    }
    const cudaError_t state = cudaStreamQuery(waiting->stream[0]);
    if (!p.lost && state != cudaErrorNotReady)
        printf("%d ranks: the waiting kernel ended too early: %s\n", g->nranks, cudaGetErrorString(state));
    atomic_store(&p.ended, true);
    pthread_join(watcher, NULL);
    __atomic_store_n(&p.control->abort, 1, __ATOMIC_RELEASE);
    GPU(cudaStreamSynchronize(g->stream[0]));
    GPU(cudaStreamSynchronize(waiting->stream[0]));
    printf("%d ranks: %d launches\n", g->nranks, atomic_load(&p.launches));
    return !p.lost && state == cudaErrorNotReady;
}

int main(int argc, char **argv)
{
    int gpus = 0, unused = 0;
    bool right = true;
    uint64_t seed = 0;
    gpu_options(argc, argv, &gpus, &unused, &seed);
    alarm(100);
    gpus = gpu_count_or_skip(gpus, 2);
    for (int n = 2; n <= ALG_MAX_RANKS; n = n < 4 ? n + 1 : n * 2) { /* each has kernels of its own */
        gpu_team_t waiting, g;
        const uint64_t stopped = ALG_EPOCH_STOPPED;
        gpu_team_make(&waiting, 2, 2, ALG_MEMORY_PEER, 80u << 20);
        gpu_team_make(&g, n, 1, ALG_MEMORY_PEER, 80u << 20);
        GPU(cudaSetDevice(0));
        GPU(cudaMalloc((void **)&area, AREA));
        GPU(cudaMemcpy(g.team[0].own + ALG_EPOCH_OFFSET, &stopped, sizeof stopped, cudaMemcpyHostToDevice));
        waiting.team[0].limit = alg_limit(0, 0);
        GPU(cudaDeviceSynchronize());
        right &= launch_all(&waiting, &g);
        GPU(cudaFree(area));
        gpu_team_free(&waiting);
        gpu_team_free(&g);
    }
    return !right;
}
