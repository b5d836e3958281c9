/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/algorithms/gpu_team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void gpu_fail(const char *file, int line, const char *what, const char *why)
{
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, why);
    exit(1);
}

void gpu_options(int argc, char **argv, int *gpus, int *amount, uint64_t *seed)
{
    for (int option; (option = getopt(argc, argv, "g:n:s:")) != -1;) {
        if (option == 'g')
            *gpus = atoi(optarg);
        else if (option == 'n')
            *amount = atoi(optarg);
        else if (option == 's')
            *seed = strtoull(optarg, NULL, 0);
        else
            exit(2);
    }
}

bool gpu_has_memory(alg_memory_t memory)
{
    bool any = false;
    for (uint32_t i = 0; i < alg_registry_count; i++)
        any = any || alg_registry[i]->memory == memory;
    return any;
}

int gpu_count_or_skip(int wanted, int least)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < least) {
        printf("skipped: GPUs needed: %d, found: %d\n", least, count);
        exit(77);
    }
    if (wanted > count || wanted > ALG_MAX_RANKS) {
        printf("skipped: needs %d GPUs, there are %d\n", wanted, count);
        exit(77);
    }
    return wanted ? wanted : count < ALG_MAX_RANKS ? count : ALG_MAX_RANKS;
}

int gpu_most_ranks(int gpus)
{
    enum { LEAST = 4 };
    return gpus > LEAST ? gpus : LEAST;
}

/* Allocate and arm the scratch of the rank on the current device. */
static void make_scratch(const alg_map_t *map, uint8_t **scratch, uint8_t **own)
{
    if (map->memory == ALG_MEMORY_PINNED) {
        GPU(cudaHostAlloc((void **)scratch, map->total_bytes, cudaHostAllocMapped | cudaHostAllocPortable));
        memset(*scratch, 0, map->total_bytes);
        memset(*scratch + map->rings_offset, 0xff, map->rings_bytes);
        GPU(cudaMalloc((void **)own, ALG_OWN_BYTES));
        GPU(cudaMemset(*own, 0, ALG_OWN_BYTES));
        return;
    }
    GPU(cudaMalloc((void **)scratch, map->total_bytes));
    GPU(cudaMemset(*scratch, 0, map->total_bytes));
    GPU(cudaMemset(*scratch + map->half_offset, 0xff, map->flags_offset - map->half_offset));
    *own = *scratch;
}

void gpu_team_make(gpu_team_t *g, int nranks, int gpus, alg_memory_t memory, size_t scratch_bytes)
{
    alg_map_t map;
    if (!(memory == ALG_MEMORY_PINNED ? alg_map_init_shm : alg_map_init)(&map, scratch_bytes))
        gpu_fail(__FILE__, __LINE__, "alg_map_init", "too small");
    gpu_team_make_map(g, nranks, gpus, &map);
    for (int r = 0; r < nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        for (uint32_t i = 0; i < alg_registry_count; i++)
            GPU((cudaError_t)alg_registry[i]->preload_cuda(g->nranks));
        GPU(cudaDeviceSynchronize());
    }
}

void gpu_team_make_map(gpu_team_t *g, int nranks, int gpus, const alg_map_t *map)
{
    const alg_memory_t memory = map->memory;
    memset(g, 0, sizeof *g);
    g->nranks = nranks;
    g->shared = nranks > gpus;
    g->map = *map;
    uint8_t *scratch[ALG_MAX_RANKS], *own[ALG_MAX_RANKS];
    int major[ALG_MAX_RANKS];
    for (int r = 0; r < nranks; r++) {
        g->device[r] = r % gpus;
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaDeviceGetAttribute(&major[r], cudaDevAttrComputeCapabilityMajor, g->device[r]));
        for (int p = 0; p < nranks && p < gpus; p++) {
            cudaError_t error = p == g->device[r] ? cudaSuccess : cudaDeviceEnablePeerAccess(p, 0);
            if (error == cudaErrorPeerAccessAlreadyEnabled) {
                cudaGetLastError();
                error = cudaSuccess;
            }
            GPU(error);
        }
        GPU(cudaStreamCreateWithFlags(&g->stream[r], cudaStreamNonBlocking));
        make_scratch(&g->map, &scratch[r], &own[r]);
        GPU(cudaHostAlloc((void **)&g->control[r], sizeof(alg_control_t), cudaHostAllocMapped | cudaHostAllocPortable));
        memset(g->control[r], 0, sizeof(alg_control_t));
        GPU(cudaDeviceSynchronize());
    }
    for (int r = 0; r < nranks; r++) {
        g->team[r] = (alg_team_t){.rank = (uint32_t)r,
                                  .nranks = (uint32_t)nranks,
                                  .own = own[r],
                                  .own_counts = memory == ALG_MEMORY_PINNED ? own[r] + ALG_CONTROL_BYTES
                                                                            : own[r] + g->map.counts_offset,
                                  .control = g->control[r],
                                  .limit = alg_limit(5000000000u, 0),
                                  .dependent_launch = major[r] >= 9,
                                  .half_offset = g->map.half_offset,
                                  .half_bytes = g->map.half_bytes,
                                  .places_offset = g->map.places_offset,
                                  .places_bytes = g->map.places_bytes,
                                  .rings_offset = g->map.rings_offset,
                                  .rings_bytes = g->map.rings_bytes,
                                  .counts_offset = g->map.counts_offset,
                                  .flags_offset = g->map.flags_offset,
                                  .staging_offset = g->map.staging_offset,
                                  .staging_bytes = g->map.staging_bytes};
        memcpy(g->team[r].scratch, scratch, sizeof scratch);
        g->control[r]->stop_here = (uintptr_t)scratch[r] + ALG_STOP_OFFSET;
        for (int p = 0; p < nranks; p++)
            g->control[r]->stop_at[p] = p == r ? 0 : (uintptr_t)scratch[p] + ALG_STOP_OFFSET + 8 * (unsigned)r;
    }
}

void gpu_team_free(gpu_team_t *g)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaStreamDestroy(g->stream[r]));
        GPU(cudaFree(g->team[r].own));
        if (g->map.memory == ALG_MEMORY_PINNED)
            GPU(cudaFreeHost(g->team[r].scratch[r]));
        GPU(cudaFreeHost(g->control[r]));
    }
}

void gpu_team_sync(gpu_team_t *g)
{
    for (int r = 0; r < g->nranks; r++) {
        GPU(cudaSetDevice(g->device[r]));
        GPU(cudaStreamSynchronize(g->stream[r]));
    }
    for (int r = 0; r < g->nranks; r++) {
        if (g->control[r]->abort || g->control[r]->status)
            gpu_fail(__FILE__, __LINE__, "a kernel's wait", "ran into its time limit");
    }
}
