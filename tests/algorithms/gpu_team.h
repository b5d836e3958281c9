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

/* -g GPUS -n AMOUNT -s SEED; what is not given stays as it is. Ends the program with 2 on others. */
void gpu_options(int argc, char **argv, int *gpus, int *amount, uint64_t *seed);
/* A build may have only the algorithms of one memory. */
bool gpu_has_memory(alg_memory_t memory);
/* All GPUs, or `wanted`. Ends the program with 77 and the reason where there are fewer than `least`. */
int gpu_count_or_skip(int wanted, int least);
/* The ranks of the largest team: some share a GPU where there are few. */
int gpu_most_ranks(int gpus);
/* Rank r on GPU r % gpus. Ranks that share a GPU need grids that fit on it together, twice over: a small grid lets its
 * successor in while it runs. */
void gpu_team_make(gpu_team_t *g, int nranks, int gpus, alg_memory_t memory, size_t scratch_bytes);
void gpu_team_free(gpu_team_t *g);
/* Wait for all streams; a wait of a kernel that ran into its time limit ends the program. */
void gpu_team_sync(gpu_team_t *g);

#endif
