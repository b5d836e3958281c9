/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under an audit library that hides parts of the machine from Shunt (refuse.c):
 *
 *   LD_AUDIT=lib/libgpu_refuse.so REFUSE=peer gpu_refusals -k peer
 *   LD_AUDIT=lib/libgpu_refuse.so REFUSE=nvml gpu_refusals -k nvml --allow-forward
 *   LD_AUDIT=lib/libgpu_refuse.so REFUSE=nvlink gpu_refusals -k nvlink
 */
#include "gpu.h"

#include <dlfcn.h>
#include <shunt.h>
#include <string.h>

/* Without peer access short messages use pinned memory, on children, too, and all sums are right. */
static void no_peer_access(gpu_t *gpu)
{
    uint64_t hash = 0;
    int can = 1;
    ncclComm_t child;
    CHECK_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
    CHECK(!can);
    CHECK_NCCL(ncclCommSplit(gpu->comm, 0, gpu->rank, &child, NULL));
    for (size_t count = 1; count <= 1 << 20; count *= 32) {
        data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, count, count, gpu->nranks};
        const bool taken = gpu_run_on(gpu, gpu->comm, gpu->rank, &c, (gpu_shape_t){0, 0, false}, &hash);
        CHECK(taken || count > 1024);
        CHECK(gpu_run_on(gpu, child, gpu->rank, &c, (gpu_shape_t){0, 0, true}, &hash) == taken);
    }
    ranks_barrier(gpu->ranks);
    CHECK_NCCL(ncclCommDestroy(child));
}

/* Without NVML the program gets the error of the real NCCL, which needs it. */
static void no_nvml(gpu_t *gpu)
{
    typedef ncclResult_t init_t(ncclComm_t *, int, const int *);
    const char *(*path)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "shunt_nccl_path");
    ncclComm_t comms[REF_MAX_RANKS];
    CHECK(!dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
    CHECK(path && path());
    void *real = dlopen(path(), RTLD_NOW | RTLD_LOCAL);
    CHECK(real);
    const ncclResult_t expected = ((init_t *)dlsym(real, "ncclCommInitAll"))(comms, gpu->nranks, NULL);
    const ncclResult_t result = ncclCommInitAll(comms, gpu->nranks, NULL);
    printf("NCCL says %d, Shunt %d\n", expected, result);
    CHECK(expected != ncclSuccess);
    CHECK(result == expected);
}

/* Over PCIe, without settings and table, short all-reduces are taken, through either memory. */
static void no_nvlink(gpu_t *gpu)
{
    typedef int facts_t(ncclComm_t, shunt_communicator_t *);
    facts_t *facts_of = (facts_t *)dlsym(RTLD_DEFAULT, "shunt_communicator");
    shunt_communicator_t facts = {.size = sizeof(facts)};
    uint64_t hash = 0;
    CHECK(facts_of && facts_of(gpu->comm, &facts) == 0);
    printf("class %s\n", facts.class_name);
    CHECK(strncmp(facts.class_name, "nvswitch", 8) != 0 && strncmp(facts.class_name, "mesh", 4) != 0);
    for (size_t count = 1; count <= 1 << 20; count *= 32) {
        data_case_t c = {ncclFloat32, REF_SUM, DATA_RANDOM, count, count, gpu->nranks};
        const bool taken = gpu_run_on(gpu, gpu->comm, gpu->rank, &c, (gpu_shape_t){0, 0, false}, &hash);
        CHECK(taken || count > 256);
    }
}

int main(int argc, char **argv)
{
    static const gpu_case_t cases[] = {
        {"peer", no_peer_access, GPU_RANKS, 60}, {"nvml", no_nvml, GPU_SOLO, 60}, {"nvlink", no_nvlink, GPU_RANKS, 60}};
    return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
