/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank lacks device memory when a communicator's first long call needs it: all
 * ranks forward such calls, sums are right, nothing leaks, and Shunt serves the next
 * communicator. And the program resets its devices. Scratch is large here, so that
 * the real NCCL still fits.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

#define SCRATCH "4G"

static const size_t LEFT = (size_t)3 << 29, SLACK = (size_t)1 << 30, OWN = (size_t)8 << 30;

static size_t free_bytes(void)
{
    size_t now, total;
    CHECK_CUDA(cudaMemGetInfo(&now, &total));
    return now;
}

/* Make and check a call; returns whether Shunt took it. */
static bool call_of(gpu_t *gpu, ncclComm_t comm, size_t count, uint64_t *hash)
{
    data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 7, count, gpu->nranks};
    return gpu_run_on(gpu, comm, gpu->rank, &c, (gpu_shape_t){0, 0, false}, hash);
}

static bool one_call(gpu_t *gpu, ncclComm_t comm, uint64_t *hash)
{
    return call_of(gpu, comm, 5000, hash);
}

/* Make a call that needs the long halves of the scratch. */
static bool long_call(gpu_t *gpu, ncclComm_t comm, uint64_t *hash)
{
    return call_of(gpu, comm, 1 << 20, hash);
}

static void crowded(gpu_t *gpu)
{
    void *crowd = NULL;
    uint64_t hash = 0;
    ncclComm_t poor, rich;
    CHECK(one_call(gpu, gpu->comm, &hash));
    const size_t before = free_bytes();
    ranks_barrier(gpu->ranks);
    if (gpu->rank == gpu->nranks - 1)
        CHECK_CUDA(cudaMalloc(&crowd, before - LEFT));
    poor = ranks_init(gpu->ranks);
    CHECK(!long_call(gpu, poor, &hash));
    CHECK(!long_call(gpu, poor, &hash));
    CHECK_CUDA(cudaGetLastError());
    CHECK(one_call(gpu, poor, &hash));
    ranks_barrier(gpu->ranks);
    if (crowd)
        CHECK_CUDA(cudaFree(crowd));
    CHECK(free_bytes() + SLACK > before); /* the ranks with enough memory freed theirs */
    ranks_barrier(gpu->ranks);
    rich = ranks_init(gpu->ranks);
    CHECK(long_call(gpu, rich, &hash));
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommDestroy(rich));
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommDestroy(poor));
    gpu_agree(gpu, hash);
}

/* Whether every byte is `value`. */
static bool is_filled(const uint8_t *at, size_t bytes, uint8_t value)
{
    enum { CHUNK = 1 << 26 };
    uint8_t *copy = malloc(CHUNK), *filled = malloc(CHUNK);
    bool same = copy && filled;
    if (same)
        memset(filled, value, CHUNK);
    for (size_t done = 0; same && done < bytes; done += CHUNK) {
        CHECK_CUDA(cudaMemcpy(copy, at + done, CHUNK, cudaMemcpyDeviceToHost));
        same = memcmp(copy, filled, CHUNK) == 0;
    }
    free(copy);
    free(filled);
    return same;
}

/* Calls are right, and the program's memory is unchanged, if it resets its devices between two communicators and
 * allocates what was the scratch's memory. */
static void reset(gpu_t *gpu)
{
    uint8_t *own;
    uint64_t hash = 0;
    CHECK(one_call(gpu, gpu->comm, &hash));
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommDestroy(gpu->comm));
    gpu_close(gpu);
    ranks_barrier(gpu->ranks);
    CHECK_CUDA(cudaDeviceReset());
    ranks_barrier(gpu->ranks);
    gpu_open(gpu);
    CHECK_CUDA(cudaMalloc((void **)&own, OWN));
    CHECK_CUDA(cudaMemset(own, 0x5a, OWN));
    CHECK_CUDA(cudaDeviceSynchronize());
    gpu->comm = ranks_init(gpu->ranks);
    CHECK(one_call(gpu, gpu->comm, &hash));
    CHECK(is_filled(own, OWN, 0x5a));
    CHECK_CUDA(cudaFree(own));
    gpu_agree(gpu, hash);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"crowded", crowded, GPU_RANKS, 60}, {"reset", reset, GPU_RANKS, 60}};
    setenv("SHUNT_SCRATCH_BYTES", SCRATCH, 1); /* before the ranks are forked */
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
