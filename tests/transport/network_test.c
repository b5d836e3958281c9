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
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
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
    assert_int_equal(net_network_connect(network, &group.invitation, &group.key, 0, 2, address, &landing, &soon),
                     -ETIMEDOUT);
    net_network_close(network);
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

/* Rank 0 of two, whose peer is the test itself, on a plain socket. */
typedef struct half {
    group_t group;
    net_network_t *network;
    net_landing_t landing;
    net_address_t address[2];
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

/* Strangers and wrong ranks are sent away; then rank 1 comes. Returns its socket. */
static int connect_by_hand(half_t *half)
{
    pthread_t thread;
    uint64_t welcome = 0;
    half->group = new_group();
    half->landing = new_landing(2);
    assert_int_equal(net_network_open(&loopback, NULL, &half->network, &half->address[0]), 0);
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
        net_network_close(half.network);
        free_landing(&half.landing);
        close(connection);
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
        net_network_close(half.network);
        free_landing(&half.landing);
    }
}

/* A put that the peer does not read is not sent, and its data is not given back. */
static void slow_readers_are_waited_for(void **state)
{
    (void)state;
    half_t half;
    int connection = connect_by_hand(&half);
    const size_t large = (size_t)64 << 20; /* more than sockets keep */
    uint8_t *data = calloc(1, large), *got = malloc(large + sizeof(head_t));
    assert_int_equal(net_network_put(half.network, 1, 0, data, large, 1), 0);
    assert_false(net_network_sent(half.network, 1));
    assert_int_equal(net_network_put(half.network, 1, 0, data, 1, 2), -EBUSY);
    for (size_t all = 0; all < large + sizeof(head_t);) {
        ssize_t some = recv(connection, got + all, large + sizeof(head_t) - all, MSG_DONTWAIT);
        all += some > 0 ? (size_t)some : 0;
        net_network_progress(half.network, 0);
    }
    assert_true(net_network_sent(half.network, 1));
    assert_true(net_network_alive(half.network, 1));
    net_network_close(half.network);
    free_landing(&half.landing);
    close(connection);
    free(data);
    free(got);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet),
        cmocka_unit_test(strangers_are_not_answered),
        cmocka_unit_test(broken_ranks_are_refused),
        cmocka_unit_test(leaving_is_told),
        cmocka_unit_test(waits_have_limits),
        cmocka_unit_test(invitations_are_recognised),
        cmocka_unit_test(children_are_others),
        cmocka_unit_test(interfaces_are_chosen),
        cmocka_unit_test(bytes_arrive_before_flags),
        cmocka_unit_test(heads_are_checked),
        cmocka_unit_test(cut_connections_are_seen),
        cmocka_unit_test(slow_readers_are_waited_for),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
