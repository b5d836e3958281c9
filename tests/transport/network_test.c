/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_test.c - put and flag between nodes; broken peers and cut connections do no
 * harm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "strangers.h"

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

/* Accept rank 0's call and answer it. */
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

static void begin_half(half_t *half, int *listener)
{
    half->group = new_group();
    half->landing = new_landing(2);
    assert_int_equal(net_network_open(&loopback, NULL, &half->network, &half->address[0]), 0);
    half->address[1] = half->address[0];
    half->address[1].port = 0;
    assert_int_equal(wire_listen(&half->address[1], listener), 0);
}

/* Connect as rank 1, after strangers and wrong ranks, which are refused. Returns the socket. */
static int connect_by_hand(half_t *half)
{
    pthread_t thread;
    uint64_t welcome = 0;
    int listener;
    begin_half(half, &listener);
    assert_int_equal(pthread_create(&thread, NULL, connect_half, half), 0);
    for (int wrong = 0; wrong < 7; wrong++) {
        wire_hello_t hello = stranger_hello(&half->group, 1, 2);
        hello.rounds = 0;
        hello.secret[0] ^= wrong == 0;
        hello.magic ^= wrong == 1;
        hello.group.word[1] ^= wrong == 2;
        hello.target += wrong == 3;
        hello.nranks += wrong == 4;
        hello.rank = wrong == 5 ? 0 : wrong == 6 ? 2 : hello.rank;
        int stranger = stranger_call(&half->address[0]);
        assert_int_equal(send(stranger, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
        assert_int_equal(stranger_bytes(stranger), 0);
        close(stranger);
    }
    const wire_hello_t hello = stranger_hello(&half->group, 1, 2);
    int connection = stranger_call(&half->address[0]);
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
/* A peer that has sent its hello keeps its place if more strangers follow than there is room for, all before rank 0
 * reads. */
static void strangers_push_no_peer_out(void **state)
{
    (void)state;
    enum { CROWD = 40 };
    half_t half;
    pthread_t thread;
    uint64_t welcome = 0;
    int listener, crowd[CROWD];
    begin_half(&half, &listener);
    const wire_hello_t hello = stranger_hello(&half.group, 1, 2);
    int peer = stranger_call(&half.address[0]);
    assert_int_equal(send(peer, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    for (int i = 0; i < CROWD; i++)
        assert_true((crowd[i] = stranger_call(&half.address[0])) >= 0);
    assert_int_equal(pthread_create(&thread, NULL, connect_half, &half), 0);
    assert_int_equal(recv(peer, &welcome, sizeof(welcome), MSG_WAITALL), sizeof(welcome));
    answer(&half, listener);
    pthread_join(thread, NULL);
    assert_int_equal(half.result, 0);
    for (int i = 0; i < CROWD; i++)
        close(crowd[i]);
    end_half(&half, peer);
}

/* A rank that strangers displaced before its hello arrived calls again. */
static void a_rank_that_is_pushed_out_calls_again(void **state)
{
    (void)state;
    half_t half;
    pthread_t thread;
    uint64_t welcome = 0;
    int listener, pushed;
    begin_half(&half, &listener);
    assert_int_equal(pthread_create(&thread, NULL, connect_half, &half), 0);
    for (int i = 0; i < 3; i++) {
        while (wire_accept(listener, &pushed) != 0)
            usleep(100);
        wire_close(pushed);
    }
    answer(&half, listener);
    const wire_hello_t hello = stranger_hello(&half.group, 1, 2);
    int peer = stranger_call(&half.address[0]);
    assert_int_equal(send(peer, &hello, sizeof(hello), MSG_NOSIGNAL), sizeof(hello));
    assert_int_equal(recv(peer, &welcome, sizeof(welcome), MSG_WAITALL), sizeof(welcome));
    pthread_join(thread, NULL);
    assert_int_equal(half.result, 0);
    end_half(&half, peer);
}

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

/* A connection cut in the head, in the data or between two puts is detected, and no flag is raised for incomplete
 * data. */
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

/* Puts to a slow reader wait, up to a limited number. */
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

/* Put beside the rank's own thread, which reads, until the connections end. */
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

/* Both threads see a cut, whether the reader or the other thread finds it first. */
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_before_flags),
        cmocka_unit_test(heads_are_checked),
        cmocka_unit_test(cut_connections_are_seen),
        cmocka_unit_test(slow_readers_are_waited_for),
        cmocka_unit_test(a_second_thread_may_read),
        cmocka_unit_test(a_cut_is_seen_by_both),
        cmocka_unit_test(strangers_push_no_peer_out),
        cmocka_unit_test(a_rank_that_is_pushed_out_calls_again),
        cmocka_unit_test(nothing_is_left),
    };
    return network_run(tests, sizeof tests / sizeof tests[0], argc, argv);
}
