/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of dispatch and combine, bf16, hidden size 7168, 8 of 64 experts, on all GPUs: in a graph of CALLS, and
 * eagerly, from one thread that launches for all ranks. Medians, us a call. Usage: gpu_experts_times [-g GPUs] [-n
 * rounds]
 * [-s blocks, 0: all multiprocessors]
 */
#include <stdio.h>
#include <stdlib.h>

#include "algorithms/experts/experts.h"
#include "tests/algorithms/gpu_team.h"
#include "tests/support/data.h"

enum { EXPERTS = 64, TOP_K = 8, HIDDEN = 7168, ROW = 2 * HIDDEN, MOST_TOKENS = 128, CALLS = 20, MOST_ROUNDS = 100 };

typedef struct rank_buffers {
    int32_t *choices, *counters, *out_choices;
    float *weights, *out_weights;
    void *rows, *out, *combined, *routes;
    cudaEvent_t begin, end;
} rank_buffers_t;

static gpu_team_t g_team;
static rank_buffers_t g_rank[ALG_MAX_RANKS];
static uint32_t g_blocks;

static void make_rank(int r, const alg_experts_shape_t *shape)
{
    rank_buffers_t *b = &g_rank[r];
    const size_t all = (size_t)shape->nranks * MOST_TOKENS;
    int32_t choices[MOST_TOKENS * TOP_K];
    float weights[MOST_TOKENS * TOP_K];
    uint64_t state = 7 + (uint64_t)r;
    for (int i = 0; i < MOST_TOKENS * TOP_K; i++) {
        bool again;
        do {
            choices[i] = (int32_t)data_below(&state, EXPERTS);
            again = false;
            for (int j = i / TOP_K * TOP_K; j < i; j++)
                again = again || choices[j] == choices[i];
        } while (again);
        weights[i] = 0.125f;
    }
    GPU(cudaMalloc((void **)&b->choices, sizeof choices));
    GPU(cudaMemcpy(b->choices, choices, sizeof choices, cudaMemcpyHostToDevice));
    GPU(cudaMalloc((void **)&b->weights, sizeof weights));
    GPU(cudaMemcpy(b->weights, weights, sizeof weights, cudaMemcpyHostToDevice));
    GPU(cudaMalloc((void **)&b->counters, EXPERTS * 4));
    GPU(cudaMalloc((void **)&b->out_choices, all * TOP_K * 4));
    GPU(cudaMalloc((void **)&b->out_weights, all * TOP_K * 4));
    GPU(cudaMalloc(&b->rows, (size_t)MOST_TOKENS * ROW));
    GPU(cudaMemset(b->rows, 0x3c, (size_t)MOST_TOKENS * ROW));
    GPU(cudaMalloc(&b->out, all * EXPERTS / shape->nranks * ROW));
    GPU(cudaMalloc(&b->combined, (size_t)MOST_TOKENS * ROW));
    GPU(cudaMalloc(&b->routes, alg_experts_routes_bytes(shape, TOP_K)));
    GPU(cudaEventCreate(&b->begin));
    GPU(cudaEventCreate(&b->end));
}

static alg_experts_call_t call_of(int r, bool combine, bool rank_major, uint32_t tokens)
{
    const rank_buffers_t *b = &g_rank[r];
    return (alg_experts_call_t){.combine = combine,
                                .rank_major = rank_major,
                                .phases = ALG_EXPERTS_BOTH,
                                .tokens = tokens,
                                .top_k = TOP_K,
                                .choices = b->choices,
                                .weights = combine != rank_major ? b->weights : NULL,
                                .token_bytes = ROW,
                                .routes = b->routes,
                                .rows = combine ? b->out : b->rows,
                                .out = combine ? b->combined : b->out,
                                .out_weights = b->out_weights,
                                .out_choices = b->out_choices,
                                .counters = b->counters,
                                .type = ALG_BFLOAT16,
                                .blocks = g_blocks};
}

/* what: 1 dispatches, 2 combines, 3 both. */
static void enqueue(int r, const alg_experts_shape_t *shape, int what, bool rank_major, uint32_t tokens)
{
    for (int i = 0; i < 2; i++) {
        const alg_experts_call_t call = call_of(r, i == 1, rank_major, tokens);
        if (what >> i & 1)
            GPU((cudaError_t)alg_experts_launch_cuda(&g_team.team[r], shape, &call, g_team.stream[r]));
    }
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The slowest rank's time from its first to its last call, us a call. */
static float round_us(const cudaGraphExec_t *graph, const alg_experts_shape_t *shape, int what, bool rank_major,
                      uint32_t tokens)
{
    float most = 0;
    for (int r = 0; r < g_team.nranks; r++) {
        GPU(cudaSetDevice(g_team.device[r]));
        GPU(cudaEventRecord(g_rank[r].begin, g_team.stream[r]));
        if (graph)
            GPU(cudaGraphLaunch(graph[r], g_team.stream[r]));
    }
    for (int i = 0; i < CALLS && !graph; i++) {
        for (int r = 0; r < g_team.nranks; r++) {
            GPU(cudaSetDevice(g_team.device[r]));
            enqueue(r, shape, what, rank_major, tokens);
        }
    }
    for (int r = 0; r < g_team.nranks; r++) {
        GPU(cudaSetDevice(g_team.device[r]));
        GPU(cudaEventRecord(g_rank[r].end, g_team.stream[r]));
    }
    gpu_team_sync(&g_team);
    for (int r = 0; r < g_team.nranks; r++) {
        float ms;
        GPU(cudaEventElapsedTime(&ms, g_rank[r].begin, g_rank[r].end));
        most = ms * 1000 / CALLS > most ? ms * 1000 / CALLS : most;
    }
    return most;
}

static float median_us(const alg_experts_shape_t *shape, bool graphs, int what, bool rank_major, uint32_t tokens,
                       int rounds)
{
    static float us[MOST_ROUNDS];
    cudaGraphExec_t exec[ALG_MAX_RANKS];
    for (int r = 0; r < g_team.nranks && graphs; r++) {
        cudaGraph_t graph;
        GPU(cudaSetDevice(g_team.device[r]));
        GPU(cudaStreamBeginCapture(g_team.stream[r], cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < CALLS; i++)
            enqueue(r, shape, what, rank_major, tokens);
        GPU(cudaStreamEndCapture(g_team.stream[r], &graph));
        GPU(cudaGraphInstantiate(&exec[r], graph, 0));
        GPU(cudaGraphDestroy(graph));
    }
    for (int i = -3; i < rounds; i++)
        us[i < 0 ? 0 : i] = round_us(graphs ? exec : NULL, shape, what, rank_major, tokens);
    for (int r = 0; r < g_team.nranks && graphs; r++)
        GPU(cudaGraphExecDestroy(exec[r]));
    qsort(us, (size_t)rounds, sizeof *us, ascending);
    return us[rounds / 2];
}

int main(int argc, char **argv)
{
    int gpus = 0, rounds = 20;
    uint64_t blocks = 0;
    gpu_options(argc, argv, &gpus, &rounds, &blocks);
    if (rounds < 1 || rounds > MOST_ROUNDS)
        return 2;
    gpus = gpu_count_or_skip(gpus, 2);
    const alg_experts_shape_t shape = {(uint32_t)gpus, EXPERTS, MOST_TOKENS, TOP_K, ROW, 0};
    alg_map_t map;
    int multiprocessors;
    if (EXPERTS % gpus != 0 || !alg_experts_map(&shape, &map))
        gpu_fail(__FILE__, __LINE__, "alg_experts_map", "refused");
    gpu_team_make_map(&g_team, gpus, gpus, &map);
    for (int r = 0; r < gpus; r++) {
        GPU(cudaSetDevice(g_team.device[r]));
        GPU((cudaError_t)alg_experts_preload_cuda(&shape));
        make_rank(r, &shape);
    }
    GPU(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    g_blocks = alg_experts_grid((uint32_t)multiprocessors, (uint32_t)blocks);
    printf("ranks,blocks,layout,tokens,mode,dispatch_us,combine_us,both_us\n");
    static const uint32_t tokens[] = {1, 8, 32, 128};
    for (int i = 0; i < 16; i++) {
        const bool rank_major = i / 8, graphs = i % 2 == 0;
        float us[4];
        for (int what = 1; what <= 3; what++)
            us[what] = median_us(&shape, graphs, what, rank_major, tokens[i / 2 % 4], rounds);
        printf("%d,%u,%s,%u,%s,%.2f,%.2f,%.2f\n", gpus, g_blocks, rank_major ? "rank-major" : "expert-major",
               tokens[i / 2 % 4], graphs ? "graph" : "eager", us[1], us[2], us[3]);
    }
    return 0;
}
