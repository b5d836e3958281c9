/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads are in the middle of calls: the child can use the library like a fresh process. */
#include "cpu.h"
#include "tests/support/skips.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>

enum { WORKERS = 3, FORKS = 300, CHILD_SECONDS = 200 };

static ncclComm_t make_one(void)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    CHECK_NCCL(ncclGetUniqueId(&id));
    CHECK_NCCL(ncclCommInitRank(&comm, 1, id, 0));
    return comm;
}

static void use_one(void)
{
    ncclComm_t comm = make_one();
    float in = 2, out = 0;
    int count = 0;
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out == 2);
    CHECK_RESULT(ncclAllReduce(&in, &out, 1, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument);
    CHECK_NCCL(ncclCommCount(comm, &count));
    CHECK(count == 1);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void *worker_main(void *stop)
{
    while (!atomic_load((_Atomic int *)stop))
        use_one();
    return NULL;
}

static void forks_body(ranks_t *ranks)
{
    static _Atomic int stop;
    pthread_t workers[WORKERS];
    ncclComm_t parents = make_one();
    (void)ranks;
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&workers[i], NULL, worker_main, &stop) == 0);
    for (int i = 0; i < FORKS; i++) {
        int status = -1, count;
        pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_SECONDS);
            CHECK_RESULT(ncclCommCount(parents, &count), ncclInvalidArgument); /* not this process's */
            use_one();
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0);
    CHECK_NCCL(ncclCommDestroy(parents));
}

static void forks(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip_because("the sanitizers' own locks stay locked in the child of several threads");
#endif
    static const char *const small[] = {"SHUNT_SCRATCH_BYTES", "1M", NULL};
    ranks_plan_t plan = {.shape = RANKS_SOLO, .nranks = 1, .env = small, .body = forks_body};
    assert_int_equal(ranks_run(&plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forks)};
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
