/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting_test.c - ranks of several nodes meet or get an error; which process's sockets and which interface they use.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "strangers.h"
#include "tests/support/skips.h"

static void ranks_meet(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST; n++) {
        group_t group = new_group();
        assert_int_equal(run_threads(n, meet_twice, &group), 0);
        assert_int_equal(run_processes(n, meet_twice, &group), 0); /* under the same key, later */
    }
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

/* A rank that leaves after the first round is reported to the others; before that it may return. */
static void leaving_is_told(void **state)
{
    (void)state;
    group_t group = new_group();
    assert_int_equal(run_threads(3, leaver, &group), 0);
    net_meeting_t *meeting;
    net_limit_t limit = for_long();
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 2, &limit, &meeting), 0);
    net_meeting_leave(meeting);
    assert_int_equal(run_threads(2, meet_twice, &group), 0);
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

/* A listener whose queue is full: the system drops what calls it. */
typedef struct deaf {
    int listener, filler[8];
    net_address_t address;
} deaf_t;

static void fill_queue(deaf_t *deaf)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    deaf->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(deaf->listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(deaf->listener, 0), 0);
    assert_int_equal(getsockname(deaf->listener, (struct sockaddr *)&at, &size), 0);
    deaf->address = (net_address_t){.port = ntohs(at.sin_port), .family = AF_INET};
    memcpy(deaf->address.ip, &at.sin_addr, 4);
    for (int i = 0; i < 8; i++)
        assert_int_equal(wire_connect_begin(&deaf->address, &deaf->filler[i]), 0);
}

static void *hear_later(void *argument)
{
    const deaf_t *deaf = argument;
    usleep(2500000); /* the first call and its first repetition are lost, after 1 s */
    for (int i = 0; i < 8; i++)
        wire_close(deaf->filler[i]);
    for (int accepted = 0; accepted >= 0;)
        close(accepted = accept(deaf->listener, NULL, NULL));
    return NULL;
}

static void lost_calls_are_repeated(void **state)
{
    (void)state;
    deaf_t deaf;
    pthread_t thread;
    net_meeting_t *meeting;
    group_t group = new_group();
    fill_queue(&deaf);
    group.invitation.address = deaf.address;
    const net_limit_t limit = for_long();
    assert_int_equal(pthread_create(&thread, NULL, hear_later, &deaf), 0);
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &limit, &meeting), 0);
    pthread_join(thread, NULL);
    net_meeting_leave(meeting);
    close(deaf.listener);

    fill_queue(&deaf); /* and for ever, which is not the same as a rank that does not come */
    const net_limit_t soon = for_ms(100);
    group.invitation.address = deaf.address;
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 2, 1, &soon, &meeting), -EHOSTUNREACH);
    for (int i = 0; i < 8; i++)
        wire_close(deaf.filler[i]);
    close(deaf.listener);
}

enum { PUSHES = 3, HEARD = sizeof(wire_hello_t) + sizeof(meeting_head_t) + sizeof(uint32_t) };

/* A listener that strangers crowd: it drops the first callers before it has heard them. */
static void *push_out(void *argument)
{
    const int listener = *(const int *)argument;
    const net_limit_t limit = for_long();
    struct {
        wire_hello_t hello;
        meeting_head_t head;
        uint32_t record;
    } heard;
    int connection;
    for (int i = 0; i <= PUSHES; i++) {
        while (wire_accept(listener, &connection) != 0)
            usleep(100);
        if (i < PUSHES)
            wire_close(connection);
    }
    const bool sound = wire_read(connection, &heard, HEARD, &limit) == 0 && heard.hello.magic == WIRE_MAGIC;
    if (sound)
        wire_write(connection, &heard.head, sizeof(heard.head) + sizeof(heard.record), &limit);
    wire_close(connection);
    return NULL;
}

static void a_rank_that_is_pushed_out_comes_again(void **state)
{
    (void)state;
    int listener;
    pthread_t thread;
    net_meeting_t *meeting;
    uint32_t own = 7, all = 0;
    group_t group = new_group();
    const net_limit_t limit = for_long();
    group.invitation.address.port = 0;
    assert_int_equal(wire_listen(&group.invitation.address, &listener), 0);
    assert_int_equal(pthread_create(&thread, NULL, push_out, &listener), 0);
    assert_int_equal(net_meeting_join(&group.invitation, &group.key, 0, 1, 1, &limit, &meeting), 0);
    assert_int_equal(net_meeting_exchange(meeting, &own, sizeof(own), &all, &limit), 0);
    assert_int_equal(all, own);
    net_meeting_leave(meeting);
    pthread_join(thread, NULL);
    wire_close(listener);
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

/* A forked child has its own listener and none of the parent's sockets. */
static void children_are_others(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("the thread sanitizer allows such a child no threads");
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
    assert_int_equal(run_threads(2, meet_twice, &group), 0);
}

/* Make both sides of a connection; the first one was called. */
static void connect_pair(int pair[2], int *listener)
{
    net_address_t address;
    assert_int_equal(net_address_own(&loopback, &address), 0);
    assert_int_equal(wire_listen(&address, listener), 0);
    assert_int_equal(wire_connect_begin(&address, &pair[0]), 0);
    while (wire_accept(*listener, &pair[1]) != 0)
        usleep(100);
}

/* A process that was forked between the creation of a socket and its entry in the list has a copy, which does not keep
 * the connection open. */
static void a_copy_keeps_no_connection(void **state)
{
    (void)state;
    int pair[2], listener;
    connect_pair(pair, &listener);
    const int copy = dup(pair[0]);
    wire_close(pair[0]);
    assert_int_equal(stranger_bytes(pair[1]), 0);
    close(copy);
    wire_close(pair[1]);
    wire_close(listener);
}

/* The end of a process ends its connections, though its child still lives. */
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
    assert_int_equal(stranger_bytes(pair[1]), 0);
    assert_true(end_child(pid));
    wire_close(pair[1]);
    wire_close(listener);
}

/* ---- Interfaces ---- */

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet),
        cmocka_unit_test(leaving_is_told),
        cmocka_unit_test(waits_have_limits),
        cmocka_unit_test(lost_calls_are_repeated),
        cmocka_unit_test(a_rank_that_is_pushed_out_comes_again),
        cmocka_unit_test(invitations_are_recognised),
        cmocka_unit_test(children_are_others),
        cmocka_unit_test(a_copy_keeps_no_connection),
        cmocka_unit_test(children_keep_no_connection),
        cmocka_unit_test(interfaces_are_chosen),
    };
    return network_run(tests, sizeof tests / sizeof tests[0], argc, argv);
}
