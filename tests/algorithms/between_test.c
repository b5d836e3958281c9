/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives between nodes on the CPU device (nodes/network.cc): ranks are threads, each with its own
 * connections to all others. A wrapped sendmsg makes each send short.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "algorithms/nodes/nodes.h"
#include "tests/support/collective.h"
#include "tests/support/rdma_wish.h"
#include "world.h"

#ifndef ROUNDS
#define ROUNDS 40
#endif

enum { MOST_COUNT = 150000, LEAST_SENT = 1000, MOST_SENT = 60000 };

static const net_interfaces_t loopback = {"lo", NULL};

ssize_t __real_sendmsg(int connection, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int connection, const struct msghdr *message, int flags);

/* A part of the first piece, or nothing. */
ssize_t __wrap_sendmsg(int connection, const struct msghdr *message, int flags)
{
    static _Thread_local uint64_t state = 1;
    struct iovec part = {NULL, 0};
    for (size_t i = 0; i < message->msg_iovlen && part.iov_len == 0; i++)
        part = message->msg_iov[i];
    const uint64_t most = LEAST_SENT + data_below(&state, MOST_SENT);
    part.iov_len = part.iov_len < most ? part.iov_len : most;
    const struct msghdr less = {.msg_iov = &part, .msg_iovlen = 1};
    if (data_below(&state, 4))
        return __real_sendmsg(connection, &less, flags);
    errno = EAGAIN;
    return -1;
}

typedef struct group {
    uint32_t nranks;
    net_invitation_t invitation;
    world_t *world;
    uint64_t seed;
    bool stops; /* rank 0 is stopped in its second call */
} group_t;

typedef struct member {
    group_t *group;
    uint32_t rank;
    char fault[300];
} member_t;

static int connect_nodes(const member_t *m, alg_nodes_t *nodes)
{
    const group_t *g = m->group;
    const net_limit_t limit = {0, NULL};
    const net_key_t key = {{g->nranks, g->seed}};
    const net_landing_t landing = alg_nodes_landing(nodes);
    net_address_t own, all[ALG_MAX_RANKS];
    net_network_t *network;
    net_meeting_t *meeting;
    rdma_wish_t wish;
    int error = net_network_open(&loopback, rdma_wish(&wish, m->rank), &network, &own);
    if (!error)
        error = net_meeting_join(&g->invitation, &key, m->rank, g->nranks, 1, &limit, &meeting);
    if (!error)
        error = net_meeting_exchange(meeting, &own, sizeof(own), all, &limit);
    if (!error)
        error = net_network_connect(network, &g->invitation, &key, m->rank, g->nranks, all, &landing, &limit);
    if (!error) {
        net_meeting_leave(meeting);
        alg_nodes_connected(nodes, network);
    }
    return error || rdma_as_wished(network) ? error : -EOPNOTSUPP;
}

static coll_t draw(uint64_t *state, uint32_t nranks)
{
    static const size_t counts[] = {1, 3, 17, 4099};
    coll_t k = {.collective = (alg_collective_t)(1 + data_below(state, COLL_COUNT - 1)),
                .root = (uint32_t)data_below(state, nranks)};
    k.c = (data_case_t){.type = world_draw_type(state),
                        .op = (ref_op_t)data_below(state, REF_OPS),
                        .kind = (data_kind_t)data_below(state, DATA_KINDS),
                        .nranks = (int)nranks,
                        .seed = data_random(state)};
    k.c.count = data_below(state, 2) ? counts[data_below(state, 4)] : data_below(state, MOST_COUNT) + 1;
    return k;
}

static int launch(const alg_team_t *team, const coll_t *k, const void *input, void *output)
{
    alg_call_t call = {.collective = k->collective,
                       .root = k->root,
                       .input = input,
                       .output = output,
                       .count = k->c.count,
                       .type = (alg_type_t)k->c.type,
                       .op = (alg_op_t)k->c.op,
                       .blocks = 1,
                       .threads = 1};
    data_scalar(&k->c, (int)team->rank, &call.scalar_bits);
    return alg_network[k->collective].launch_cpu(team, &call);
}

static void call_once(member_t *m, const alg_team_t *team, uint64_t *state)
{
    const uint32_t nranks = m->group->nranks;
    const coll_t k = draw(state, nranks);
    const uint32_t late = (uint32_t)data_below(state, 2 * nranks);
    const size_t width = alg_type_bytes((alg_type_t)k.c.type);
    data_buffer_t in, out;
    if (!data_buffer_make(&in, coll_input_count(&k, m->rank) * width, width) ||
        !data_buffer_make(&out, coll_output_count(&k, m->rank) * width, 0)) {
        snprintf(m->fault, sizeof m->fault, "no memory");
        return;
    }
    if (coll_input_count(&k, m->rank))
        coll_fill(&k, m->rank, in.data);
    if (late == m->rank)
        usleep(1000);
    const int status = launch(team, &k, in.data, out.data);
    char fault[200] = "";
    if (status != ALG_STATUS_OK || !coll_right(&k, m->rank, out.data, fault, sizeof fault))
        snprintf(m->fault, sizeof m->fault, "%s, %zu elements: status %d %s", alg_collective_name(k.collective),
                 k.c.count, status, fault);
    else if (!data_buffer_guarded(&out) || !data_buffer_guarded(&in))
        snprintf(m->fault, sizeof m->fault, "a guard is gone");
    memset(in.data, 0xee, in.size); /* what is sent now comes too late */
    data_buffer_free(&in);
    data_buffer_free(&out);
}

/* A stopped rank tells the others, and no later call waits. */
static void be_stopped(member_t *m, const alg_team_t *team)
{
    const coll_t k = {.collective = ALG_ALL_GATHER,
                      .c = {.type = ncclFloat32, .nranks = (int)m->group->nranks, .count = MOST_COUNT}};
    float *in = calloc(MOST_COUNT, sizeof *in), *out = calloc(MOST_COUNT * m->group->nranks, sizeof *out);
    if (m->rank == 0)
        __atomic_store_n(&team->control->abort, 1, __ATOMIC_RELEASE);
    const int wanted[] = {m->rank == 0 ? ALG_STATUS_ABORTED : ALG_STATUS_PEER_LEFT, ALG_STATUS_PEER_LEFT};
    for (int i = 0; i < 2; i++) {
        const int status = launch(team, &k, in, out);
        if (status != wanted[i])
            snprintf(m->fault, sizeof m->fault, "call %d of a stopped group: status %d", i, status);
    }
    free(in);
    free(out);
}

static void *member_main(void *argument)
{
    member_t *m = argument;
    const group_t *g = m->group;
    alg_team_t team = world_team(g->world, m->rank);
    alg_nodes_t *nodes;
    uint64_t state = g->seed;
    int error = alg_nodes_create(m->rank, g->nranks, &nodes);
    if (!error)
        error = connect_nodes(m, nodes);
    if (error) {
        snprintf(m->fault, sizeof m->fault, "set-up: %s", strerror(-error));
        return NULL;
    }
    alg_nodes_serve(nodes, &team);
    for (int i = 0; i < (g->stops ? 1 : ROUNDS) && !m->fault[0]; i++)
        call_once(m, &team, &state);
    if (g->stops)
        be_stopped(m, &team);
    alg_nodes_destroy(nodes);
    return NULL;
}

static void run_group(uint32_t nranks, bool stops)
{
    group_t g = {.nranks = nranks, .seed = 100 + nranks, .stops = stops};
    member_t member[ALG_MAX_RANKS];
    pthread_t thread[ALG_MAX_RANKS];
    assert_int_equal(net_invite(&loopback, &g.invitation), 0);
    g.world = world_make(nranks, ALG_MEMORY_PEER, 2 << 20);
    for (uint32_t r = 0; r < nranks; r++) {
        member[r] = (member_t){.group = &g, .rank = r};
        assert_int_equal(pthread_create(&thread[r], NULL, member_main, &member[r]), 0);
    }
    int wrong = 0;
    for (uint32_t r = 0; r < nranks; r++) {
        pthread_join(thread[r], NULL);
        if (member[r].fault[0])
            fprintf(stderr, "rank %u of %u: %s\n", r, nranks, member[r].fault);
        wrong += member[r].fault[0] != 0;
    }
    assert_int_equal(wrong, 0);
    world_free(g.world);
}

static void results_are_right(void **state)
{
    (void)state;
    for (uint32_t n = 4; n >= 2; n--)
        run_group(n, false);
}

static void a_stopped_rank_tells_the_others(void **state)
{
    (void)state;
    run_group(3, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_rank_tells_the_others),
        cmocka_unit_test(results_are_right),
    };
    return world_run("between", tests, sizeof tests / sizeof tests[0], argc, argv);
}
