/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - a program that uses NCCL, for `shunt run --report` and `shunt
 * doctor`: opens LIBRARY, forks RANKS processes, and makes CALLS all-reduces of
 * COUNT floats in each. Does not know Shunt.
 *
 * usage: tools_client LIBRARY RANKS COUNT CALLS [SECONDS [gpu | late]]
 *
 * RANKS 0: only open it. SECONDS: to sleep at the end. gpu: buffers on the rank's
 * GPU, for the real NCCL. late: the last rank sleeps 100 ms before each call.
 */
#include <dlfcn.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define POINTER(name) static __typeof__(&name) name##_
POINTER(ncclGetUniqueId);
POINTER(ncclCommInitRank);
POINTER(ncclCommDestroy);
POINTER(ncclAllReduce);

static void find(void *library, const char *name, void *pointer)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    memcpy(pointer, &found, sizeof found);
}

/* Driver functions looked up by name: there may be no cuda.h here. Leaves the GPU current. */
static float *on_gpu(int device, size_t bytes, int (**wait)(void))
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned), (*retain)(void **, int), (*use)(void *), (*allocate)(unsigned long long *, size_t);
    unsigned long long memory;
    if (driver == NULL) {
        return NULL;
    }
    find(driver, "cuInit", &init);
    find(driver, "cuDevicePrimaryCtxRetain", &retain);
    find(driver, "cuCtxSetCurrent", &use);
    find(driver, "cuMemAlloc_v2", &allocate);
    find(driver, "cuCtxSynchronize", wait);
    const int good =
        init(0) == 0 && retain(&context, device) == 0 && use(context) == 0 && allocate(&memory, bytes) == 0;
    return good ? (float *)(uintptr_t)memory : NULL;
}

typedef struct shared {
    atomic_bool ready;
    ncclUniqueId id;
} shared_t;

/* Rank 0 makes the id, since the parent may not use CUDA before it forks. */
static int meet(shared_t *shared, int rank)
{
    if (rank == 0) {
        const int failed = ncclGetUniqueId_(&shared->id) != ncclSuccess;
        atomic_store(&shared->ready, true);
        return failed;
    }
    while (!atomic_load(&shared->ready)) {
        usleep(1000);
    }
    return 0;
}

static int rank_main(shared_t *shared, int rank, char **argv)
{
    const int ranks = atoi(argv[2]), calls = atoi(argv[4]);
    const size_t count = strtoul(argv[3], NULL, 10);
    const int seconds = argv[5] != NULL ? atoi(argv[5]) : 0;
    const char *how = argv[5] != NULL && argv[6] != NULL ? argv[6] : "";
    const bool gpu = strcmp(how, "gpu") == 0, late = strcmp(how, "late") == 0 && rank == ranks - 1;
    int (*wait)(void) = NULL;
    float *data = gpu ? on_gpu(rank, count * sizeof *data, &wait) : calloc(count, sizeof *data);
    ncclComm_t comm;
    if (meet(shared, rank) != 0 || data == NULL || ncclCommInitRank_(&comm, ranks, shared->id, rank) != ncclSuccess) {
        return 1;
    }
    for (int i = 0; i < calls; i++) {
        usleep(late ? 100000 : 0);
        if (ncclAllReduce_(data, data, count, ncclFloat, ncclSum, comm, NULL) != ncclSuccess) {
            return 1;
        }
    }
    if (gpu && wait() != 0) {
        return 1;
    }
    sleep((unsigned)seconds);
    if (!gpu) {
        free(data);
    }
    return ncclCommDestroy_(comm) != ncclSuccess;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (library == NULL || shared == MAP_FAILED) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (atoi(argv[2]) == 0) {
        return (int)sleep(argv[5] != NULL ? (unsigned)atoi(argv[5]) : 0);
    }
    find(library, "ncclGetUniqueId", &ncclGetUniqueId_);
    find(library, "ncclCommInitRank", &ncclCommInitRank_);
    find(library, "ncclCommDestroy", &ncclCommDestroy_);
    find(library, "ncclAllReduce", &ncclAllReduce_);
    const int ranks = atoi(argv[2]);
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() == 0) {
            exit(rank_main(shared, rank, argv));
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0) {
        failed |= status != 0;
    }
    return failed;
}
