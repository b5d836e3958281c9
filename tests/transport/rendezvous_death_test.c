/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rendezvous_death_test.c - joiners that die, leave or are elsewhere are noticed, and their segments replaced.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "children.h"
#include "segments.h"
#include "tests/support/skips.h"

static int join_and_vanish(uint32_t rank, uint32_t nranks, void *argument)
{
    net_rendezvous_t *rendezvous;
    CHECK(net_join(argument, &rendezvous) == 0);
    CHECK(net_set_rank(rendezvous, rank, nranks) == 0);
    net_set_away(rendezvous, true);
    return 0; /* the process ends without leaving */
}

static int join_and_hang(uint32_t rank, uint32_t nranks, void *argument)
{
    CHECK(join_and_vanish(rank, nranks, argument) == 0);
    for (;;)
        pause();
}

static void test_stale_is_replaced(void **state)
{
    (void)state;
    net_key_t key = random_key();
    assert_int_equal(run_processes(3, join_and_vanish, &key), 0);
    assert_true(segment_has_name(&key));
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_count(rendezvous), 1);
    net_leave(rendezvous);
    assert_false(segment_has_name(&key));
}

static void test_stale_is_replaced_once(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        net_key_t key = random_key();
        assert_int_equal(run_processes(1, join_and_vanish, &key), 0);
        assert_int_equal(run_processes(8, whole_way, &key), 0);
    }
}

static void test_killed_joiner_is_noticed(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_set_rank(rendezvous, 0, 2), 0);
    assert_int_equal(net_post(rendezvous, 0, NULL, 0), 0);
    pid_t child = start_child(join_and_hang, 1, 2, &key);
    assert_int_equal(wait_count(rendezvous, 2), 0);
    assert_int_equal(net_poll(rendezvous, 0), 0);
    kill(child, SIGKILL);
    assert_int_equal(wait_stage(rendezvous, 0), -ESRCH); /* still a zombie */
    assert_true(net_rank_gone(rendezvous, 1));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(net_poll(rendezvous, 0), -ESRCH);
    assert_false(net_rank_gone(rendezvous, 0));
    net_leave(rendezvous);
    assert_false(segment_has_name(&key));
}

static void test_a_rank_that_left_is_not_waited_for(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_set_rank(a, 0, 2), 0);
    assert_int_equal(net_set_rank(b, 1, 2), 0);
    assert_int_equal(net_post(b, 0, NULL, 0), 0);
    assert_false(net_rank_gone(a, 1));
    net_leave(b);
    assert_true(net_rank_gone(a, 1));
    assert_int_equal(net_poll(a, 0), 0); /* b has posted this one */
    assert_int_equal(net_poll(a, 1), -ESRCH);
    net_leave(a);
    assert_false(segment_has_name(&key));
}

/* The missing ranks are reported: one that has not joined, one that joins at a poll, one that waits too. */
static void test_who_is_missing(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *a, *b, *c;
    assert_int_equal(net_join(&key, &a), 0);
    assert_int_equal(net_join(&key, &b), 0);
    assert_int_equal(net_set_rank(a, 0, 3), 0);
    assert_int_equal(net_missing(a, 0), NET_MISSING_UNSEEN);
    assert_false(net_present(a, 1)); /* no rank yet */
    assert_int_equal(net_join(&key, &c), 0);
    assert_int_equal(net_missing(a, 0), NET_MISSING_WAITING);
    assert_int_equal(net_set_rank(b, 1, 3), 0);
    assert_int_equal(net_set_rank(c, 2, 3), 0);
    assert_true(net_present(a, 1));
    net_set_away(b, true);
    assert_int_equal(net_missing(a, 0), NET_MISSING_AWAY);
    assert_int_equal(net_post(b, 0, NULL, 0), 0);
    assert_int_equal(net_missing(a, 0), NET_MISSING_WAITING); /* for c */
    assert_int_equal(net_missing(a, 1), NET_MISSING_AWAY);
    net_set_away(b, false);
    assert_int_equal(net_missing(a, 1), NET_MISSING_WAITING);
    net_leave(c);
    assert_false(net_present(a, 2));
    assert_int_equal(net_missing(a, 0), NET_MISSING_UNSEEN);
    net_leave(b);
    net_leave(a);
}

static int join_for_ever(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks;
    for (;;) {
        net_rendezvous_t *rendezvous;
        CHECK(net_join(argument, &rendezvous) == 0);
        net_leave(rendezvous);
    }
}

/* After a joiner was killed at any moment, the next one finds or makes a valid segment. */
static void test_killed_while_joining(void **state)
{
    (void)state;
    net_key_t key = random_key();
    for (int round = 0; round < 40; round++) {
        pid_t children[2];
        for (uint32_t i = 0; i < 2; i++)
            children[i] = start_child(join_for_ever, 0, 1, &key);
        nanosleep(&(struct timespec){.tv_nsec = 2000000 + round * 37000}, NULL);
        for (uint32_t i = 0; i < 2; i++)
            kill(children[i], SIGKILL);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
        net_rendezvous_t *rendezvous;
        assert_int_equal(net_join(&key, &rendezvous), 0);
        assert_int_equal(net_count(rendezvous), 1);
        net_leave(rendezvous);
        assert_false(segment_has_name(&key));
    }
}

static void test_sweep(void **state)
{
    (void)state;
    net_key_t dead = random_key(), alive = random_key();
    char half_made[SEGMENT_NAME_BYTES];
    net_key_t other = random_key();
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&alive, &rendezvous), 0);
    assert_int_equal(run_processes(1, join_and_vanish, &dead), 0);
    segment_name(&other, geteuid(), half_made);
    int fd = shm_open(half_made, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    net_segment_sweep();
    assert_false(segment_has_name(&dead));
    assert_false(segment_has_name(&other));
    assert_true(segment_has_name(&alive));
    net_leave(rendezvous);
}

static int join_elsewhere(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks;
    CHECK(unshare(CLONE_NEWPID) == 0);
    return wait_child(start_child(join_and_vanish, 1, 2, argument)) ? 0 : 1;
}

static void test_other_pid_namespace_counts_as_alive(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    if (geteuid() != 0)
        skip_because("a pid namespace needs root");
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_set_rank(rendezvous, 0, 2), 0);
    if (run_processes(1, join_elsewhere, &key) != 0) {
        net_leave(rendezvous);
        skip_because("no pid namespace to be had here");
    }
    assert_int_equal(net_count(rendezvous), 2);
    assert_int_equal(net_poll(rendezvous, 0), 0);
    assert_int_equal(net_missing(rendezvous, 0), NET_MISSING_UNSEEN | NET_MISSING_AWAY); /* its death cannot be seen */
    net_unlink(rendezvous);
    net_leave(rendezvous);
}

/* In a container, whose first process dies with the process that made it, join. */
static int live_elsewhere(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    return join_and_hang(1, 2, argument);
}

/* The same, but a child leaves a segment that the first process never joined. */
static int child_leaves_elsewhere(uint32_t rank, uint32_t nranks, void *argument)
{
    net_rendezvous_t *rendezvous;
    (void)rank, (void)nranks;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    CHECK(net_join(argument, &rendezvous) == 0);
    pid_t child = fork();
    if (child == 0) {
        net_leave(rendezvous);
        _exit(0);
    }
    CHECK(wait_child(child));
    net_rendezvous_t *second; /* says that the child is done */
    CHECK(net_join(argument, &second) == 0);
    net_leave(second);
    for (;;)
        pause();
}

typedef struct container {
    body_t body;
    net_key_t key;
} container_t;

static int contain(uint32_t rank, uint32_t nranks, void *argument)
{
    container_t *container = argument;
    CHECK(unshare(CLONE_NEWPID) == 0);
    return wait_child(start_child(container->body, rank, nranks, &container->key)) ? 0 : 1;
}

/* A segment in use by a container stays; one whose container is gone is removed, or replaced by the next joiner with
 * its key. */
static void live_and_die_elsewhere(body_t body, uint32_t joiners)
{
    container_t container = {body, random_key()};
    net_rendezvous_t *rendezvous;
    assert_int_equal(net_join(&container.key, &rendezvous), 0);
    pid_t maker = start_child(contain, 0, 1, &container);
    assert_int_equal(wait_count(rendezvous, 1 + joiners), 0);
    net_leave(rendezvous);
    net_segment_sweep();
    assert_true(segment_has_name(&container.key));
    kill(maker, SIGKILL);
    assert_int_equal(waitpid(maker, NULL, 0), maker);
    for (int naps = 0; naps < 200000 && segment_has_name(&container.key); naps++) {
        net_segment_sweep();
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    assert_false(segment_has_name(&container.key));
}

static void test_dead_container(void **state)
{
    (void)state;
    net_key_t key = random_key();
    net_rendezvous_t *rendezvous;
    if (geteuid() != 0 || run_processes(1, join_elsewhere, &key) != 0)
        skip_because("no pid namespace to be had here");
    assert_int_equal(net_join(&key, &rendezvous), 0);
    assert_int_equal(net_count(rendezvous), 1);
    net_leave(rendezvous);
    assert_false(segment_has_name(&key));
    live_and_die_elsewhere(live_elsewhere, 1);
    live_and_die_elsewhere(child_leaves_elsewhere, 2);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stale_is_replaced),
        cmocka_unit_test(test_stale_is_replaced_once),
        cmocka_unit_test(test_killed_joiner_is_noticed),
        cmocka_unit_test(test_a_rank_that_left_is_not_waited_for),
        cmocka_unit_test(test_who_is_missing),
        cmocka_unit_test(test_killed_while_joining),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_other_pid_namespace_counts_as_alive),
        cmocka_unit_test(test_dead_container),
    };
    return cmocka_run_group_tests_name("rendezvous_death", tests, NULL, NULL);
}
