/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks at a fork (lock.c): in the child they are open, and the data that they protect is consistent.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/transport.h"

enum { FORKS = 20, HELD_US = 3000 };
#ifndef LONG_S
#define LONG_S 300 /* after which a child is killed by its alarm; a broken build (broken.cmake) waits less */
#endif

static net_lock_t lock = NET_LOCK_INITIALIZER;
static int left, right; /* equal, but within the lock */
static _Atomic bool within, done;

static void *change(void *unused)
{
    (void)unused;
    while (!done) {
        net_lock_take(&lock);
        left++;
        within = true;
        usleep(HELD_US);
        within = false;
        right++;
        net_lock_give(&lock);
        usleep(100);
    }
    return NULL;
}

static int child(void)
{
    alarm(LONG_S);
    net_lock_take(&lock);
    const bool whole = left == right;
    net_lock_give(&lock);
    return whole ? 0 : 1;
}

/* The child of a fork finds locks open and data consistent, although another thread held the lock and had changed half
 * of the data. */
static void a_child_finds_locks_open_and_data_whole(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, change, NULL), 0);
    for (int i = 0; i < FORKS; i++) {
        while (!within)
            usleep(50);
        const pid_t pid = fork();
        if (pid == 0)
            _exit(child());
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    done = true;
    pthread_join(thread, NULL);
}

/* The parent's locks are open after the fork, too. */
static void a_parent_goes_on(void **state)
{
    (void)state;
    static net_lock_t late = NET_LOCK_INITIALIZER; /* first taken after a fork */
    for (int i = 0; i < 2; i++) {
        const pid_t pid = fork();
        if (pid == 0)
            _exit(child());
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(child(), 0);
        alarm(0);
        net_lock_take(&late);
        net_lock_give(&late);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_finds_locks_open_and_data_whole),
        cmocka_unit_test(a_parent_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
