/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every algorithm of every collective on real GPUs, in one process, against the reference: eager calls of random
 * algorithm, type, operator, size, alignment and grid on one scratch, then captured and replayed calls mixed with eager
 * ones. 2 to 8 ranks; with fewer GPUs several ranks share one, with small grids and only eager calls. Usage:
 * gpu_kernels [-g GPUs] [-n calls] [-s seed]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/algorithms/gpu_calls.h"
#include "tests/algorithms/gpu_draw.h"

enum { MOST_BYTES = GPU_BYTES, GRAPH_CALLS = 12, FEW = 4 };

static void launch(const gpu_team_t *g, const gpu_call_t *d)
{
    for (int r = 0; r < g->nranks; r++)
        gpu_call_launch(g, d, r);
}

static bool check(const gpu_team_t *g, const gpu_buffers_t *b, const gpu_call_t *d)
{
    for (int r = 0; r < g->nranks; r++) {
        if (!gpu_call_right(g, b, d, r))
            return false;
    }
    return true;
}

static int eager(gpu_team_t *g, const gpu_buffers_t *b, uint64_t *state, int calls, int only, size_t most_bytes)
{
    int wrong = 0;
    for (int i = 0; i < calls; i++) {
        const gpu_call_t d = gpu_call_draw(g, b, state, only, most_bytes);
        gpu_call_load(g, b, &d);
        launch(g, &d);
        gpu_team_sync(g);
        wrong += !check(g, b, &d);
    }
    return wrong;
}

/* Replay a graph of many calls that overwrite each other's buffers. Only the last call is checked; it is out of place,
 * so its input survives. Eager calls in between make the epoch odd. */
static int replayed(gpu_team_t *g, const gpu_buffers_t *b, uint64_t *state)
{
    gpu_call_t d[GRAPH_CALLS];
    cudaGraphExec_t exec[ALG_MAX_RANKS];
    gpu_buffers_t other;
    gpu_buffers_make(&other, g);
    for (int i = 0; i < GRAPH_CALLS; i++)
        d[i] = gpu_call_draw(g, i + 1 < GRAPH_CALLS ? &other : b, state, -1, 100000);
    while (d[GRAPH_CALLS - 1].in_place)
        d[GRAPH_CALLS - 1] = gpu_call_draw(g, b, state, -1, 100000);
    const gpu_call_t *last = &d[GRAPH_CALLS - 1];
    gpu_call_load(g, b, last);
    for (int r = 0; r < g->nranks; r++) {
        cudaGraph_t graph;
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaStreamBeginCapture(g->stream[r], cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < GRAPH_CALLS; i++)
            GPU((cudaError_t)d[i].algorithm->launch_cuda(&g->team[r], &d[i].call[r], g->stream[r]));
        GPU(cudaStreamEndCapture(g->stream[r], &graph));
        GPU(cudaGraphInstantiate(&exec[r], graph, 0));
        GPU(cudaGraphDestroy(graph));
    }
    int wrong = 0;
    for (int i = 0; i < GPU_REPLAYS && !wrong; i++) {
        for (int r = 0; r < g->nranks; r++) {
            GPU(cudaSetDevice(g->device[r]));
            GPU(cudaMemsetAsync(b->output[r], 0xa5, gpu_call_bytes(last, r), g->stream[r]));
            GPU(cudaGraphLaunch(exec[r], g->stream[r]));
        }
        gpu_team_sync(g);
        wrong += !check(g, b, last);
        if (data_below(state, 2))
            launch(g, &d[0]);
    }
    gpu_team_sync(g);
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaGraphExecDestroy(exec[r]));
    }
    gpu_buffers_free(&other, g);
    return wrong;
}

/* Two-shot calls in up to four segments: the halves become so small that the longest call needs about three. */
static int segmented(gpu_team_t *g, const gpu_buffers_t *b, uint64_t *state, int calls)
{
    const size_t half = (size_t)MOST_BYTES / 3 * 2 * (size_t)(g->nranks - 1) / (size_t)g->nranks / 4096 * 4096;
    const alg_algorithm_t *twoshot = alg_find(ALG_ALL_REDUCE, "twoshot");
    int number = 0;
    if (!twoshot || !gpu_call_drawn(g, twoshot)) /* emulated GPUs may have some kernels alone */
        return 0;
    while (alg_registry[number] != twoshot)
        number++;
    g->map.half_bytes = half;
    for (int r = 0; r < g->nranks; r++)
        g->team[r].half_bytes = half;
    return eager(g, b, state, calls, number, MOST_BYTES);
}

static int team(gpu_team_t *g, uint64_t *state, int calls)
{
    gpu_buffers_t b;
    int wrong = 0;
    gpu_buffers_make(&b, g);
    for (int a = 0; a < (int)alg_registry_count; a++)
        wrong += gpu_call_drawn(g, alg_registry[a]) ? eager(g, &b, state, calls / 4, a, 300000) : 0;
    wrong += eager(g, &b, state, calls, -1, 50000);
    wrong += eager(g, &b, state, 12, -1, MOST_BYTES);
    const int graphs = calls < FEW ? 1 : 4;
    for (int i = 0; i < graphs && !g->shared; i++) /* launching a graph may wait for running kernels */
        wrong += replayed(g, &b, state);
    wrong += segmented(g, &b, state, calls < FEW ? 2 : 16);
    gpu_buffers_free(&b, g);
    return wrong;
}

int main(int argc, char **argv)
{
    int gpus = 0, calls = 300, wrong = 0;
    uint64_t seed = (uint64_t)time(NULL);
    gpu_options(argc, argv, &gpus, &calls, &seed);
    alarm(GPU_SECONDS);
    gpus = gpu_count_or_skip(gpus, 1);
    for (int i = 0; i < ALG_MEMORY_COUNT * (ALG_MAX_RANKS - 1) && wrong == 0; i++) {
        gpu_team_t g;
        if (!gpu_has_memory((alg_memory_t)(i % ALG_MEMORY_COUNT)))
            continue;
        const int n = 2 + i / ALG_MEMORY_COUNT;
        uint64_t state = seed + (uint64_t)n;
        gpu_team_make(&g, n, gpus, (alg_memory_t)(i % ALG_MEMORY_COUNT), 80u << 20);
        wrong += team(&g, &state, calls);
        gpu_team_free(&g);
        printf("%d ranks on %d GPUs, %s memory, seed %llu: %d wrong\n", n, n < gpus ? n : gpus,
               g.map.memory == ALG_MEMORY_PINNED ? "pinned" : "device", (unsigned long long)seed, wrong);
        fflush(stdout);
    }
    return wrong != 0;
}
