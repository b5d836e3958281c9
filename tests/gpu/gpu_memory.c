/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank lacks device memory when a communicator is made: all ranks forward,
 * sums are right, nothing leaks, and Shunt serves the next communicator. Scratch
 * is large here, so that the real NCCL still fits.
 */
#include "gpu.h"

#define SCRATCH "4G"

static const size_t LEFT = (size_t)3 << 30, SLACK = (size_t)1 << 30;

static size_t free_bytes(void)
{
    size_t now, total;
    CHECK_CUDA(cudaMemGetInfo(&now, &total));
    return now;
}

/* Whether Shunt took it. */
static bool one_call(gpu_t *gpu, ncclComm_t comm, uint64_t *hash)
{
    data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, 7, 5000, gpu->nranks};
    return gpu_run_on(gpu, comm, gpu->rank, &c, (gpu_shape_t){0, 0, false}, hash);
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
    CHECK(!one_call(gpu, poor, &hash));
    CHECK_CUDA(cudaGetLastError());
    CHECK(one_call(gpu, gpu->comm, &hash));
    ranks_barrier(gpu->ranks);
    if (crowd)
        CHECK_CUDA(cudaFree(crowd));
    CHECK(free_bytes() + SLACK > before); /* the ranks with enough memory freed theirs */
    ranks_barrier(gpu->ranks);
    rich = ranks_init(gpu->ranks);
    CHECK(one_call(gpu, rich, &hash));
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommDestroy(rich));
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommDestroy(poor));
    gpu_agree(gpu, hash);
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {{"crowded", crowded, GPU_RANKS, 60}};
    setenv("SHUNT_SCRATCH_BYTES", SCRATCH, 1); /* before the ranks are forked */
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
