/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No launch waits for running kernels, since the set-up has loaded all kernels (preload_cuda). Otherwise a thread that
 * drives several GPUs could hang, or a message that waits for a peer beside a call whose launch waits for that message.
 * While a kernel waits for a rank that never calls, the test launches every kernel on a failed scratch, where it ends
 * at once. Needs 2 GPUs. Usage: gpu_loads [-g GPUs]
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/algorithms/gpu_team.h"

enum { WAIT_MS = 150, SLOW_MS = 20, BLOCK = 4096, AREA = 1 << 20 };

static uint8_t *area;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Rank 0 of `g` makes a call, whose kernel waits until its time limit. */
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

/* Launch a kernel of rank 0 of `g`; returns whether the launch took too long. */
static bool launch(gpu_team_t *g, const alg_algorithm_t *algorithm, alg_type_t type, alg_op_t op, bool whole)
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
    const double begin = now_ms();
    GPU((cudaError_t)algorithm->launch_cuda(&g->team[0], &call, g->stream[0]));
    const double ms = now_ms() - begin;
    if (ms > SLOW_MS)
        printf("%s %s, %d ranks, type %d, operator %d, %s: the launch took %.0f ms\n",
               alg_collective_name(algorithm->collective), algorithm->name, g->nranks, type, op,
               whole ? "aligned" : "unaligned", ms);
    return ms > SLOW_MS;
}

static int launch_all(gpu_team_t *waiting, gpu_team_t *g)
{
    static const alg_op_t ops[] = {ALG_SUM, ALG_MAX, ALG_PROD}; /* one of each kind (device/reduce.h) */
    int launches = 0, slow = 0;
    wait_alone(waiting);
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i]->memory != ALG_MEMORY_PEER || alg_registry[i]->collective == ALG_SEND_RECV)
            continue;
        for (int type = 0; type < ALG_TYPE_COUNT; type++) {
            for (int kind = 0; kind < 3 * 2; kind++) {
                launches++;
                if (launch(g, alg_registry[i], (alg_type_t)type, ops[kind / 2], kind % 2)) {
                    slow++;
                    wait_alone(waiting);
                }
            }
        }
    }
    GPU(cudaStreamSynchronize(g->stream[0]));
    GPU(cudaStreamSynchronize(waiting->stream[0]));
    printf("%d ranks: %d launches, %d waited\n", g->nranks, launches, slow);
    return slow;
}

int main(int argc, char **argv)
{
    int gpus = 0, unused = 0, slow = 0;
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
        waiting.team[0].limit = alg_limit(WAIT_MS * UINT64_C(1000000), 0);
        GPU(cudaDeviceSynchronize());
        slow += launch_all(&waiting, &g);
        GPU(cudaFree(area));
        gpu_team_free(&waiting);
        gpu_team_free(&g);
    }
    return slow != 0;
}
