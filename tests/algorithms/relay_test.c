/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce of several nodes on the CPU device: ranks are threads, each with a relay of its own, which this process's
 * proxy serves over sockets. Random ranks are late at random places.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "algorithms/nodes/nodes.h"
#include "algorithms/nodes/relay.h"
#include "tests/support/data.h"
#include "tests/support/rdma_wish.h"
#include "world.h"

#ifndef ROUNDS
#if defined(__SANITIZE_THREAD__)
#define ROUNDS 8
#else
#define ROUNDS 25
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ENDS = 5 };
#else
enum { ENDS = 40 };
#endif

enum { SCRATCH = 2 << 20, MOST_BYTES = 3 * RELAY_STEPS * 16 * 64 };

static const net_interfaces_t loopback = {"lo", NULL};

typedef struct cluster {
    uint32_t nodes, each, rounds;
    net_invitation_t invitation;
    world_t *world[ALG_MAX_RANKS];
    uint64_t seed;
} cluster_t;

typedef struct member {
    cluster_t *cluster;
    uint32_t node, rank; /* on its node */
    char fault[300];
} member_t;

static const alg_algorithm_t *exchange(void)
{
    return alg_find(ALG_ALL_REDUCE, "exchange");
}

static int connect_relay(member_t *m, alg_relay_t *relay)
{
    const cluster_t *c = m->cluster;
    const net_limit_t limit = {0, NULL};
    const net_key_t key = {{m->rank + 1, c->seed}};
    const net_landing_t landing = alg_relay_landing(relay);
    net_address_t own, all[ALG_MAX_RANKS];
    net_network_t *network;
    net_meeting_t *meeting;
    rdma_wish_t wish;
    int error = net_network_open(&loopback, rdma_wish(&wish, m->node), &network, &own);
    if (!error)
        error = net_meeting_join(&c->invitation, &key, m->node, c->nodes, 1, &limit, &meeting);
    if (!error)
        error = net_meeting_exchange(meeting, &own, sizeof(own), all, &limit);
    if (!error)
        error = net_network_connect(network, &c->invitation, &key, m->node, c->nodes, all, &landing, &limit);
    if (error)
        return error;
    net_meeting_leave(meeting);
    return rdma_as_wished(network) ? alg_relay_connected(relay, network) : -EOPNOTSUPP;
}

static void call_once(member_t *m, alg_relay_t *relay, const alg_team_t *team, uint64_t *state)
{
    const cluster_t *c = m->cluster;
    static const size_t counts[] = {1, 3, 17, 1000, 4099, 20000};
    const int nranks = (int)(c->nodes * c->each), rank = (int)(m->node * c->each + m->rank);
    data_case_t d = {.type = world_draw_type(state),
                     .op = (ref_op_t)data_below(state, REF_OPS),
                     .kind = (data_kind_t)data_below(state, DATA_KINDS),
                     .nranks = nranks,
                     .seed = data_random(state)};
    const size_t width = alg_type_bytes((alg_type_t)d.type);
    d.count = data_below(state, 4) ? counts[data_below(state, 6)] : data_below(state, MOST_BYTES / width) + 1;
    const bool in_place = data_below(state, 2);
    const uint32_t late = (uint32_t)data_below(state, 2 * (uint32_t)nranks),
                   blocks = 1 + (uint32_t)data_below(state, 3);
    uint64_t scalar = 0, local = d.seed + (uint64_t)rank;
    data_buffer_t in, out;
    if (!data_buffer_make(&in, d.count * width, data_below(&local, 16 / width) * width) ||
        !data_buffer_make(&out, d.count * width, data_below(&local, 16 / width) * width)) {
        snprintf(m->fault, sizeof m->fault, "no memory");
        return;
    }
    data_fill(&d, rank, in_place ? out.data : in.data);
    data_scalar(&d, rank, &scalar);
    const alg_call_t call = {.collective = ALG_ALL_REDUCE,
                             .input = in_place ? out.data : in.data,
                             .output = out.data,
                             .count = d.count,
                             .type = (alg_type_t)d.type,
                             .op = (alg_op_t)d.op,
                             .scalar_bits = scalar,
                             .blocks = blocks,
                             .most_blocks = 1 + (uint32_t)data_below(&local, 3),
                             .threads = 1};
    if (late == (uint32_t)rank)
        usleep(2000);
    alg_relay_call(relay, team, &call, data_below(state, 2));
    const int status = exchange()->launch_cpu(team, &call);
    int node_of[ALG_MAX_RANKS];
    for (int r = 0; r < nranks; r++)
        node_of[r] = r / (int)c->each;
    if (status != ALG_STATUS_OK)
        snprintf(m->fault, sizeof m->fault, "status %d", status);
    else if (!data_right_on(&d, node_of, out.data, 0, 1, m->fault, sizeof m->fault))
        ;
    else if (!data_buffer_guarded(&out) || !data_buffer_guarded(&in))
        snprintf(m->fault, sizeof m->fault, "a guard is gone");
    data_buffer_free(&in);
    data_buffer_free(&out);
}

/* All inputs are the largest number of their type: the average must be the same number, although a node's sum is
 * infinite. */
static void average_largest(member_t *m, alg_relay_t *relay, const alg_team_t *team)
{
    enum { COUNT = 100 };
    static const struct {
        alg_type_t type;
        uint16_t largest;
    } types[] = {
        {ALG_FLOAT16, 0x7bff},
#ifndef PART
        {ALG_FLOAT8_E4M3, 0x7e7e},
        {ALG_FLOAT8_E5M2, 0x7b7b},
#endif
    };
    for (size_t t = 0; t < sizeof types / sizeof types[0] && !m->fault[0]; t++) {
        uint16_t in[COUNT], out[COUNT] = {0};
        for (size_t i = 0; i < COUNT; i++)
            in[i] = types[t].largest;
        const alg_call_t call = {.collective = ALG_ALL_REDUCE,
                                 .input = in,
                                 .output = out,
                                 .count = sizeof in / alg_type_bytes(types[t].type),
                                 .type = types[t].type,
                                 .op = ALG_AVG,
                                 .blocks = 1,
                                 .threads = 1};
        alg_relay_call(relay, team, &call, false);
        const int status = exchange()->launch_cpu(team, &call);
        if (status != ALG_STATUS_OK || memcmp(in, out, sizeof in) != 0)
            snprintf(m->fault, sizeof m->fault, "type %d: status %d, %04x averaged to %04x", types[t].type, status,
                     in[0], out[0]);
    }
}

static void *member_main(void *argument)
{
    member_t *m = argument;
    const cluster_t *c = m->cluster;
    alg_team_t team = world_team(c->world[m->node], m->rank);
    alg_relay_t *relay;
    uint64_t state = c->seed;
    int error = alg_relay_create(ALG_DEVICE_CPU, 0, m->node, c->nodes, &relay);
    if (!error)
        error = connect_relay(m, relay);
    if (error) {
        snprintf(m->fault, sizeof m->fault, "set-up: %s", strerror(-error));
        return NULL;
    }
    alg_relay_serve(relay, &team, team.control);
    average_largest(m, relay, &team);
    for (int i = 0; i < (int)c->rounds && !m->fault[0]; i++)
        call_once(m, relay, &team, &state);
    alg_relay_destroy(relay); /* at once: a slower node still needs the last step */
    return NULL;
}

static void run_cluster(uint32_t nodes, uint32_t each, uint32_t rounds)
{
    cluster_t c = {.nodes = nodes, .each = each, .rounds = rounds, .seed = 1000 * nodes + each};
    member_t member[ALG_MAX_RANKS];
    pthread_t thread[ALG_MAX_RANKS];
    assert_int_equal(net_invite(&loopback, &c.invitation), 0);
    for (uint32_t h = 0; h < nodes; h++)
        c.world[h] = world_make(each, ALG_MEMORY_PEER, SCRATCH);
    for (uint32_t r = 0; r < nodes * each; r++) {
        member[r] = (member_t){.cluster = &c, .node = r / each, .rank = r % each};
        assert_int_equal(pthread_create(&thread[r], NULL, member_main, &member[r]), 0);
    }
    int wrong = 0;
    for (uint32_t r = 0; r < nodes * each; r++) {
        pthread_join(thread[r], NULL);
        if (member[r].fault[0])
            fprintf(stderr, "rank %u of %u x %u: %s\n", r, nodes, each, member[r].fault);
        wrong += member[r].fault[0] != 0;
    }
    assert_int_equal(wrong, 0);
    for (uint32_t h = 0; h < nodes; h++)
        world_free(c.world[h]);
}

static void nodes_of_one(void **state)
{
    (void)state;
    run_cluster(2, 1, 2 * ROUNDS);
    run_cluster(3, 1, 2 * ROUNDS);
}

static void nodes_of_two(void **state)
{
    (void)state;
    run_cluster(2, 2, ROUNDS);
    run_cluster(4, 2, ROUNDS);
}

static void nodes_of_four(void **state)
{
    (void)state;
    run_cluster(2, 4, ROUNDS);
}

/* A node may end while slower nodes still need its last step. */
static void nodes_may_end_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < ENDS; i++) {
        run_cluster(2, 1, 2);
        run_cluster(3, 1, 2);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_of_one),
        cmocka_unit_test(nodes_of_two),
        cmocka_unit_test(nodes_of_four),
        cmocka_unit_test(nodes_may_end_at_once),
    };
    return world_run("relay", tests, sizeof tests / sizeof tests[0], argc, argv);
}
