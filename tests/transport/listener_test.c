/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listener_test.c - the listener where ranks of several nodes meet: strangers, broken ranks, and a process without free
 * descriptors do no harm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "strangers.h"
#include "tests/support/skips.h"

/* A caller without the secret gets no byte, nor does a silent one or one that sends nonsense. Ranks meet meanwhile. */
static void strangers_are_not_answered(void **state)
{
    (void)state;
    enum { STRANGERS = 300 };
    group_t group = new_group();
    int stranger[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        stranger[i] = stranger_call(&group.invitation.address);
        assert_true(stranger[i] >= 0);
        wire_hello_t hello = stranger_hello(&group, 0, 1);
        if (i % 4 == 1)
            hello.secret[i / 4 % 2] ^= UINT64_C(1) << (i % 64);
        if (i % 4 == 2)
            hello.magic++;
        if (i % 4 == 3)
            memset(&hello, i, sizeof(hello));
        if (i % 4)
            assert_int_equal(send(stranger[i], &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    }
    assert_int_equal(run_threads(MOST, meet_twice, &group), 0);
    for (int i = 0; i < STRANGERS; i++) {
        assert_int_equal(stranger_bytes(stranger[i]), 0);
        close(stranger[i]);
    }
}

/* A process with a listener, that can be stopped; its invitation. */
static pid_t start_listener(group_t *group)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        net_invitation_t own;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing is left of a test that fails */
        if (net_invite(&loopback, &own) != 0 || write(ends[1], &own, sizeof(own)) != sizeof(own))
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &group->invitation, sizeof(group->invitation)), sizeof(group->invitation));
    close(ends[0]);
    close(ends[1]);
    group->key = random_key();
    return pid;
}

/* A process that calls `count` times, as ranks that wait for others or without a word, until it is killed. */
static pid_t start_callers(const group_t *group, int count, bool known)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rlimit files; /* a test's limit is for its own process */
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        _exit(1);
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        _exit(1);
    for (int i = 0; i < count; i++) {
        wire_hello_t hello = stranger_hello(group, 0, 2);
        int connection = stranger_call(&group->invitation.address);
        hello.group.word[0] += 1 + (uint64_t)i;
        if (connection < 0 || (known && send(connection, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)))
            _exit(1);
    }
    for (;;)
        pause();
}

static void *meet_later(void *argument)
{
    return (void *)(intptr_t)run_threads(2, meet_twice, argument);
}

/* While 256 ranks wait for others, further callers wait and are not refused. */
static void a_full_house_keeps_callers_waiting(void **state)
{
    (void)state;
    enum { SEATS = 256 };
    group_t group = new_group();
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_cur < 4 * SEATS)
        skip_because("this process may open too few files");
    const int before = open_descriptors();
    pid_t callers = start_callers(&group, SEATS, true);
    while (open_descriptors() < before + SEATS)
        usleep(1000);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, meet_later, &group), 0);
    usleep(50000);
    assert_true(end_child(callers));
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, 0);
}

/* The listener leaves descriptors for the program's own files. */
static void descriptors_are_left_for_the_program(void **state)
{
    (void)state;
    enum { LIMIT = 256, CALLERS = 200 };
    group_t group = new_group();
    struct rlimit files, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    few = (struct rlimit){LIMIT, files.rlim_max};
    const int before = open_descriptors();
    int most = 0, status;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    pid_t callers = start_callers(&group, CALLERS, false);
    for (int i = 0; i < 100; i++) {
        const int now = open_descriptors() - before;
        most = now > most ? now : most;
        usleep(2000);
    }
    assert_int_equal(run_threads(2, meet_twice, &group), 0);
    assert_int_equal(waitpid(callers, &status, WNOHANG), 0); /* none of its calls has failed */
    assert_true(end_child(callers));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_true(most <= LIMIT / 4 + 4); /* and what counts them */
    while (open_descriptors() > before) /* or the next test finds descriptors that become free */
        usleep(1000);
}

/* Calls of accept4 (--wrap) that found no descriptor. */
static atomic_uint refused_accepts;

int __real_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags);

int __wrap_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags)
{
    const int made = __real_accept4(listener, address, bytes, flags);
    if (made < 0 && errno == EMFILE)
        refused_accepts++;
    return made;
}

/* Without a descriptor for a caller the listener does not spin: it tries ten times a second on any machine, and hears
 * the caller when one is free. */
static void no_descriptor_is_waited_for(void **state)
{
    (void)state;
    group_t group = new_group();
    struct rlimit files, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    int last = dup(0);
    close(last);
    none = (struct rlimit){(rlim_t)last, files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0); /* before there is a caller to accept */
    pid_t callers = start_callers(&group, 1, false);
    while (refused_accepts == 0)
        usleep(1000);
    const uint64_t from = wire_now_ns();
    const unsigned before = refused_accepts;
    usleep(500000);
    const unsigned tried = refused_accepts - before;
    const uint64_t naps = (wire_now_ns() - from) / 100000000;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_int_equal(run_threads(2, meet_twice, &group), 0);
    assert_true(end_child(callers));
    assert_true(tried <= naps + 2);
}

/* What one who knows the secret is told. */
static uint32_t told(const group_t *group, const wire_hello_t *hello)
{
    meeting_head_t head = {.error = 4711};
    int connection = stranger_call(&group->invitation.address);
    assert_int_equal(send(connection, hello, sizeof(*hello), MSG_NOSIGNAL), sizeof(*hello));
    assert_int_equal(recv(connection, &head, sizeof(head), MSG_WAITALL), sizeof(head));
    close(connection);
    return head.error;
}

/* Send a rank's hello and its record in one message. */
static void post(int connection, const group_t *group, uint32_t rank)
{
    const struct {
        wire_hello_t hello;
        meeting_head_t head;
        uint64_t record; /* no padding behind it */
    } words = {stranger_hello(group, rank, 2), {.bytes = sizeof(uint64_t)}, rank};
    assert_int_equal(send(connection, &words, sizeof(words), MSG_NOSIGNAL), sizeof(words));
}

/* Make the listener find a rank's new hello and the end of its old connection together, the hello first. Returns the
 * answer to the new one; -1: the test was so slow that the new one was taken for a stranger. */
static int come_again(group_t *group, pid_t listener)
{
    meeting_head_t head = {.error = 4711};
    const wire_hello_t wrong = stranger_hello(group, 2, 2);
    const int stranger = stranger_call(&group->invitation.address), peer = stranger_call(&group->invitation.address),
              old = stranger_call(&group->invitation.address);
    group->key.word[0]++;
    const wire_hello_t first = stranger_hello(group, 0, 2);
    post(peer, group, 1);
    assert_int_equal(send(old, &first, sizeof(first), MSG_NOSIGNAL), sizeof(first));
    const int again = stranger_call(&group->invitation.address);
    assert_int_equal(told(group, &wrong), EPROTO); /* by now it has heard all of that */
    close(stranger);                               /* the last guest takes its place, before the old one */
    assert_int_equal(told(group, &wrong), EPROTO);
    kill(listener, SIGSTOP);
    assert_int_equal(waitpid(listener, NULL, WUNTRACED), listener);
    post(again, group, 0);
    close(old);
    kill(listener, SIGCONT);
    const bool answered = recv(again, &head, sizeof(head), MSG_WAITALL) == sizeof(head);
    close(again);
    close(peer);
    return answered ? (int)head.error : -1;
}

/* A rank that gave up may call again before the end of its first connection is seen. */
static void a_rank_may_come_again(void **state)
{
    (void)state;
    group_t group;
    int told_again;
    pid_t listener = start_listener(&group);
    while ((told_again = come_again(&group, listener)) < 0)
        ;
    assert_int_equal(told_again, 0);
    assert_true(end_child(listener));
}

/* A rank reads the listener's refusal even if writing its record fails, since the listener has closed by then. */
static void a_refusal_is_heard_though_writing_fails(void **state)
{
    (void)state;
    group_t group = new_group();
    const net_limit_t limit = for_long();
    net_meeting_t *first, *second;
    uint8_t own[NET_ROUND_BYTES] = {0}, all[2 * NET_ROUND_BYTES];
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &first), 0);
    wire_hello_t hello = stranger_hello(&group, 2, 2);
    assert_int_equal(told(&group, &hello), EPROTO);
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &second), 0);
    assert_int_equal(told(&group, &hello), EPROTO);
    assert_int_equal(net_meeting_exchange(second, own, sizeof(own), all, &limit), -EEXIST);
    net_meeting_leave(second);
    net_meeting_leave(first);
}

static void broken_ranks_are_refused(void **state)
{
    (void)state;
    group_t group = new_group();
    const net_limit_t limit = for_long();
    net_meeting_t *meeting;
    uint8_t all[2 * NET_ROUND_BYTES], own[NET_ROUND_BYTES] = {0};
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &meeting), 0);
    net_limit_t soon = for_ms(50);
    assert_int_equal(net_meeting_exchange(meeting, own, 4, all, &soon), -ETIMEDOUT); /* it is known there now */
    wire_hello_t hello = stranger_hello(&group, 0, 2);
    assert_int_equal(told(&group, &hello), EEXIST);
    hello = stranger_hello(&group, 1, 3);
    assert_int_equal(told(&group, &hello), EPROTO);
    hello = stranger_hello(&group, 1, 2);
    hello.rounds = 2;
    assert_int_equal(told(&group, &hello), EPROTO);
    hello = stranger_hello(&group, 2, 2);
    assert_int_equal(told(&group, &hello), EPROTO);
    hello = stranger_hello(&group, 1, UINT32_MAX);
    assert_int_equal(told(&group, &hello), EPROTO);

    /* A record that is longer than any: the end. */
    int connection = stranger_call(&group.invitation.address);
    const meeting_head_t long_one = {.bytes = UINT32_MAX};
    hello = stranger_hello(&group, 1, 2);
    assert_int_equal(send(connection, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    assert_int_equal(send(connection, &long_one, sizeof(long_one), MSG_NOSIGNAL), sizeof(long_one));
    assert_int_equal(stranger_bytes(connection), 0);
    close(connection);

    /* Of another length than rank 0's: both are told. */
    net_meeting_t *other;
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 1, 2, 1, &limit, &other), 0);
    assert_int_equal(net_meeting_exchange(other, own, 8, all, &limit), -EPROTO);
    net_meeting_leave(other);
    net_meeting_leave(meeting);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_may_come_again), /* first: no thread is there yet, which a fork may not leave behind */
        cmocka_unit_test(a_full_house_keeps_callers_waiting), /* nobody else is there yet */
        cmocka_unit_test(strangers_are_not_answered),
        cmocka_unit_test(descriptors_are_left_for_the_program),
        cmocka_unit_test(no_descriptor_is_waited_for),
        cmocka_unit_test(broken_ranks_are_refused),
        cmocka_unit_test(a_refusal_is_heard_though_writing_fails),
    };
    return network_run(tests, sizeof tests / sizeof tests[0], argc, argv);
}
