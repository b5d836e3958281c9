/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads are in the middle of calls: the child can use the library like a fresh process. */
#include "cpu.h"
#include "tests/support/skips.h"

#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3, FORKS = 300, CHILD_SECONDS = 200 };

static ncclComm_t make_one(void)
{
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    CHECK_NCCL(ncclGetUniqueId(&id));
    CHECK_NCCL(ncclCommInitRank(&comm, 1, id, 0));
    return comm;
}

static void use_one(bool abort)
{
    ncclComm_t comm = make_one();
    float in = 2, out = 0;
    int count = 0;
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out == 2);
    CHECK_RESULT(ncclAllReduce(&in, &out, 1, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument);
    CHECK_NCCL(ncclCommCount(comm, &count));
    CHECK(count == 1);
    CHECK_NCCL(abort ? ncclCommAbort(comm) : ncclCommDestroy(comm));
}

static void *worker_main(void *stop)
{
    for (int i = 0; !atomic_load((_Atomic int *)stop); i++)
        use_one(i % 2);
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
            use_one(i % 2);
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

/* The file of a trace is on a slow file system. */
static _Atomic int g_slow, g_opening;

__attribute__((visibility("default"))) int flock(int fd, int operation)
{
    if (atomic_load(&g_slow) && operation == (LOCK_EX | LOCK_NB)) {
        atomic_fetch_add(&g_opening, 1);
        usleep(300000);
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static void *group_main(void *unused)
{
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupEnd());
    return unused;
}

static void first_call_body(ranks_t *ranks)
{
    pthread_t thread;
    int status = -1;
    (void)ranks;
    atomic_store(&g_slow, 1);
    CHECK(pthread_create(&thread, NULL, group_main, NULL) == 0);
    while (atomic_load(&g_opening) == 0)
        usleep(1000);
    const pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        group_main(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void a_fork_beside_the_first_traced_call(void **state)
{
    char folder[] = "/tmp/shunt-forks-XXXXXX", pattern[64], remove[96];
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip_because("the sanitizers' own locks stay locked in the child of several threads");
#endif
    assert_non_null(mkdtemp(folder));
    snprintf(pattern, sizeof pattern, "%s/%%p.json", folder);
    const char *const traced[] = {"SHUNT_TRACE", pattern, NULL};
    ranks_plan_t plan = {.shape = RANKS_SOLO, .nranks = 1, .env = traced, .body = first_call_body};
    assert_int_equal(ranks_run(&plan), 0);
    snprintf(remove, sizeof remove, "rm -r %s", folder);
    assert_int_equal(system(remove), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forks), cmocka_unit_test(a_fork_beside_the_first_traced_call)};
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
