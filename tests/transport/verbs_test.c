/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_test.c - RDMA between ranks, with a fake libibverbs (fake_verbs.c): which port is used, when sockets are used
 * instead, and the errors of a failed queue pair and of a dead peer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "network_ranks.h"
#include "tests/support/skips.h"

static net_rdma_t wish_of(const char *devices)
{
    return (net_rdma_t){.library = FAKE, .devices = devices, .gid_index = -1, .timeout = 20, .retries = 7};
}

/* Some ranks, each with a wish; puts work whichever way is taken. */
typedef struct plan {
    group_t group;
    net_rdma_t wish[MOST];
    const char *way[MOST];    /* how each begins */
    const char *faults[MOST]; /* NULL: the parent's */
} plan_t;

static int follow(uint32_t rank, uint32_t nranks, void *argument)
{
    const plan_t *plan = argument;
    net_landing_t landing = new_landing(nranks);
    net_network_t *network;
    char way[NET_WAY_TEXT];
    if (plan->faults[rank])
        setenv("FAKE_VERBS", plan->faults[rank], 1);
    int line = connect_all(&plan->group, &plan->wish[rank], rank, nranks, &landing, &network);
    if (line)
        return line;
    net_network_way(network, way);
    line = strncmp(way, plan->way[rank], strlen(plan->way[rank])) ? __LINE__ : 0;
    if (line)
        fprintf(stderr, "rank %u: %s, not %s\n", rank, way, plan->way[rank]);
    line = line ? line : put_steps(network, &landing, rank, nranks);
    net_network_close(network);
    free_landing(&landing);
    return line;
}

/* Run ranks with the same settings, as threads. */
static void expect(uint32_t nranks, const char *faults, net_rdma_t wish, const char *way)
{
    plan_t plan = {.group = new_group()};
    for (uint32_t r = 0; r < nranks; r++) {
        plan.wish[r] = wish;
        plan.way[r] = way;
    }
    setenv("FAKE_VERBS", faults, 1);
    assert_int_equal(run_threads(nranks, follow, &plan), 0);
}

/* ---- Which way ------------------------------------------------------------------------ */

static void libraries_may_be_missing(void **state)
{
    (void)state;
    net_rdma_t wish = wish_of(NULL);
    wish.library = "/nowhere/libibverbs.so.1";
    expect(2, "", wish, "sockets (/nowhere/libibverbs.so.1: cannot open");
    wish.library = "libm.so.6";
    expect(2, "", wish, "sockets (libm.so.6 is older than rdma-core 33)");
    wish.off = "NCCL_IB_DISABLE=1";
    expect(2, "", wish, "sockets (NCCL_IB_DISABLE=1)");
}

static void what_fails_goes_by_sockets(void **state)
{
    (void)state;
    expect(2, "none", wish_of(NULL), "sockets (no active RDMA port)");
    expect(2, "down", wish_of(NULL), "sockets (no active RDMA port)");
    expect(3, "memory", wish_of(NULL), "sockets (fake0:1: no memory can be registered (ulimit -l): ");
    expect(3, "first", wish_of(NULL), "sockets (fake0:1: a first write did not get through: Input/output error)");
    expect(2, "lost", wish_of(NULL), "sockets (fake0:1: a first write did not get through: Connection timed out)");
    net_rdma_t wish = wish_of(NULL);
    wish.timeout = 99;
    expect(2, "", wish, "sockets (fake0:1: no way to a peer: Invalid argument)");
}

static void ports_are_chosen(void **state)
{
    (void)state;
    static const net_port_t nearest[] = {{"fake1", 2}, {"fake1", 1}, {"fake0", 1}};
    static const char *const second[] = {"fake1",     "=fake1",        "fake1:1",   "^fake0",
                                         "^=fake0:1", "x,fake1:1:3:4", "=fak,fake1"};
    static const char *const none[] = {"fake1:2", "=fake", "^fake", "other", "fake1:7"};
    expect(2, "two", wish_of(NULL), "RDMA (fake0:1)");
    expect(2, "two", wish_of(""), "RDMA (fake0:1)");
    for (size_t i = 0; i < sizeof(second) / sizeof(second[0]); i++)
        expect(2, "two", wish_of(second[i]), "RDMA (fake1:1)");
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        expect(2, "two", wish_of(none[i]), "sockets (NCCL_IB_HCA leaves none of 2 active RDMA ports)");
    net_rdma_t wish = wish_of(NULL);
    wish.nearest = nearest;
    wish.nearest_count = 3;
    expect(2, "two", wish, "RDMA (fake1:1)");
    wish.devices = "fake0";
    expect(2, "two", wish, "RDMA (fake0:1)");
}

static void addresses_are_chosen(void **state)
{
    (void)state;
    net_rdma_t wish = wish_of(NULL);
    expect(2, "ib", wish, "RDMA");
    wish.gid_index = 3;
    expect(2, "", wish, "RDMA");
    expect(2, "ib", wish, "RDMA"); /* it is of RoCE alone */
    wish.gid_index = 1;            /* nobody is there */
    expect(2, "", wish, "sockets (fake0:1: a first write did not get through: Input/output error)");
    wish.gid_index = 9;
    expect(2, "", wish, "sockets (fake0:1: no such address (NCCL_IB_GID_INDEX)");
}

/* Both ranks of a pair use the same transport, whatever the others use. */
static void ranks_may_differ(void **state)
{
    (void)state;
    plan_t plan = {
        .group = new_group(),
        .wish = {wish_of(NULL), wish_of(NULL), {.off = "told so"}},
        .way = {"RDMA (fake0:1), 1 of 2 by sockets", "RDMA (fake0:1), 1 of 2 by sockets", "sockets (told so)"}};
    setenv("FAKE_VERBS", "", 1);
    assert_int_equal(run_threads(3, follow, &plan), 0);
    if (!CHILDREN_HAVE_DEVICES)
        return;
    plan = (plan_t){.group = new_group(),
                    .wish = {wish_of(NULL), wish_of(NULL)},
                    .way = {"sockets (fake0:1: no memory", "sockets (RDMA failed at rank 0"},
                    .faults = {"memory", ""}};
    assert_int_equal(run_processes(2, follow, &plan), 0);
    plan = (plan_t){.group = new_group(),
                    .wish = {wish_of(NULL), wish_of(NULL), wish_of(NULL)},
                    .way = {"RDMA (fake0:1), 1 of 2", "sockets (fake0:1: a first", "RDMA (fake0:1), 1 of 2"},
                    .faults = {"", "first", ""}};
    assert_int_equal(run_processes(3, follow, &plan), 0);
    plan = (plan_t){.group = new_group(),
                    .wish = {wish_of(NULL), wish_of(NULL)},
                    .way = {"sockets (fake0:1: no way to a peer: Protocol not supported)", "sockets (fake0:1: no way"},
                    .faults = {"ib", ""}};
    assert_int_equal(run_processes(2, follow, &plan), 0);
}

/* ---- Ranks that need RDMA: one that does not get it ends the others, too */

static int connect_by_rdma(const group_t *group, uint32_t rank, uint32_t nranks, const net_landing_t *landing,
                           net_network_t **network)
{
    const net_rdma_t wish = wish_of(NULL);
    char way[NET_WAY_TEXT];
    const int line = connect_all(group, &wish, rank, nranks, landing, network);
    if (line)
        return line;
    net_network_way(*network, way);
    if (strncmp(way, "RDMA", 4) == 0)
        return 0;
    fprintf(stderr, "rank %u: %s\n", rank, way);
    net_network_close(*network);
    return __LINE__;
}

/* ---- Putting --------------------------------------------------------------------------- */

/* Put from registered memory, which is not copied: a change that is made too early is visible. */
static int put_halves(net_network_t *network, const net_landing_t *landing, uint8_t *source, uint32_t rank)
{
    enum { HALF = WINDOW / 2 };
    const uint32_t peer = 1 - rank;
    static uint8_t elsewhere[1024];
    CHECK(net_network_put(network, peer, 0, elsewhere, sizeof(elsewhere), 1) == -EINVAL);
    CHECK(net_network_put(network, peer, 0, source + 1, WINDOW, 1) == -EINVAL);
    CHECK(net_network_put(network, peer, 1, source, WINDOW, 1) == -EINVAL);
    CHECK(net_network_put(network, peer, UINT64_MAX, source, 2, 1) == -EINVAL);
    CHECK(net_network_sent(network, peer) == 0 && net_network_alive(network, peer));
    for (uint64_t step = 1; step <= 30; step++) {
        uint8_t *own = source + step % 2 * HALF;
        uint64_t flag = step * NET_PUTS;
        memset(own, (int)(step + rank), HALF);
        CHECK(net_network_put(network, peer, step % 2 * HALF, own, HALF, flag) == 0);
        while (++flag < (step + 1) * NET_PUTS)
            CHECK(net_network_put(network, peer, 0, source, 0, flag) == 0);
        CHECK(net_network_put(network, peer, 0, source, 0, flag--) == -EBUSY);
        while (flag_of(landing, peer) < flag || net_network_sent(network, peer) < flag) {
            CHECK(net_network_alive(network, peer));
            net_network_progress(network, 100);
        }
        for (size_t i = 0; i < HALF; i++)
            CHECK(landing->windows[peer * (size_t)WINDOW + step % 2 * HALF + i] == (uint8_t)(step + peer));
    }
    return 0;
}

static int put_registered(uint32_t rank, uint32_t nranks, void *argument)
{
    static uint8_t source[2][WINDOW];
    net_landing_t landing = new_landing(nranks);
    landing.source = source[rank];
    landing.source_bytes = WINDOW;
    net_network_t *network;
    int line = connect_by_rdma(argument, rank, nranks, &landing, &network);
    if (line)
        return line;
    line = put_halves(network, &landing, source[rank], rank);
    net_network_close(network); /* which ends the peer's waiting, too */
    free_landing(&landing);
    return line;
}

static void registered_memory_is_not_copied(void **state)
{
    (void)state;
    group_t group = new_group();
    setenv("FAKE_VERBS", "", 1);
    assert_int_equal(run_threads(2, put_registered, &group), 0);
}

/* ---- The end ---------------------------------------------------------------------------- */

static atomic_int faults_named;

/* Puts until the peer is gone. */
static int put_to_the_end(uint32_t rank, uint32_t nranks, void *argument)
{
    const uint32_t peer = 1 - rank;
    uint8_t data[4096] = {0};
    net_landing_t landing = new_landing(nranks);
    net_network_t *network;
    const int line = connect_by_rdma(argument, rank, nranks, &landing, &network);
    if (line)
        return line;
    int error = 0;
    for (uint64_t flag = 1; error == 0; flag++) {
        error = net_network_put(network, peer, 0, data, sizeof(data), flag);
        while (error == 0 && net_network_alive(network, peer) && net_network_sent(network, peer) < flag)
            net_network_progress(network, 100);
        if (error == 0 && rank == 1 && flag == 5 && getenv("KILL"))
            raise(SIGKILL);
    }
    CHECK(error == -ECONNRESET);
    const char *fault = net_network_fault(network);
    CHECK(!fault || (strstr(fault, "fake0:1") && strstr(fault, "transport retry counter exceeded")));
    if (fault)
        atomic_fetch_add(&faults_named, 1);
    CHECK(!net_network_alive(network, peer));
    CHECK(net_network_put(network, peer, 0, data, 1, 100) == -ECONNRESET);
    const uint64_t last = flag_of(&landing, peer);
    net_network_progress(network, 1);
    CHECK(flag_of(&landing, peer) == last);
    net_network_close(network);
    free_landing(&landing);
    return 0;
}

static void failures_are_the_end(void **state)
{
    (void)state;
    static const char *const faults[] = {"fail=2", "fail=3", "fail=12"};
    for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++) {
        group_t group = new_group();
        setenv("FAKE_VERBS", faults[f], 1);
        faults_named = 0;
        assert_int_equal(run_threads(2, put_to_the_end, &group), 0);
        assert_true(faults_named > 0);
    }
}

static void dead_peers_are_seen(void **state)
{
    (void)state;
    if (!CHILDREN_HAVE_DEVICES)
        skip_because("the thread sanitizer allows such a child no threads");
    group_t group = new_group();
    setenv("FAKE_VERBS", "", 1);
    setenv("KILL", "1", 1);
    assert_int_equal(run_processes(2, put_to_the_end, &group), 1); /* the one that was killed */
    unsetenv("KILL");
}

/* A rank that waits gets the error, though no data arrives. */
static int wait_for_the_end(uint32_t rank, uint32_t nranks, void *argument)
{
    net_landing_t landing = new_landing(nranks);
    net_network_t *network;
    const int line = connect_by_rdma(argument, rank, nranks, &landing, &network);
    if (line)
        return line;
    const uint64_t flag = UINT64_C(77) + rank;
    if (rank == 0)
        CHECK(net_network_put(network, 1, 0, &flag, sizeof(flag), flag) == 0);
    while (rank == 0 && net_network_sent(network, 1) < flag)
        net_network_progress(network, 10);
    while (rank == 1 && net_network_alive(network, 0))
        net_network_progress(network, 1000);
    CHECK(rank == 0 || flag_of(&landing, 0) == 77); /* what was put before the end has come */
    net_network_close(network);
    free_landing(&landing);
    return 0;
}

static void ends_are_seen(void **state)
{
    (void)state;
    setenv("FAKE_VERBS", "", 1);
    for (int i = 0; i < 20; i++) {
        group_t group = new_group();
        assert_int_equal(run_threads(2, wait_for_the_end, &group), 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libraries_may_be_missing), /* the first one: a library that was opened stays */
        cmocka_unit_test(what_fails_goes_by_sockets),
        cmocka_unit_test(ports_are_chosen),
        cmocka_unit_test(addresses_are_chosen),
        cmocka_unit_test(ranks_may_differ),
        cmocka_unit_test(registered_memory_is_not_copied),
        cmocka_unit_test(failures_are_the_end),
        cmocka_unit_test(dead_peers_are_seen),
        cmocka_unit_test(ends_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
