/* SPDX-License-Identifier: Apache-2.0 */
/*
 * namespaces_test.c - ranks that share /dev/shm but cannot open each other's /proc/<pid>/fd: ranks in separate user or
 * pid namespaces, of users that may not be traced, or whose first thread has ended.
 *
 * Namespaces and other users need root, or a kernel that lets users make namespaces; without, cases are skipped.
 */
#define _GNU_SOURCE
#include "../cpu/cpu.h"

#include "tests/support/skips.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { STRANGER = 54321 };

static void sum(ranks_t *ranks, ncclComm_t comm)
{
    const int n = ranks->nranks;
    for (int i = 0; i < 20; i++) {
        float in = (float)(ranks->rank + i), out = -1;
        CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
        CHECK(out == (float)(n * i + n * (n - 1) / 2));
    }
}

static void works(ranks_t *ranks)
{
    for (int i = 0; i < 2; i++) {
        ncclComm_t comm = ranks_init(ranks), part = NULL;
        sum(ranks, comm);
        CHECK_NCCL(ncclCommSplit(comm, 0, ranks->rank, &part, NULL));
        sum(ranks, part);
        CHECK_NCCL(ncclCommDestroy(part));
        CHECK_NCCL(ncclCommDestroy(comm));
    }
}

static void run(ranks_body_t body)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .body = body};
    assert_int_equal(ranks_run(&plan), 0);
}

/* ---- Namespaces ---------------------------------------------------------------------------- */

static bool put(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
    if (file >= 0)
        close(file);
    return done;
}

/* Enter a user namespace in which the user keeps its number, and further namespaces. */
static bool own_users(int further)
{
    char users[64], groups[64];
    snprintf(users, sizeof(users), "%u %u 1", geteuid(), geteuid());
    snprintf(groups, sizeof(groups), "%u %u 1", getegid(), getegid());
    return unshare(CLONE_NEWUSER | further) == 0 && put("/proc/self/setgroups", "deny") &&
           put("/proc/self/uid_map", users) && put("/proc/self/gid_map", groups);
}

static void needs_namespaces(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(!own_users(CLONE_NEWNS | CLONE_NEWPID));
    if (waitpid(child, &status, 0) == child && status == 0)
        return;
    skip_because("namespaces of one's own cannot be had here");
}

static void needs_root(void)
{
    if (geteuid() == 0)
        return;
    skip_because("another user needs root");
}

static void own_users_body(ranks_t *ranks)
{
    CHECK(own_users(ranks->rank == 0 ? 0 : CLONE_NEWNS));
    works(ranks);
}

static void user_namespaces(void **state)
{
    (void)state;
    needs_namespaces();
    run(own_users_body);
}

static void become(uid_t user)
{
    CHECK(setgid(user) == 0 && setuid(user) == 0);
}

static void own_users_of_a_user_body(ranks_t *ranks)
{
    become(STRANGER);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    own_users_body(ranks);
}

static void user_namespaces_of_a_user(void **state)
{
    (void)state;
    needs_root();
    needs_namespaces();
    run(own_users_of_a_user_body);
}

/* Continue as the first process of a new pid namespace; the caller waits for it and exits with its status. */
static bool in_new_pids(void)
{
    int status = -1;
    CHECK(own_users(CLONE_NEWPID));
    pid_t child = fork();
    if (child == 0)
        return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    CHECK(waitpid(child, &status, 0) == child);
    _exit(status != 0);
}

static void own_pids_body(ranks_t *ranks)
{
    CHECK(in_new_pids());
    works(ranks);
}

static void pid_namespaces(void **state)
{
    (void)state;
    needs_namespaces();
    run(own_pids_body);
}

/* Ranks meet in a pid namespace with the outer /proc, in which other processes have the ranks' numbers. */
static void one_pid_namespace_with_the_old_proc(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .body = works};
    int status = -1;
    (void)state;
    needs_namespaces();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(in_new_pids() && ranks_run(&plan) != 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A dead rank is noticed in these namespaces, too. */
static void dies_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    ncclResult_t result = ncclSuccess;
    float in = 1, out = 0;
    ranks_barrier(ranks);
    if (ranks->rank == 2)
        raise(SIGKILL);
    while (result == ncclSuccess)
        result = ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL);
    CHECK(result == ncclRemoteError);
    CHECK_NCCL(ncclCommAbort(comm));
}

static void a_death_beside_the_old_proc(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .killed = 1u << 2, .body = dies_body};
    int status = -1;
    (void)state;
    needs_namespaces();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(in_new_pids() && ranks_run(&plan) != 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- Users that may not be traced ------------------------------------------------------------ */

static void undumpable_body(ranks_t *ranks)
{
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    works(ranks);
}

/* Ranks meet under a launcher that gives up root without an exec. */
static void became_a_user_body(ranks_t *ranks)
{
    become(STRANGER);
    works(ranks);
}

static void undumpable_user_body(ranks_t *ranks)
{
    become(STRANGER);
    undumpable_body(ranks);
}

static void may_return_body(ranks_t *ranks)
{
    CHECK(setresuid(STRANGER, STRANGER, 0) == 0);
    works(ranks);
}

static void no_rights_body(ranks_t *ranks)
{
    (void)umask(0777);
    works(ranks);
}

static void no_rights_of_a_user_body(ranks_t *ranks)
{
    become(STRANGER);
    CHECK(prctl(PR_SET_DUMPABLE, ranks->rank > 0) == 0); /* its memory is sent */
    no_rights_body(ranks);
}

/* Ranks meet with a umask under which files have no rights. */
static void umask_0777(void **state)
{
    (void)state;
    run(no_rights_body);
    needs_root();
    run(no_rights_of_a_user_body);
}

static void undumpable(void **state)
{
    (void)state;
    run(undumpable_body);
}

static void other_users(void **state)
{
    (void)state;
    needs_root();
    run(became_a_user_body);
    run(undumpable_user_body);
    run(may_return_body);
}

/* ---- Programs whose first thread has ended ----------------------------------------------------- */

/* Whether the first thread is a zombie while others run. */
static bool first_thread_ended(void)
{
    char text[512] = "";
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)getpid());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = file >= 0 ? read(file, text, sizeof(text) - 1) : -1;
    close(file);
    const char *name = got > 0 ? strrchr(text, ')') : NULL;
    return name && name[2] == 'Z';
}

typedef struct life {
    ranks_t ranks;
    _Atomic int go; /* the first thread may end */
    bool after;     /* the first init */
} life_t;

static void *goes_on(void *argument)
{
    life_t *life = argument;
    ncclComm_t comm = life->after ? ranks_init(&life->ranks) : NULL;
    atomic_store(&life->go, 1);
    while (!first_thread_ended())
        usleep(100);
    ranks_barrier(&life->ranks);
    if (comm) {
        sum(&life->ranks, comm);
        CHECK_NCCL(ncclCommDestroy(comm));
    }
    works(&life->ranks);
    fflush(NULL);
    _exit(0);
}

static void first_thread_ends(ranks_t *ranks, bool after)
{
    static life_t life;
    pthread_t thread;
    life.ranks = *ranks;
    life.after = after;
    CHECK(pthread_create(&thread, NULL, goes_on, &life) == 0);
    while (!atomic_load(&life.go))
        usleep(100);
    pthread_exit(NULL);
}

static void ends_before_body(ranks_t *ranks)
{
    first_thread_ends(ranks, false);
}

static void ends_after_body(ranks_t *ranks)
{
    first_thread_ends(ranks, true);
}

static void the_first_thread_ends(void **state)
{
    (void)state;
    run(ends_before_body);
    run(ends_after_body);
}

int main(void)
{
    cpu_limit(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_namespaces),
        cmocka_unit_test(user_namespaces_of_a_user),
        cmocka_unit_test(pid_namespaces),
        cmocka_unit_test(one_pid_namespace_with_the_old_proc),
        cmocka_unit_test(a_death_beside_the_old_proc),
        cmocka_unit_test(umask_0777),
        cmocka_unit_test(undumpable),
        cmocka_unit_test(other_users),
        cmocka_unit_test(the_first_thread_ends),
    };
    return cmocka_run_group_tests_name("namespaces", tests, NULL, NULL);
}
