/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "network_ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/rdma_wish.h"
#include "transport/network/wire.h"

const net_interfaces_t loopback = {"lo", "AF_INET"};

net_limit_t for_long(void)
{
    return (net_limit_t){wire_now_ns() + LONG_S * UINT64_C(1000000000), NULL};
}

net_limit_t for_ms(uint32_t ms)
{
    return (net_limit_t){wire_now_ns() + ms * UINT64_C(1000000), NULL};
}

group_t new_group(void)
{
    group_t group = {.key = random_key()};
    if (net_invite(&loopback, &group.invitation) != 0)
        group = (group_t){0};
    return group;
}

int meet_twice(uint32_t rank, uint32_t nranks, void *argument)
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

net_landing_t new_landing(uint32_t nranks)
{
    return (net_landing_t){
        .windows = calloc(nranks, WINDOW), .window_bytes = WINDOW, .flags = calloc(nranks, sizeof(uint64_t))};
}

void free_landing(net_landing_t *landing)
{
    free(landing->windows);
    free(landing->flags);
}

uint64_t flag_of(const net_landing_t *landing, uint32_t peer)
{
    return __atomic_load_n(&landing->flags[peer], __ATOMIC_ACQUIRE);
}

int connect_all(const group_t *group, const net_rdma_t *rdma, uint32_t rank, uint32_t nranks,
                const net_landing_t *landing, net_network_t **network)
{
    const net_limit_t limit = for_long();
    net_address_t own, all[MOST];
    net_meeting_t *meeting;
    CHECK(net_network_open(&loopback, rdma, network, &own) == 0);
    CHECK(net_meeting_join(&group->invitation, &group->key, rank, nranks, 1, &limit, &meeting) == 0);
    CHECK(net_meeting_exchange(meeting, &own, sizeof(own), all, &limit) == 0);
    net_meeting_leave(meeting);
    CHECK(net_network_connect(*network, &group->invitation, &group->key, rank, nranks, all, landing, &limit) == 0);
    return 0;
}

static uint8_t pattern(uint32_t from, uint32_t to, uint64_t step, uint64_t i)
{
    return (uint8_t)(from * 31 + to * 17 + step * 7 + i * 3 + i / 256);
}

/* Wait until the peer's step has arrived and this rank's has been sent. A peer may leave before this rank is told that
 * its last step was sent. */
static bool is_through(net_network_t *network, const net_landing_t *landing, uint32_t peer, uint64_t step)
{
    for (;;) {
        const bool alive = net_network_alive(network, peer);
        net_network_progress(network, 0);
        if (flag_of(landing, peer) >= step && (!alive || net_network_sent(network, peer) >= step))
            return true;
        if (!alive)
            return false;
        net_network_progress(network, 100);
    }
}

enum { AHEAD_BYTES = WINDOW / 2 / NET_PUTS };

/* Put as many at a time as allowed, at other places of the window than the last ones. */
static int put_ahead(net_network_t *network, const net_landing_t *landing, uint32_t rank, uint32_t nranks)
{
    uint8_t *data = malloc(MOST * (size_t)WINDOW / 2);
    for (uint64_t last = 20 + NET_PUTS; last <= 20 + 12 * NET_PUTS; last += NET_PUTS) {
        const uint64_t offset = last / NET_PUTS % 2 * WINDOW / 2;
        for (uint32_t i = 0; i < NET_PUTS * nranks; i++) {
            const uint32_t p = i % nranks;
            const uint64_t at = i / nranks * (uint64_t)AHEAD_BYTES, step = last - NET_PUTS + 1 + i / nranks;
            uint8_t *to = data + p * (size_t)WINDOW / 2 + at;
            for (uint64_t b = 0; b < AHEAD_BYTES - step; b++)
                to[b] = pattern(rank, p, step, b);
            if (p != rank)
                CHECK(net_network_put(network, p, offset + at, to, AHEAD_BYTES - step, step) == 0);
        }
        for (uint32_t p = 0; p < nranks; p++) {
            CHECK(p == rank || is_through(network, landing, p, last));
            for (uint64_t i = 0; i < WINDOW / 2 && p != rank; i++) {
                const uint64_t step = last - NET_PUTS + 1 + i / AHEAD_BYTES, b = i % AHEAD_BYTES;
                CHECK(b >= AHEAD_BYTES - step ||
                      landing->windows[p * (size_t)WINDOW + offset + i] == pattern(p, rank, step, b));
            }
        }
    }
    free(data);
    return 0;
}

int put_steps(net_network_t *network, const net_landing_t *landing, uint32_t rank, uint32_t nranks)
{
    static const uint64_t sizes[] = {0, 1, 4096, WINDOW / 2, 77777};
    uint8_t *data = malloc(MOST * (size_t)WINDOW / 2);
    for (uint64_t step = 1; step <= 20; step++) {
        const uint64_t bytes = sizes[step % 5], offset = step % 2 ? 0 : WINDOW - bytes;
        for (uint32_t p = 0; p < nranks; p++) {
            uint8_t *to = data + p * (size_t)WINDOW / 2;
            for (uint64_t i = 0; i < bytes; i++)
                to[i] = pattern(rank, p, step, i);
            if (p != rank)
                CHECK(net_network_put(network, p, offset, to, bytes, step) == 0);
        }
        for (uint32_t p = 0; p < nranks; p++) {
            CHECK(p == rank || is_through(network, landing, p, step));
            for (uint64_t i = 0; i < bytes && p != rank; i++)
                CHECK(landing->windows[p * (size_t)WINDOW + offset + i] == pattern(p, rank, step, i));
        }
    }
    free(data);
    return put_ahead(network, landing, rank, nranks);
}

int connect_and_put(uint32_t rank, uint32_t nranks, void *argument)
{
    rdma_wish_t wish;
    net_network_t *network;
    net_landing_t landing = new_landing(nranks);
    int line = connect_all(argument, rdma_wish(&wish, rank), rank, nranks, &landing, &network);
    if (line)
        return line;
    CHECK(rdma_as_wished(network));
    line = put_steps(network, &landing, rank, nranks);
    net_network_close(network);
    free_landing(&landing);
    return line;
}

static void out_of_time(int signal)
{
    (void)signal;
    static const char text[] = "out of time\n";
    _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? 2 : 1);
}

int network_run(const struct CMUnitTest *tests, size_t count, int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    signal(SIGALRM, out_of_time); /* a broken build (broken.cmake) hangs */
    alarm(LONG_S);
    return _cmocka_run_group_tests("network", tests, count, NULL, NULL);
}
