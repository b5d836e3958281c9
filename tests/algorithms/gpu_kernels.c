/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every algorithm of every collective on real GPUs, in one process, against the
 * reference: eager calls of random algorithm, type, operator, size, alignment
 * and grid on one scratch, then the same captured and replayed, mixed with
 * eager calls. 2 to 8 ranks; where there are fewer GPUs, several share one, with
 * small grids and eagerly alone. Usage: gpu_kernels [-g GPUs] [-n calls] [-s seed]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/algorithms/gpu_draw.h"
#include "tests/algorithms/gpu_team.h"
#include "tests/support/collective.h"

enum { MOST_BYTES = GPU_BYTES, SLACK = 64, GRAPH_CALLS = 12, REPLAYS = 50, SHARED_BLOCKS = 16 };

typedef struct buffers {
    uint8_t *input[ALG_MAX_RANKS], *output[ALG_MAX_RANKS]; /* device */
} buffers_t;

typedef struct draw {
    const alg_algorithm_t *algorithm;
    coll_t k;
    alg_call_t call[ALG_MAX_RANKS];
    bool in_place;
} draw_t;

static uint8_t *host, *landed;

static void buffers_make(buffers_t *b, const gpu_team_t *g)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaMalloc((void **)&b->input[r], MOST_BYTES + 2 * SLACK));
        GPU(cudaMalloc((void **)&b->output[r], MOST_BYTES + 2 * SLACK));
    }
}

static void buffers_free(const buffers_t *b, const gpu_team_t *g)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaFree(b->input[r]));
        GPU(cudaFree(b->output[r]));
    }
}

/* A build may have only the algorithms of one memory. */
static bool in_build(alg_memory_t memory)
{
    bool any = false;
    for (uint32_t i = 0; i < alg_registry_count; i++)
        any = any || alg_registry[i]->memory == memory;
    return any;
}

/* Messages: gpu_pairs.c. */
static bool drawn(const gpu_team_t *g, const alg_algorithm_t *algorithm)
{
    return algorithm->memory == g->map.memory && algorithm->collective != ALG_SEND_RECV;
}

static draw_t draw(const gpu_team_t *g, const buffers_t *b, uint64_t *state, int only, size_t most_bytes)
{
    static const size_t awkward[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 127, 1000, 4097, 16384, 65537};
    draw_t d;
    do {
        d = (draw_t){.algorithm = alg_registry[only >= 0 ? (uint64_t)only : data_below(state, alg_registry_count)]};
    } while (!drawn(g, d.algorithm));
    const uint32_t nranks = (uint32_t)g->nranks;
    d.k.collective = d.algorithm->collective;
    d.k.root = (uint32_t)data_below(state, nranks);
    d.k.c = (data_case_t){.type = gpu_draw_type(state),
                          .op = (ref_op_t)data_below(state, REF_OPS),
                          .kind = (data_kind_t)data_below(state, DATA_KINDS),
                          .seed = data_random(state),
                          .nranks = g->nranks};
    const size_t width = alg_type_bytes((alg_type_t)d.k.c.type);
    const uint32_t parts = alg_collective_blocks(d.k.collective, nranks);
    size_t most = d.algorithm->max_bytes(&g->map, nranks, (alg_type_t)d.k.c.type);
    most_bytes = most_bytes < MOST_BYTES ? most_bytes : MOST_BYTES;
    most = (most < most_bytes ? most : most_bytes) / width / parts;
    size_t count = data_below(state, 4) ? awkward[data_below(state, sizeof awkward / sizeof awkward[0])]
                                        : 1 + data_below(state, most);
    d.k.c.count = count < most ? count : most;
    d.in_place = data_below(state, 2) && d.k.collective != ALG_ALL_TO_ALL;
    const uint64_t most_blocks = g->shared && GPU_BLOCKS > (int)SHARED_BLOCKS ? (int)SHARED_BLOCKS : GPU_BLOCKS;
    uint32_t blocks = 1 + (uint32_t)data_below(state, most_blocks), threads = 32u << data_below(state, GPU_DOUBLED + 1);
    d.algorithm->shape(d.k.c.count * width * parts, nranks, &blocks, &threads);
    for (uint32_t r = 0; r < nranks; r++) {
        const size_t shift = data_below(state, 3) ? 0 : data_below(state, 16 / width) * width;
        const ptrdiff_t at = coll_in_place_at(&d.k, r) * (ptrdiff_t)width;
        uint8_t *input = b->input[r] + SLACK + shift / 2 / width * width, *output = b->output[r] + SLACK + shift;
        if (!coll_input_count(&d.k, r) || !coll_output_count(&d.k, r)) {
            /* one buffer only, so in place does not apply */
        } else if (d.in_place && at < 0) { /* the input holds the output */
            input = output;
            output = input - at;
        } else if (d.in_place) {
            input = output + at;
        }
        d.call[r] = (alg_call_t){.collective = d.k.collective,
                                 .root = d.k.root,
                                 .input = coll_input_count(&d.k, r) ? input : NULL,
                                 .output = coll_output_count(&d.k, r) ? output : NULL,
                                 .count = d.k.c.count,
                                 .type = (alg_type_t)d.k.c.type,
                                 .op = (alg_op_t)d.k.c.op,
                                 .blocks = blocks,
                                 .threads = threads,
                                 .most_blocks = (uint32_t)data_below(state, 2 * blocks),
                                 .early = !g->shared && data_below(state, 2)};
        data_scalar(&d.k.c, (int)r, &d.call[r].scalar_bits);
    }
    return d;
}

/* All bytes that a rank's call may touch, and a margin around them. */
static size_t extent(const draw_t *d, int r)
{
    const size_t in = coll_input_count(&d->k, (uint32_t)r), out = coll_output_count(&d->k, (uint32_t)r);
    const size_t bytes = (in > out ? in : out) * alg_type_bytes((alg_type_t)d->k.c.type);
    return bytes < MOST_BYTES ? bytes + 2 * SLACK : MOST_BYTES + 2 * SLACK;
}

static void load(gpu_team_t *g, const buffers_t *b, const draw_t *d)
{
    const size_t width = alg_type_bytes((alg_type_t)d->k.c.type);
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaMemsetAsync(b->output[r], 0xa5, extent(d, r), g->stream[r]));
        if (d->call[r].input) {
            coll_fill(&d->k, (uint32_t)r, host);
            GPU(cudaMemcpyAsync((void *)d->call[r].input, host, coll_input_count(&d->k, (uint32_t)r) * width,
                                cudaMemcpyHostToDevice, g->stream[r]));
        }
        GPU(cudaStreamSynchronize(g->stream[r]));
    }
}

static void launch(gpu_team_t *g, const draw_t *d)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU((cudaError_t)d->algorithm->launch_cuda(&g->team[r], &d->call[r], g->stream[r]));
    }
}

/* Whether a byte of rank r's output buffer may differ from its poison. */
static bool may_change(const draw_t *d, const buffers_t *b, int r, size_t i)
{
    const size_t width = alg_type_bytes((alg_type_t)d->k.c.type);
    const uint8_t *byte = b->output[r] + i, *output = d->call[r].output, *input = d->call[r].input;
    if (output && byte >= output && byte < output + coll_output_count(&d->k, (uint32_t)r) * width)
        return true;
    return input && byte >= input && byte < input + coll_input_count(&d->k, (uint32_t)r) * width;
}

/* The result is right everywhere, and the bytes around it are unchanged. */
static bool check(gpu_team_t *g, const buffers_t *b, const draw_t *d)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        const size_t bytes = extent(d, r);
        GPU(cudaMemcpy(landed, b->output[r], bytes, cudaMemcpyDeviceToHost));
        char fault[160] = "";
        bool right = true;
        for (size_t i = 0; i < bytes && right; i++)
            right = landed[i] == 0xa5 || may_change(d, b, r, i);
        if (!right)
            snprintf(fault, sizeof fault, "bytes around the output were written");
        else if (d->call[r].output)
            right = coll_right(&d->k, (uint32_t)r, landed + ((uint8_t *)d->call[r].output - b->output[r]), fault,
                               sizeof fault);
        if (!right) {
            printf("wrong: %s %s %s %s count %zu root %u blocks %u of %u threads %u in place %d rank %d: %s\n",
                   alg_collective_name(d->k.collective), d->algorithm->name, ref_type_name(d->k.c.type),
                   ref_op_name(d->k.c.op), d->k.c.count, d->k.root, d->call[r].most_blocks, d->call[r].blocks,
                   d->call[r].threads, d->in_place, r, fault);
            return false;
        }
    }
    return true;
}

static int eager(gpu_team_t *g, const buffers_t *b, uint64_t *state, int calls, int only, size_t most_bytes)
{
    int wrong = 0;
    for (int i = 0; i < calls; i++) {
        const draw_t d = draw(g, b, state, only, most_bytes);
        load(g, b, &d);
        launch(g, &d);
        gpu_team_sync(g);
        wrong += !check(g, b, &d);
    }
    return wrong;
}

/* A graph of many calls that overwrite each other's buffers; only the last is checked, out of place, so its input
 * survives. Eager calls in between make the epoch odd. */
static int replayed(gpu_team_t *g, const buffers_t *b, uint64_t *state)
{
    draw_t d[GRAPH_CALLS];
    cudaGraphExec_t exec[ALG_MAX_RANKS];
    buffers_t other;
    buffers_make(&other, g);
    for (int i = 0; i < GRAPH_CALLS; i++)
        d[i] = draw(g, i + 1 < GRAPH_CALLS ? &other : b, state, -1, 100000);
    while (d[GRAPH_CALLS - 1].in_place)
        d[GRAPH_CALLS - 1] = draw(g, b, state, -1, 100000);
    const draw_t *last = &d[GRAPH_CALLS - 1];
    load(g, b, last);
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
    for (int i = 0; i < REPLAYS && !wrong; i++) {
        for (int r = 0; r < g->nranks; r++) {
            GPU(cudaSetDevice(g->device[r]));
            GPU(cudaMemsetAsync(b->output[r], 0xa5, extent(last, r), g->stream[r]));
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
    buffers_free(&other, g);
    return wrong;
}

static int team(gpu_team_t *g, uint64_t *state, int calls)
{
    buffers_t b;
    int wrong = 0;
    buffers_make(&b, g);
    for (int a = 0; a < (int)alg_registry_count; a++)
        wrong += drawn(g, alg_registry[a]) ? eager(g, &b, state, calls / 4, a, 300000) : 0;
    wrong += eager(g, &b, state, calls, -1, 50000);
    wrong += eager(g, &b, state, 12, -1, MOST_BYTES);
    for (int i = 0; i < 4 && !g->shared; i++) /* launching a graph may wait for running kernels */
        wrong += replayed(g, &b, state);
    buffers_free(&b, g);
    return wrong;
}

int main(int argc, char **argv)
{
    int gpus = 0, calls = 300, wrong = 0;
    uint64_t seed = (uint64_t)time(NULL);
    gpu_options(argc, argv, &gpus, &calls, &seed);
    alarm(GPU_SECONDS);
    gpus = gpu_count_or_skip(gpus);
    host = malloc(MOST_BYTES);
    landed = malloc(MOST_BYTES + 2 * SLACK);
    if (!host || !landed)
        return 1;
    for (int i = 0; i < ALG_MEMORY_COUNT * (ALG_MAX_RANKS - 1); i++) {
        gpu_team_t g;
        if (!in_build((alg_memory_t)(i % ALG_MEMORY_COUNT)))
            continue;
        const int n = 2 + i / ALG_MEMORY_COUNT;
        uint64_t state = seed + (uint64_t)n;
        gpu_team_make(&g, n, gpus, (alg_memory_t)(i % ALG_MEMORY_COUNT), 80u << 20);
        wrong += team(&g, &state, calls);
        gpu_team_free(&g);
        printf("%d ranks on %d GPUs, %s memory, seed %llu: %d wrong\n", n, n < gpus ? n : gpus,
               g.map.memory == ALG_MEMORY_SHM ? "the host's" : "device", (unsigned long long)seed, wrong);
        fflush(stdout);
    }
    return wrong != 0;
}
