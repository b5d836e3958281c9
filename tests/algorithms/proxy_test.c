/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's proxy serves a relay as soon as its connections exist, however late the program continues the set-up and
 * however the system's clock changes. The other node is a bare network, which puts as that node's proxy would.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "algorithms/nodes/nodes.h"
#include "algorithms/nodes/relay.h"
#include "tests/support/clock_back.h"

enum { OWN, PEER, NODES, LIMIT_S = 60 }; /* the limit is against hanging alone */

static const net_interfaces_t loopback = {"lo", NULL};

/* ---- Threads that cannot be started (--wrap) ------------------------------------------- */

static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, body, argument);
}

/* ---- Two nodes ------------------------------------------------------------------------- */

typedef struct pair {
    alg_relay_t *relay;
    net_network_t *network[NODES]; /* the first one is the relay's */
    net_invitation_t invitation;
    net_address_t address[NODES];
    uint8_t *windows; /* the peer's */
    uint64_t flags[NODES];
    int error;
} pair_t;

static int connect_one(pair_t *p, uint32_t node, const net_landing_t *landing)
{
    const net_limit_t limit = {0, NULL};
    const net_key_t key = {{1, 2}};
    return net_network_connect(p->network[node], &p->invitation, &key, node, NODES, p->address, landing, &limit);
}

static void *connect_peer(void *argument)
{
    pair_t *p = argument;
    const net_landing_t landing = {.windows = p->windows, .window_bytes = RELAY_WINDOW_BYTES, .flags = p->flags};
    p->error = connect_one(p, PEER, &landing);
    return NULL;
}

/* Connect the pair before the relay takes its network. */
static void connect_pair(pair_t *p)
{
    pthread_t thread;
    memset(p, 0, sizeof *p);
    p->windows = malloc(NODES * (size_t)RELAY_WINDOW_BYTES);
    assert_non_null(p->windows);
    assert_int_equal(net_invite(&loopback, &p->invitation), 0);
    assert_int_equal(alg_relay_create(ALG_DEVICE_CPU, 0, OWN, NODES, &p->relay), 0);
    for (uint32_t h = 0; h < NODES; h++)
        assert_int_equal(net_network_open(&loopback, NULL, &p->network[h], &p->address[h]), 0);
    assert_int_equal(pthread_create(&thread, NULL, connect_peer, p), 0);
    const net_landing_t landing = alg_relay_landing(p->relay);
    assert_int_equal(connect_one(p, OWN, &landing), 0);
    pthread_join(thread, NULL);
    assert_int_equal(p->error, 0);
}

static void end_pair(pair_t *p)
{
    alg_relay_destroy(p->relay);
    net_network_close(p->network[PEER]);
    free(p->windows);
}

static bool is_late(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > begin->tv_sec + LIMIT_S;
}

/* Put a step of the peer and wait until it is in the relay, which only the proxy reads. */
static void put_and_wait(pair_t *p, uint64_t flag)
{
    static uint8_t data[RELAY_STEP_BYTES];
    const net_landing_t landing = alg_relay_landing(p->relay);
    struct timespec begin;
    memset(data, (int)flag, sizeof data);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_int_equal(net_network_put(p->network[PEER], OWN, 0, data, sizeof data, flag), 0);
    while (__atomic_load_n(&landing.flags[PEER], __ATOMIC_ACQUIRE) != flag && !is_late(&begin))
        (void)net_network_progress(p->network[PEER], 1);
    assert_int_equal(__atomic_load_n(&landing.flags[PEER], __ATOMIC_ACQUIRE), flag);
    assert_memory_equal(landing.windows + PEER * landing.window_bytes, data, sizeof data);
}

/* ---- Tests ----------------------------------------------------------------------------- */

/* If the proxy's thread cannot start, the caller learns it from the relay, before it tells the other nodes that this
 * one takes part. */
static void without_a_thread(void **state)
{
    (void)state;
    pair_t p;
    connect_pair(&p);
    no_threads = true;
    assert_int_equal(alg_relay_connected(p.relay, p.network[OWN]), -EAGAIN);
    no_threads = false;
    net_network_close(p.network[OWN]);
    end_pair(&p);
}

/* Steps that a peer puts long before this rank's program continues its set-up are read. */
static void read_before_it_is_served(void **state)
{
    (void)state;
    pair_t p;
    connect_pair(&p);
    assert_int_equal(alg_relay_connected(p.relay, p.network[OWN]), 0);
    put_and_wait(&p, 1);
    end_pair(&p);
}

/* A sleeping proxy polls again within a second by the monotonic clock, even if the system's clock is set back. */
static void read_while_the_clock_goes_back(void **state)
{
    (void)state;
    const struct timespec until_it_sleeps = {0, 50000000};
    pair_t p;
    connect_pair(&p);
    clock_goes_back = true;
    assert_int_equal(alg_relay_connected(p.relay, p.network[OWN]), 0);
    for (uint64_t flag = 1; flag <= 2; flag++) {
        nanosleep(&until_it_sleeps, NULL); /* if it does not yet, it reads all the same */
        put_and_wait(&p, flag);
    }
    clock_goes_back = false;
    end_pair(&p);
}

/* An abort closes the connections, although the proxy gets the control words only when the relay is served. */
static void aborted_when_it_is_served(void **state)
{
    (void)state;
    pair_t p;
    alg_team_t team = {0};
    alg_control_t control = {0};
    struct timespec begin;
    connect_pair(&p);
    assert_int_equal(alg_relay_connected(p.relay, p.network[OWN]), 0);
    put_and_wait(&p, 1);
    alg_relay_serve(p.relay, &team, &control);
    assert_true(team.node == OWN && team.nodes == NODES && team.relay != NULL);
    put_and_wait(&p, 2);
    __atomic_store_n(&control.abort, 1, __ATOMIC_RELEASE);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (net_network_alive(p.network[PEER], OWN) && !is_late(&begin))
        (void)net_network_progress(p.network[PEER], 1);
    assert_false(net_network_alive(p.network[PEER], OWN));
    end_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_thread), /* first: while no proxy runs */
        cmocka_unit_test(read_before_it_is_served),
        cmocka_unit_test(read_while_the_clock_goes_back),
        cmocka_unit_test(aborted_when_it_is_served),
    };
    return cmocka_run_group_tests_name("proxy", tests, NULL, NULL);
}
