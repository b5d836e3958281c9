/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that opens NCCL, uses it, closes it, and opens it again, with threads
 * that end after the library was closed and one communicator left behind at exit.
 */
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 2, ROUNDS = 3 };

typedef struct nccl {
    void *library;
    __typeof__(&ncclCommInitAll) init_all;
    __typeof__(&ncclGroupStart) group_start;
    __typeof__(&ncclGroupEnd) group_end;
    __typeof__(&ncclAllReduce) all_reduce;
    __typeof__(&ncclCommDestroy) destroy;
} nccl_t;

static void open_nccl(nccl_t *nccl)
{
    nccl->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!nccl->library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    *(void **)&nccl->init_all = dlsym(nccl->library, "ncclCommInitAll");
    *(void **)&nccl->group_start = dlsym(nccl->library, "ncclGroupStart");
    *(void **)&nccl->group_end = dlsym(nccl->library, "ncclGroupEnd");
    *(void **)&nccl->all_reduce = dlsym(nccl->library, "ncclAllReduce");
    *(void **)&nccl->destroy = dlsym(nccl->library, "ncclCommDestroy");
}

static int use(const nccl_t *nccl, const ncclComm_t *comms)
{
    int data[RANKS];
    int wrong = nccl->group_start();
    for (int r = 0; r < RANKS; r++) {
        data[r] = r + 1;
        wrong |= nccl->all_reduce(&data[r], &data[r], 1, ncclInt, ncclSum, comms[r], NULL);
    }
    wrong |= nccl->group_end();
    return wrong || data[0] != 3 || data[1] != 3;
}

static pthread_barrier_t closed;

/* Uses groups, whose state belongs to the thread, and ends long after the library was closed. */
static void *thread_main(void *argument)
{
    const nccl_t *nccl = argument;
    ncclComm_t comms[RANKS];
    int wrong = nccl->init_all(comms, RANKS, NULL) || use(nccl, comms);
    for (int r = 0; r < RANKS; r++)
        wrong |= nccl->destroy(comms[r]);
    pthread_barrier_wait(&closed);
    pthread_barrier_wait(&closed);
    return wrong ? argument : NULL;
}

int main(void)
{
    nccl_t nccl;
    ncclComm_t left[RANKS];
    alarm(60);
    pthread_barrier_init(&closed, NULL, 2);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *wrong;
        open_nccl(&nccl);
        if (pthread_create(&thread, NULL, thread_main, &nccl) != 0)
            return EXIT_FAILURE;
        pthread_barrier_wait(&closed);
        dlclose(nccl.library);
        pthread_barrier_wait(&closed);
        if (pthread_join(thread, &wrong) != 0 || wrong)
            return EXIT_FAILURE;
    }
    open_nccl(&nccl);
    if (nccl.init_all(left, RANKS, NULL) || use(&nccl, left))
        return EXIT_FAILURE;
    dlclose(nccl.library);
    puts("Success");
    return EXIT_SUCCESS;
}
