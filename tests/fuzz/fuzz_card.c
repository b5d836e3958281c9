/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_card.c - a peer's card, which describes its queue pair, and its message on the outcome: only a card that the
 * queue pair can use is accepted, and packets are not larger than this port's.
 */
#include <stdlib.h>
#include <sys/socket.h>

#define verbs_connect fuzz_verbs_connect /* the library has one, too */
#include "transport/network/verbs_connect.c"

enum { RANKS = 2, PEER = 1 };

static struct ibv_mr region;
static struct ibv_qp pair_of_queues;
static int led; /* 1: to the peer; 2: ready to send */

static void expect(int so)
{
    if (!so)
        abort();
}

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *memory, size_t bytes, int access)
{
    (void)pd, (void)memory, (void)bytes, (void)access;
    return &region;
}

static struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    (void)pd, (void)wanted;
    return &pair_of_queues;
}

/* Refuses packet sizes that do not exist, as a device does. */
static int fake_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *to, int mask)
{
    expect(qp == &pair_of_queues);
    if (!(mask & IBV_QP_PATH_MTU)) {
        led += to->qp_state == IBV_QPS_RTS;
        return 0;
    }
    expect(to->path_mtu <= IBV_MTU_1024);
    if (to->path_mtu < IBV_MTU_256)
        return EINVAL;
    led = 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t windows[RANKS * 64];
    static uint64_t flags[RANKS];
    static const verbs_calls_t calls = {
        .reg_mr = fake_reg_mr, .create_qp = fake_create_qp, .modify_qp = fake_modify_qp};
    char why[NET_WAY_TEXT] = "";
    const net_limit_t limit = {0, NULL};
    int heard[2], told[2];
    verbs_t *verbs = calloc(1, sizeof(*verbs));
    net_network_t *network = calloc(1, sizeof(*network));
    *verbs =
        (verbs_t){.calls = &calls, .attributes = {.active_mtu = IBV_MTU_1024, .link_layer = IBV_LINK_LAYER_INFINIBAND}};
    network->nranks = RANKS;
    network->verbs = verbs;
    network->landing = (net_landing_t){windows, 64, flags, windows, sizeof(windows)};
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, heard) == 0 &&
           socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, told) == 0);
    network->link[PEER].in = heard[0];
    network->link[PEER].out = told[0];
    expect(size == 0 || send(heard[1], data, size, MSG_NOSIGNAL) > 0);
    shutdown(heard[1], SHUT_WR);
    state_t state = {
        .network = network, .verbs = verbs, .peers = 1u << PEER, .usable = 1u << PEER, .limit = &limit, .why = why};
    led = 0;
    const int error = show_cards(&state);
    expect(error != 0 || !has(state.usable, PEER) || led == 2);
    if (!error)
        (void)exchange_usable(&state);
    expect(memchr(why, 0, sizeof(why)) != NULL);
    for (int i = 0; i < 2; i++) {
        wire_close(heard[i]);
        wire_close(told[i]);
    }
    free(network);
    free(verbs);
    return 0;
}
