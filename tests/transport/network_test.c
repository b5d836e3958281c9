/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_test.c - ranks of several hosts meet, and put and flag between them;
 * strangers, broken peers and cut connections do no harm.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "network_ranks.h"
#include "transport/network/wire.h"

/* ---- Strangers: plain sockets ------------------------------------------------------ */

static int call(const net_address_t *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    memcpy(&to.sin_addr, address->ip, 4);
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && connect(made, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(made);
        made = -1;
    }
    return made;
}

/* Bytes that come until the other side closes. */
static int bytes_until_end(int connection)
{
    uint8_t byte[64];
    int all = 0;
    struct pollfd one = {.fd = connection, .events = POLLIN};
    for (;;) {
        if (poll(&one, 1, LONG_S * 1000) <= 0)
            return -1;
        ssize_t got = recv(connection, byte, sizeof(byte), 0);
        if (got <= 0)
            return all;
        all += (int)got;
    }
}

static wire_hello_t hello_of(const group_t *group, uint32_t rank, uint32_t nranks)
{
    return (wire_hello_t){.magic = WIRE_MAGIC,
                          .secret = {group->invitation.secret[0], group->invitation.secret[1]},
                          .group = group->key,
                          .rank = rank,
                          .nranks = nranks,
                          .rounds = 1};
}

/* ---- Meeting ----------------------------------------------------------------------- */

static int meets(uint32_t rank, uint32_t nranks, void *argument)
{
    const group_t *group = argument;
    const net_limit_t limit = for_long();
    net_meeting_t *meeting;
    CHECK(net_meeting_join(&group->invitation, &group->key, rank, nranks, 2, &limit, &meeting) == 0);
    for (uint32_t round = 0; round < 2; round++) {
        const uint32_t bytes = round ? 4 : NET_ROUND_BYTES;
        uint8_t own[NET_ROUND_BYTES], all[MOST * NET_ROUND_BYTES];
        memset(own, (int)(16 * round + rank), sizeof(own));
        CHECK(net_meeting_exchange(meeting, own, bytes, all, &limit) == 0);
        for (uint32_t i = 0; i < nranks * bytes; i++)
            CHECK(all[i] == 16 * round + i / bytes);
    }
    net_meeting_leave(meeting);
    return 0;
}

static void ranks_meet(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        group_t group = new_group();
        assert_int_equal(run_threads(n, meets, &group), 0);
        assert_int_equal(run_processes(n, meets, &group), 0); /* under the same key, later */
    }
}

/* Who does not know the secret gets no byte; nor does one that says nothing, or nonsense. Ranks meet meanwhile. */
static void strangers_are_not_answered(void **state)
{
    (void)state;
    enum { STRANGERS = 300 };
    group_t group = new_group();
    int stranger[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        stranger[i] = call(&group.invitation.address);
        assert_true(stranger[i] >= 0);
        wire_hello_t hello = hello_of(&group, 0, 1);
        if (i % 4 == 1)
            hello.secret[i / 4 % 2] ^= UINT64_C(1) << (i % 64);
        if (i % 4 == 2)
            hello.magic++;
        if (i % 4 == 3)
            memset(&hello, i, sizeof(hello));
        if (i % 4)
            assert_int_equal(send(stranger[i], &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    }
    assert_int_equal(run_threads(MOST, meets, &group), 0);
    for (int i = 0; i < STRANGERS; i++) {
        assert_int_equal(bytes_until_end(stranger[i]), 0);
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

static void end_process(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
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
        wire_hello_t hello = hello_of(group, 0, 2);
        int connection = call(&group->invitation.address);
        hello.group.word[0] += 1 + (uint64_t)i;
        if (connection < 0 || (known && send(connection, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)))
            _exit(1);
    }
    for (;;)
        pause();
}

static void *meet_later(void *argument)
{
    return (void *)(intptr_t)run_threads(2, meets, argument);
}

/* 256 ranks wait for others: who comes then waits, and is not sent away. */
static void a_full_house_keeps_callers_waiting(void **state)
{
    (void)state;
    enum { SEATS = 256 };
    group_t group = new_group();
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_cur < 4 * SEATS)
        skip();
    const int before = open_descriptors();
    pid_t callers = start_callers(&group, SEATS, true);
    while (open_descriptors() < before + SEATS)
        usleep(1000);
    pthread_t thread;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, meet_later, &group), 0);
    usleep(50000);
    end_process(callers);
    pthread_join(thread, &result);
    assert_int_equal((intptr_t)result, 0);
}

/* The program's own files are not taken away. */
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
    assert_int_equal(run_threads(2, meets, &group), 0);
    assert_int_equal(waitpid(callers, &status, WNOHANG), 0); /* none of its calls has failed */
    end_process(callers);
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

/* The listener does not spin while there is no descriptor for a caller: it tries ten times a second, however fast the
 * machine is. The caller is heard when there is one. */
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
    assert_int_equal(run_threads(2, meets, &group), 0);
    end_process(callers);
    assert_true(tried <= naps + 2);
}

/* What one who knows the secret is told. */
static uint32_t told(const group_t *group, const wire_hello_t *hello)
{
    meeting_head_t head = {.error = 4711};
    int connection = call(&group->invitation.address);
    assert_int_equal(send(connection, hello, sizeof(*hello), MSG_NOSIGNAL), sizeof(*hello));
    assert_int_equal(recv(connection, &head, sizeof(head), MSG_WAITALL), sizeof(head));
    close(connection);
    return head.error;
}

/* A rank's hello and its record, in one. */
static void post(int connection, const group_t *group, uint32_t rank)
{
    const struct {
        wire_hello_t hello;
        meeting_head_t head;
        uint64_t record; /* no padding behind it */
    } words = {hello_of(group, rank, 2), {.bytes = sizeof(uint64_t)}, rank};
    assert_int_equal(send(connection, &words, sizeof(words), MSG_NOSIGNAL), sizeof(words));
}

/* The listener finds a rank's new hello and the end of its old connection at once, the hello first. What it answers to
 * the new one; -1: the test took so long that the new one was taken for a stranger. */
static int come_again(group_t *group, pid_t listener)
{
    meeting_head_t head = {.error = 4711};
    const wire_hello_t wrong = hello_of(group, 2, 2);
    const int stranger = call(&group->invitation.address), peer = call(&group->invitation.address),
              old = call(&group->invitation.address);
    group->key.word[0]++;
    const wire_hello_t first = hello_of(group, 0, 2);
    post(peer, group, 1);
    assert_int_equal(send(old, &first, sizeof(first), MSG_NOSIGNAL), sizeof(first));
    const int again = call(&group->invitation.address);
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

/* A rank that gave up calls again before its end was heard. */
static void a_rank_may_come_again(void **state)
{
    (void)state;
    group_t group;
    int told_again;
    pid_t listener = start_listener(&group);
    while ((told_again = come_again(&group, listener)) < 0)
        ;
    assert_int_equal(told_again, 0);
    end_process(listener);
}

/* The listener has refused, and closed, before the record was written. */
static void a_refusal_is_heard_though_writing_fails(void **state)
{
    (void)state;
    group_t group = new_group();
    const net_limit_t limit = for_long();
    net_meeting_t *first, *second;
    uint8_t own[NET_ROUND_BYTES] = {0}, all[2 * NET_ROUND_BYTES];
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &first), 0);
    wire_hello_t hello = hello_of(&group, 2, 2);
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
    wire_hello_t hello = hello_of(&group, 0, 2);
    assert_int_equal(told(&group, &hello), EEXIST);
    hello = hello_of(&group, 1, 3);
    assert_int_equal(told(&group, &hello), EPROTO);
    hello = hello_of(&group, 1, 2);
    hello.rounds = 2;
    assert_int_equal(told(&group, &hello), EPROTO);
    hello = hello_of(&group, 2, 2);
    assert_int_equal(told(&group, &hello), EPROTO);
    hello = hello_of(&group, 1, UINT32_MAX);
    assert_int_equal(told(&group, &hello), EPROTO);

    /* A record that is longer than any: the end. */
    int connection = call(&group.invitation.address);
    const meeting_head_t long_one = {.bytes = UINT32_MAX};
    hello = hello_of(&group, 1, 2);
    assert_int_equal(send(connection, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    assert_int_equal(send(connection, &long_one, sizeof(long_one), MSG_NOSIGNAL), sizeof(long_one));
    assert_int_equal(bytes_until_end(connection), 0);
    close(connection);

    /* Of another length than rank 0's: both are told. */
    net_meeting_t *other;
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 1, 2, 1, &limit, &other), 0);
    assert_int_equal(net_meeting_exchange(other, own, 8, all, &limit), -EPROTO);
    net_meeting_leave(other);
    net_meeting_leave(meeting);
}

static int leaver(uint32_t rank, uint32_t nranks, void *argument)
{
    const group_t *group = argument;
    const net_limit_t limit = for_long();
    net_meeting_t *meeting;
    uint32_t all[MOST];
    CHECK(net_meeting_join(&group->invitation, &group->key, rank, nranks, 2, &limit, &meeting) == 0);
    CHECK(net_meeting_exchange(meeting, &rank, sizeof(rank), all, &limit) == 0);
    if (rank != 0)
        CHECK(net_meeting_exchange(meeting, &rank, sizeof(rank), all, &limit) == -ESRCH);
    net_meeting_leave(meeting);
    return 0;
}

/* After the first round the others count on a rank; before it, it may come again. */
static void leaving_is_told(void **state)
{
    (void)state;
    group_t group = new_group();
    assert_int_equal(run_threads(3, leaver, &group), 0);
    net_meeting_t *meeting;
    net_limit_t limit = for_long();
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 2, &limit, &meeting), 0);
    net_meeting_leave(meeting);
    assert_int_equal(run_threads(2, meets, &group), 0);
}

static void *raise_flag(void *argument)
{
    usleep(20000);
    __atomic_store_n((uint32_t *)argument, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void waits_have_limits(void **state)
{
    (void)state;
    group_t group = new_group();
    uint8_t all[2 * NET_ROUND_BYTES] = {0};
    uint32_t stop = 0;
    net_limit_t limit = {0, &stop}, soon = for_ms(30);
    net_meeting_t *meeting;
    pthread_t thread;
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &meeting), 0);
    assert_int_equal(net_meeting_exchange(meeting, all, 1, all, &soon), -ETIMEDOUT);
    net_meeting_leave(meeting);
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &meeting), 0);
    assert_int_equal(pthread_create(&thread, NULL, raise_flag, &stop), 0);
    assert_int_equal(net_meeting_exchange(meeting, all, 1, all, &limit), -ECANCELED);
    pthread_join(thread, NULL);
    net_meeting_leave(meeting);

    /* Peers that do not come. */
    net_network_t *network;
    net_address_t address[2];
    stop = 0;
    soon = for_ms(30);
    assert_int_equal(net_network_open(&loopback, NULL, &network, &address[0]), 0);
    net_landing_t landing = new_landing(2);
    int silent;
    address[1] = address[0];
    address[1].port = 0;
    assert_int_equal(wire_listen(&address[1], &silent), 0);
    assert_int_equal(net_network_connect(network, &group.invitation, &group.key, 0, 2, address, &landing, &soon),
                     -ETIMEDOUT);
    net_network_close(network);
    wire_close(silent);
    free_landing(&landing);

    /* Nobody listens any more. */
    net_address_t gone = group.invitation.address;
    int listener;
    gone.port = 0;
    assert_int_equal(wire_listen(&gone, &listener), 0);
    wire_close(listener);
    group.invitation.address = gone;
    limit = for_long();
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &meeting), -ECONNREFUSED);
}

static void invitations_are_recognised(void **state)
{
    (void)state;
    group_t group = new_group();
    assert_true(net_invitation_valid(&group.invitation));
    for (size_t i = 0; i < sizeof(group.invitation); i++) {
        net_invitation_t other = group.invitation;
        ((uint8_t *)&other)[i] ^= 1;
        assert_false(net_invitation_valid(&other));
    }
    const net_invitation_t none = {0};
    assert_false(net_invitation_valid(&none));
}

/* A child has its own listener, and none of the parent's sockets. */
static void children_are_others(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* it allows such a child no threads */
#endif
    group_t group = new_group();
    pid_t pid = fork();
    if (pid == 0) {
        net_invitation_t own;
        const bool other = net_invite(&loopback, &own) == 0 && own.address.port != group.invitation.address.port &&
                           !wire_secret_equal(own.secret, group.invitation.secret);
        _exit(other ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(run_threads(2, meets, &group), 0);
}

/* Both sides of a connection, the first one called. */
static void connect_pair(int pair[2], int *listener)
{
    net_address_t address;
    assert_int_equal(net_address_own(&loopback, &address), 0);
    assert_int_equal(wire_listen(&address, listener), 0);
    assert_int_equal(wire_connect_begin(&address, &pair[0]), 0);
    while (wire_accept(*listener, &pair[1]) != 0)
        usleep(100);
}

/* A process that was forked between the making of a socket and its listing has a copy. */
static void a_copy_keeps_no_connection(void **state)
{
    (void)state;
    int pair[2], listener;
    connect_pair(pair, &listener);
    const int copy = dup(pair[0]);
    wire_close(pair[0]);
    assert_int_equal(bytes_until_end(pair[1]), 0);
    close(copy);
    wire_close(pair[1]);
    wire_close(listener);
}

/* The end of a process ends its connections, though its child lives. */
static void children_keep_no_connection(void **state)
{
    (void)state;
    int pair[2], listener;
    connect_pair(pair, &listener);
    pid_t pid = fork(); /* it closes its copies ... */
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    close(pair[0]); /* ... as this process does at its end: without a word */
    assert_int_equal(bytes_until_end(pair[1]), 0);
    end_process(pid);
    wire_close(pair[1]);
    wire_close(listener);
}

/* ---- Interfaces -------------------------------------------------------------------- */

static bool is_loopback(const net_address_t *address)
{
    return address->family == AF_INET && address->ip[0] == 127;
}

static void interfaces_are_chosen(void **state)
{
    (void)state;
    static const char *const with[] = {"lo", "=lo", "nothing,lo", "l"}, *const without[] = {"^lo", "^=lo", "^x,l"};
    net_address_t address;
    char text[NET_ADDRESS_TEXT];
    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++) {
        const net_interfaces_t wanted = {with[i], "AF_INET"};
        assert_int_equal(net_address_own(&wanted, &address), 0);
        assert_true(is_loopback(&address));
    }
    net_address_write(&address, text);
    assert_string_equal(text, "127.0.0.1:0");
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++) {
        const net_interfaces_t wanted = {without[i], "AF_INET"};
        int error = net_address_own(&wanted, &address);
        assert_true(error == -ENODEV || (error == 0 && !is_loopback(&address)));
    }
    const net_interfaces_t whole = {"=l", NULL}, none = {"nothing", NULL};
    assert_int_equal(net_address_own(&whole, &address), -ENODEV);
    assert_int_equal(net_address_own(&none, &address), -ENODEV);
    const net_interfaces_t six = {"lo", "AF_INET6"};
    if (net_address_own(&six, &address) == 0) { /* where there is IPv6 */
        net_address_write(&address, text);
        assert_string_equal(text, "[::1]:0");
    }
}

/* ---- Put and flag ------------------------------------------------------------------ */

static void bytes_arrive_before_flags(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= MOST; n++) {
        group_t group = new_group();
        assert_int_equal(run_threads(n, connect_and_put, &group), 0);
    }
    group_t group = new_group();
    if (CHILDREN_HAVE_DEVICES || !getenv("SHUNT_IBV_SO"))
        assert_int_equal(run_processes(3, connect_and_put, &group), 0);
}

/* Rank 0 of two, whose peer is the test itself, on plain sockets. */
typedef struct half {
    group_t group;
    net_network_t *network;
    net_landing_t landing;
    net_address_t address[2];
    int hears; /* what rank 0 puts */
    int result;
} half_t;

static void *connect_half(void *argument)
{
    half_t *half = argument;
    const net_limit_t limit = for_long();
    half->result = net_network_connect(half->network, &half->group.invitation, &half->group.key, 0, 2, half->address,
                                       &half->landing, &limit);
    return NULL;
}

/* Rank 0 calls. */
static void answer(half_t *half, int listener)
{
    const uint64_t welcome = WIRE_MAGIC;
    wire_hello_t hello;
    while (wire_accept(listener, &half->hears) != 0)
        usleep(100);
    const net_limit_t limit = for_long();
    assert_int_equal(wire_read(half->hears, &hello, sizeof(hello), &limit), 0);
    assert_int_equal(hello.magic, WIRE_MAGIC);
    assert_int_equal(hello.rank, 0);
    assert_int_equal(hello.target, 1);
    assert_int_equal(wire_write(half->hears, &welcome, sizeof(welcome), &limit), 0);
    wire_close(listener);
}

static void end_half(half_t *half, int connection)
{
    net_network_close(half->network);
    free_landing(&half->landing);
    wire_close(half->hears);
    close(connection);
}

/* Strangers and wrong ranks are sent away; then rank 1 comes. Returns its socket. */
static int connect_by_hand(half_t *half)
{
    pthread_t thread;
    uint64_t welcome = 0;
    int listener;
    half->group = new_group();
    half->landing = new_landing(2);
    assert_int_equal(net_network_open(&loopback, NULL, &half->network, &half->address[0]), 0);
    half->address[1] = half->address[0];
    half->address[1].port = 0;
    assert_int_equal(wire_listen(&half->address[1], &listener), 0);
    assert_int_equal(pthread_create(&thread, NULL, connect_half, half), 0);
    for (int wrong = 0; wrong < 7; wrong++) {
        wire_hello_t hello = hello_of(&half->group, 1, 2);
        hello.rounds = 0;
        hello.secret[0] ^= wrong == 0;
        hello.magic ^= wrong == 1;
        hello.group.word[1] ^= wrong == 2;
        hello.target += wrong == 3;
        hello.nranks += wrong == 4;
        hello.rank = wrong == 5 ? 0 : wrong == 6 ? 2 : hello.rank;
        int stranger = call(&half->address[0]);
        assert_int_equal(send(stranger, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
        assert_int_equal(bytes_until_end(stranger), 0);
        close(stranger);
    }
    const wire_hello_t hello = hello_of(&half->group, 1, 2);
    int connection = call(&half->address[0]);
    assert_int_equal(send(connection, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    assert_int_equal(recv(connection, &welcome, sizeof(welcome), MSG_WAITALL), sizeof(welcome));
    answer(half, listener);
    pthread_join(thread, NULL);
    assert_int_equal(half->result, 0);
    return connection;
}

typedef struct head {
    uint64_t offset, bytes, flag;
} head_t;

/* What no peer sends ends the connection, before a byte of it lands. */
static void heads_are_checked(void **state)
{
    (void)state;
    static const head_t bad[] = {{0, WINDOW + 1, 2},     {1, WINDOW, 2},     {WINDOW, 1, 2}, {UINT64_MAX, 1, 2},
                                 {UINT64_MAX - 3, 8, 2}, {0, UINT64_MAX, 2}, {0, 1, 1},      {0, 1, 0}};
    for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++) {
        half_t half;
        int connection = connect_by_hand(&half);
        const head_t good = {WINDOW - 1, 1, 1};
        const uint8_t byte = 0xa5;
        assert_int_equal(send(connection, &good, sizeof(good), MSG_NOSIGNAL), sizeof(good));
        assert_int_equal(send(connection, &byte, 1, MSG_NOSIGNAL), 1);
        while (flag_of(&half.landing, 1) < 1)
            net_network_progress(half.network, 100);
        assert_int_equal(half.landing.windows[2 * WINDOW - 1], byte);
        assert_int_equal(send(connection, &bad[b], sizeof(bad[b]), MSG_NOSIGNAL), sizeof(bad[b]));
        while (net_network_alive(half.network, 1))
            net_network_progress(half.network, 100);
        assert_int_equal(flag_of(&half.landing, 1), 1);
        assert_int_equal(net_network_put(half.network, 1, 0, &byte, 1, 1), -ECONNRESET);
        end_half(&half, connection);
    }
}

/* Cut in the head, in the bytes, and between two put_steps: no flag is raised for what is not whole. */
static void cut_connections_are_seen(void **state)
{
    (void)state;
    static const size_t cut_at[] = {0, 5, sizeof(head_t), sizeof(head_t) + 10};
    for (size_t c = 0; c < sizeof(cut_at) / sizeof(cut_at[0]); c++) {
        half_t half;
        int connection = connect_by_hand(&half);
        struct {
            head_t head;
            uint8_t bytes[20];
        } put = {{0, sizeof(put.bytes), 1}, {0}};
        assert_int_equal(send(connection, &put, cut_at[c], MSG_NOSIGNAL), (ssize_t)cut_at[c]);
        close(connection);
        while (net_network_alive(half.network, 1))
            net_network_progress(half.network, 100);
        assert_int_equal(flag_of(&half.landing, 1), 0);
        end_half(&half, -1);
    }
}

/* Puts that the peer does not read are not sent, and there is an end of them. */
static void slow_readers_are_waited_for(void **state)
{
    (void)state;
    half_t half;
    int connection = connect_by_hand(&half);
    const size_t large = (size_t)64 << 20; /* more than sockets keep */
    const size_t total = large + NET_PUTS - 1 + NET_PUTS * sizeof(head_t);
    uint8_t *data = calloc(1, large), *got = malloc(total);
    assert_int_equal(net_network_put(half.network, 1, 0, data, large, 1), 0);
    for (uint64_t flag = 2; flag <= NET_PUTS; flag++)
        assert_int_equal(net_network_put(half.network, 1, flag, data + flag, 1, flag), 0);
    assert_int_equal(net_network_sent(half.network, 1), 0);
    assert_int_equal(net_network_put(half.network, 1, 0, data, 1, NET_PUTS + 1), -EBUSY);
    for (size_t all = 0; all < total;) {
        ssize_t some = recv(half.hears, got + all, total - all, MSG_DONTWAIT);
        all += some > 0 ? (size_t)some : 0;
        net_network_progress(half.network, 0);
    }
    for (uint64_t flag = 1; flag <= NET_PUTS; flag++) {
        const head_t wanted = {flag == 1 ? 0 : flag, flag == 1 ? large : 1, flag};
        assert_memory_equal(got + (flag == 1 ? 0 : large + (flag - 2) + (flag - 1) * sizeof(head_t)), &wanted,
                            sizeof(wanted));
    }
    assert_int_equal(net_network_sent(half.network, 1), NET_PUTS);
    assert_true(net_network_alive(half.network, 1));
    end_half(&half, connection);
    free(data);
    free(got);
}

/* Calls of recv (--wrap), which are slow then, while another thread is in one for the same socket, or ends it. */
enum { MOST_SOCKETS = 1024 };
static atomic_bool slow_recv;
static atomic_uint overlaps, inside[MOST_SOCKETS];

ssize_t __real_recv(int connection, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int connection, void *bytes, size_t size, int flags);
int __real_shutdown(int connection, int how);
int __wrap_shutdown(int connection, int how);

int __wrap_shutdown(int connection, int how)
{
    overlaps += slow_recv && connection < MOST_SOCKETS && inside[connection] > 0;
    return __real_shutdown(connection, how);
}

ssize_t __wrap_recv(int connection, void *bytes, size_t size, int flags)
{
    if (!slow_recv || connection >= MOST_SOCKETS)
        return __real_recv(connection, bytes, size, flags);
    overlaps += atomic_fetch_add(&inside[connection], 1) > 0;
    usleep(10);
    const ssize_t got = __real_recv(connection, bytes, size, flags);
    atomic_fetch_sub(&inside[connection], 1);
    return got;
}

typedef struct reading {
    net_network_t *network;
    atomic_bool stop;
} reading_t;

static void *read_beside(void *argument)
{
    reading_t *reading = argument;
    while (!atomic_load(&reading->stop))
        net_network_receive(reading->network);
    return NULL;
}

/* Beside the rank's own thread, up to the end of the connections. */
static int put_beside_a_reader(uint32_t rank, uint32_t nranks, void *argument)
{
    net_landing_t landing = new_landing(nranks);
    reading_t reading = {.stop = false};
    pthread_t thread;
    int line = connect_all(argument, NULL, rank, nranks, &landing, &reading.network);
    if (line)
        return line;
    CHECK(pthread_create(&thread, NULL, read_beside, &reading) == 0);
    line = put_steps(reading.network, &landing, rank, nranks);
    atomic_store(&reading.stop, true);
    pthread_join(thread, NULL);
    net_network_close(reading.network);
    free_landing(&landing);
    return line;
}

static void a_second_thread_may_read(void **state)
{
    (void)state;
    group_t group = new_group();
    slow_recv = true;
    assert_int_equal(run_threads(3, put_beside_a_reader, &group), 0);
    slow_recv = false;
    assert_int_equal(overlaps, 0);
}

/* A cut that the reader sees; and one that the other thread sees, while the reader reads. */
static void a_cut_is_seen_by_both(void **state)
{
    (void)state;
    overlaps = 0;
    for (int i = 0; i < 20; i++) {
        half_t half;
        pthread_t thread;
        int connection = connect_by_hand(&half);
        reading_t reading = {half.network, false};
        const head_t good = {0, 1, 1};
        const uint8_t byte = 0xa5;
        slow_recv = true;
        assert_int_equal(pthread_create(&thread, NULL, read_beside, &reading), 0);
        assert_int_equal(send(connection, &good, sizeof(good), MSG_NOSIGNAL), sizeof(good));
        assert_int_equal(send(connection, &byte, 1, MSG_NOSIGNAL), 1);
        while (flag_of(&half.landing, 1) < 1)
            usleep(10);
        if (i % 2)
            wire_close(half.hears);
        else
            close(connection);
        for (uint64_t flag = 1; net_network_alive(half.network, 1); flag++) {
            if (i % 2)
                net_network_put(half.network, 1, 0, &byte, 1, flag);
            net_network_write(half.network);
        }
        atomic_store(&reading.stop, true);
        pthread_join(thread, NULL);
        slow_recv = false;
        half.hears = i % 2 ? -1 : half.hears;
        end_half(&half, i % 2 ? connection : -1);
    }
    assert_int_equal(overlaps, 0);
}

static void nothing_is_left(void **state)
{
    (void)state;
    group_t group = new_group();
    assert_int_equal(run_threads(2, connect_and_put, &group), 0);
    const int before = open_descriptors();
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_threads(3, connect_and_put, &group), 0);
    /* The listener closes its side a moment after the ranks have gone. */
    while (open_descriptors() > before)
        usleep(1000);
}

static void out_of_time(int signal)
{
    (void)signal;
    _exit(1);
}

/* One test alone may be asked for. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_may_come_again), /* first: no thread is there yet, which a fork may not leave behind */
        cmocka_unit_test(a_full_house_keeps_callers_waiting), /* nobody else is there yet */
        cmocka_unit_test(ranks_meet),
        cmocka_unit_test(strangers_are_not_answered),
        cmocka_unit_test(descriptors_are_left_for_the_program),
        cmocka_unit_test(no_descriptor_is_waited_for),
        cmocka_unit_test(broken_ranks_are_refused),
        cmocka_unit_test(a_refusal_is_heard_though_writing_fails),
        cmocka_unit_test(leaving_is_told),
        cmocka_unit_test(waits_have_limits),
        cmocka_unit_test(invitations_are_recognised),
        cmocka_unit_test(children_are_others),
        cmocka_unit_test(a_copy_keeps_no_connection),
        cmocka_unit_test(children_keep_no_connection),
        cmocka_unit_test(interfaces_are_chosen),
        cmocka_unit_test(bytes_arrive_before_flags),
        cmocka_unit_test(heads_are_checked),
        cmocka_unit_test(cut_connections_are_seen),
        cmocka_unit_test(slow_readers_are_waited_for),
        cmocka_unit_test(a_second_thread_may_read),
        cmocka_unit_test(a_cut_is_seen_by_both),
        cmocka_unit_test(nothing_is_left),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    signal(SIGALRM, out_of_time); /* a broken build (broken.cmake) hangs */
    alarm(LONG_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
