/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Speed of a scatter's data leaving a GPU, on all GPUs at once, with no rank
 * waiting for it: the bound of every all-reduce here. By a kernel's stores, which
 * go from peer rank + 1 on, tile by tile; and by copy engines, one copy to a peer
 * after the other, alone and between two kernels. CSV on stdout: the median of
 * some rounds, of the slowest GPU. Usage: gpu_stores [-g GPUs]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "tests/algorithms/gpu_team.h"
}

enum { ROUNDS = 5, THREADS = 512, MIB = 1 << 20, MOST_BYTES = 128 * MIB };

typedef struct args {
    const uint4 *input;
    uint4 *peer[ALG_MAX_RANKS];
    uint32_t rank, nranks;
    uint32_t slice; /* vectors */
} args_t;

/* Tiles of B rows of the grid. */
template <int B> static __global__ void __launch_bounds__(THREADS) scatter(const __grid_constant__ args_t a)
{
    const uint32_t stride = gridDim.x * blockDim.x;
    for (uint32_t v = blockIdx.x * blockDim.x + threadIdx.x; v < a.slice; v += stride * B) {
        for (uint32_t i = 1; i < a.nranks; i++) {
            const uint32_t owner = (a.rank + i) % a.nranks;
            uint4 x[B];
#pragma unroll
            for (int b = 0; b < B; b++) {
                if (v + b * stride < a.slice)
                    x[b] = a.input[(size_t)owner * a.slice + v + b * stride];
            }
#pragma unroll
            for (int b = 0; b < B; b++) {
                if (v + b * stride < a.slice)
                    a.peer[owner][(size_t)a.rank * a.slice + v + b * stride] = x[b];
            }
        }
    }
}

static __global__ void nothing()
{
}

/* Holds the stream until all GPUs have their work. */
static __global__ void hold(volatile int *go)
{
    while (!*go)
        ;
}

typedef enum { TILES_1, TILES_4, COPIES, COPIES_BETWEEN_KERNELS } how_t;
static const char *const names[] = {"tile1", "tile4", "ce-serial", "ce-kernels"};

static void enqueue(how_t how, const args_t *a, uint32_t blocks, cudaStream_t stream)
{
    if (how == TILES_1)
        scatter<1><<<blocks, THREADS, 0, stream>>>(*a);
    else if (how == TILES_4)
        scatter<4><<<blocks, THREADS, 0, stream>>>(*a);
    if (how == COPIES_BETWEEN_KERNELS)
        nothing<<<1, 32, 0, stream>>>();
    const size_t bytes = (size_t)a->slice * 16;
    for (uint32_t i = 1; i < a->nranks && how >= COPIES; i++) {
        const uint32_t owner = (a->rank + i) % a->nranks;
        GPU(cudaMemcpyAsync((char *)a->peer[owner] + a->rank * bytes, (const char *)a->input + owner * bytes, bytes,
                            cudaMemcpyDeviceToDevice, stream));
    }
    if (how == COPIES_BETWEEN_KERNELS)
        nothing<<<1, 32, 0, stream>>>();
    GPU(cudaGetLastError());
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* us a call, of `calls` in a graph. */
static float measure(gpu_team_t *g, how_t how, const args_t *args, uint32_t blocks, int calls, volatile int *go)
{
    cudaGraphExec_t exec[ALG_MAX_RANKS];
    cudaEvent_t begin[ALG_MAX_RANKS], end[ALG_MAX_RANKS];
    float round[ROUNDS];
    for (int r = 0; r < g->nranks; r++) {
        cudaGraph_t graph;
        GPU(cudaSetDevice(r));
        GPU(cudaEventCreate(&begin[r]));
        GPU(cudaEventCreate(&end[r]));
        GPU(cudaStreamBeginCapture(g->stream[r], cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < calls; i++)
            enqueue(how, &args[r], blocks, g->stream[r]);
        GPU(cudaStreamEndCapture(g->stream[r], &graph));
        GPU(cudaGraphInstantiate(&exec[r], graph, 0));
        GPU(cudaGraphDestroy(graph));
    }
    for (int i = 0; i < ROUNDS; i++) {
        *go = 0;
        for (int r = 0; r < g->nranks; r++) {
            GPU(cudaSetDevice(r));
            hold<<<1, 1, 0, g->stream[r]>>>(go);
            GPU(cudaEventRecord(begin[r], g->stream[r]));
            GPU(cudaGraphLaunch(exec[r], g->stream[r]));
            GPU(cudaEventRecord(end[r], g->stream[r]));
        }
        *go = 1;
        gpu_team_sync(g);
        round[i] = 0;
        for (int r = 0; r < g->nranks; r++) {
            float ms;
            GPU(cudaEventElapsedTime(&ms, begin[r], end[r]));
            round[i] = ms > round[i] ? ms : round[i];
        }
    }
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(r));
        GPU(cudaGraphExecDestroy(exec[r]));
        GPU(cudaEventDestroy(begin[r]));
        GPU(cudaEventDestroy(end[r]));
    }
    qsort(round, ROUNDS, sizeof round[0], by_size);
    return round[ROUNDS / 2] * 1000 / (float)calls;
}

/* Measure and print a row. `bytes` is the size of the scattered message; blocks 0: copy engines. */
static void row(gpu_team_t *g, how_t how, args_t *args, size_t bytes, uint32_t blocks, volatile int *go)
{
    for (int r = 0; r < g->nranks; r++)
        args[r].slice = (uint32_t)(bytes / (size_t)g->nranks / 16);
    const double sent = (double)(g->nranks - 1) * args[0].slice * 16;
    const float us = measure(g, how, args, blocks, bytes > 32 * MIB ? 5 : 20, go);
    printf("%s,%d,%g,%u,%.2f,%.1f\n", names[how], g->nranks, (double)bytes / MIB, blocks, us, sent / us / 1000);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const uint32_t grids[] = {16, 32, 64};
    const size_t sizes[] = {4 * (size_t)MIB, 16 * (size_t)MIB, MOST_BYTES};
    gpu_team_t g;
    args_t args[ALG_MAX_RANKS];
    int *go;
    const int gpus = gpu_count_or_skip(argc == 3 && strcmp(argv[1], "-g") == 0 ? atoi(argv[2]) : 0, 2);
    gpu_team_make(&g, gpus, gpus, ALG_MEMORY_PEER, 1 << 20);
    GPU(cudaHostAlloc((void **)&go, sizeof *go, cudaHostAllocMapped | cudaHostAllocPortable));
    for (int r = 0; r < g.nranks; r++) {
        uint4 *input, *landing;
        GPU(cudaSetDevice(r));
        GPU(cudaMalloc((void **)&input, MOST_BYTES));
        GPU(cudaMalloc((void **)&landing, MOST_BYTES));
        GPU(cudaMemset(input, r + 1, MOST_BYTES));
        GPU(cudaDeviceSynchronize());
        args[r].input = input;
        args[r].rank = (uint32_t)r;
        args[r].nranks = (uint32_t)g.nranks;
        for (int p = 0; p < g.nranks; p++)
            args[p].peer[r] = landing;
    }
    printf("what,gpus,megabytes,blocks,us,GBps\n");
    for (size_t bytes : sizes) {
        for (uint32_t blocks : grids) {
            row(&g, TILES_1, args, bytes, blocks, go);
            row(&g, TILES_4, args, bytes, blocks, go);
        }
        row(&g, COPIES, args, bytes, 0, go);
        row(&g, COPIES_BETWEEN_KERNELS, args, bytes, 0, go);
    }
    gpu_team_free(&g);
    return 0;
}
