/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_team.h - a team of several GPUs in one process and one thread, without
 * shim and transport: for tests and sweeps of the kernels alone.
 */
#ifndef TEST_GPU_TEAM_H
#define TEST_GPU_TEAM_H

#include <cuda_runtime.h>

#include "algorithms/algorithm.h"

typedef struct gpu_team {
    int nranks;
    int device[ALG_MAX_RANKS];
    bool shared; /* several ranks on a GPU */
    alg_map_t map;
    alg_team_t team[ALG_MAX_RANKS];
    cudaStream_t stream[ALG_MAX_RANKS];
    alg_control_t *control[ALG_MAX_RANKS];
} gpu_team_t;

/* Report and end the program with status 1. */
void gpu_fail(const char *file, int line, const char *what, const char *why) __attribute__((noreturn));

#define GPU(call)                                                               \
    do {                                                                        \
        cudaError_t gpu_error = (call);                                         \
        if (gpu_error != cudaSuccess)                                           \
            gpu_fail(__FILE__, __LINE__, #call, cudaGetErrorString(gpu_error)); \
    } while (0)

/* Parse -g GPUS -n AMOUNT -s SEED; values that are not given stay unchanged. Other arguments end the program with
 * status 2. */
void gpu_options(int argc, char **argv, int *gpus, int *amount, uint64_t *seed);
/* Whether the build has algorithms of this memory; it may have those of only one. */
bool gpu_has_memory(alg_memory_t memory);
/* The number of GPUs to use: all, or `wanted`. With fewer than `least`, prints the reason and ends the program with
 * status 77. */
int gpu_count_or_skip(int wanted, int least);
/* The number of ranks of the largest team; with few GPUs some ranks share one. */
int gpu_most_ranks(int gpus);
/* Make a team with rank r on GPU r % gpus. The grids of ranks that share a GPU must fit on it twice over, as a small
 * grid lets its successor in while it runs. */
void gpu_team_make(gpu_team_t *g, int nranks, int gpus, alg_memory_t memory, size_t scratch_bytes);
/* The same with this map, without loading kernels. */
void gpu_team_make_map(gpu_team_t *g, int nranks, int gpus, const alg_map_t *map);
void gpu_team_free(gpu_team_t *g);
/* Wait for all streams. A kernel that reached its time limit ends the program. */
void gpu_team_sync(gpu_team_t *g);

#endif
