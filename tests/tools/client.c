/*
 * client.c - a program that uses NCCL, for `shunt run --report` and `shunt doctor`: opens LIBRARY, forks RANKS
 * processes, and makes CALLS all-reduces of COUNT floats in each. Knows nothing of Shunt.
 *
 * usage: tools_client LIBRARY RANKS COUNT CALLS [SECONDS]    (RANKS 0: open it, no more; SECONDS: to sleep at the end)
 */
#include <dlfcn.h>
#include <nccl.h>
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

static int rank_main(const ncclUniqueId *id, int rank, char **argv)
{
    const int ranks = atoi(argv[2]), calls = atoi(argv[4]);
    const size_t count = strtoul(argv[3], NULL, 10);
    float *data = calloc(count, sizeof *data);
    ncclComm_t comm;
    if (data == NULL || ncclCommInitRank_(&comm, ranks, *id, rank) != ncclSuccess) {
        return 1;
    }
    for (int i = 0; i < calls; i++) {
        if (ncclAllReduce_(data, data, count, ncclFloat, ncclSum, comm, NULL) != ncclSuccess) {
            return 1;
        }
    }
    sleep(argv[5] != NULL ? (unsigned)atoi(argv[5]) : 0);
    free(data);
    return ncclCommDestroy_(comm) != ncclSuccess;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        return 2;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    ncclUniqueId *id = mmap(NULL, sizeof *id, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (library == NULL || id == MAP_FAILED) {
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
    if (ncclGetUniqueId_(id) != ncclSuccess) {
        return 1;
    }
    const int ranks = atoi(argv[2]);
    for (int rank = 0; rank < ranks; rank++) {
        if (fork() == 0) {
            exit(rank_main(id, rank, argv));
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0) {
        failed |= status != 0;
    }
    return failed;
}
