/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_connect.c - queue pairs to the peers that also have a port. The two ranks of a pair exchange three messages
 * over their connection: where to write; ready; a first write has arrived. A failure is reported in the next message,
 * so both decide alike. A write before the peer is ready is lost, and resent only after a packet's time limit. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "transport/network/verbs_queue.h"

enum {
    LEAST_INLINE = 8,
    MOST_INLINE = 256,
    SEND_ROOM = 2 * NET_PUTS, /* requests: data and flag of each put */
    RNR_TIMER = 12,
    RNR_ALWAYS = 7,
    HOPS = 255,
    /* Polls for a first write: about 2 s. */
    QUICK_LOOKS = 100,
    QUICK_NAP_NS = 20000,
    SLOW_LOOKS = 2000,
    SLOW_NAP_NS = 1000000
};

/* What a peer needs in order to write here. No padding. */
typedef struct card {
    uint32_t queue, usable;
    uint16_t lid;
    uint8_t mtu, link_layer;
    uint32_t window_key, flag_key;
    uint8_t gid[16];
    uint32_t reserved;
    uint64_t window, flag;
} card_t;

typedef struct state {
    net_network_t *network;
    verbs_t *verbs;
    uint32_t peers, usable;
    const net_limit_t *limit;
    char *why;
} state_t;

static bool has(uint32_t bits, uint32_t peer)
{
    return bits >> peer & 1;
}

/* `size`: bytes per rank. */
static int one_round(state_t *state, const void *own, void *all, size_t size)
{
    int error = 0;
    for (uint32_t r = 0; r < state->network->nranks && !error; r++) {
        if (has(state->peers, r))
            error = wire_write(state->network->link[r].out, (const uint8_t *)own + r * size, size, state->limit);
    }
    for (uint32_t r = 0; r < state->network->nranks && !error; r++) {
        if (has(state->peers, r))
            error = wire_read(state->network->link[r].in, (uint8_t *)all + r * size, size, state->limit);
    }
    return error;
}

static void told_of_failure(state_t *state, uint32_t peer)
{
    state->usable &= ~(UINT32_C(1) << peer);
    snprintf(state->why, NET_WAY_TEXT, "RDMA failed at rank %u", peer);
}

static int exchange_usable(state_t *state)
{
    uint32_t own[NET_NETWORK_RANKS], all[NET_NETWORK_RANKS];
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        own[r] = has(state->usable, r);
    const int error = one_round(state, own, all, sizeof(own[0]));
    for (uint32_t r = 0; r < state->network->nranks && !error; r++) {
        if (has(state->usable, r) && !all[r])
            told_of_failure(state, r);
    }
    return error;
}

static void give_up(state_t *state, uint32_t peer, const char *what, int error)
{
    state->usable &= ~(UINT32_C(1) << peer);
    snprintf(state->why, NET_WAY_TEXT, "%s: %s: %.40s", state->verbs->way, what, strerror(error));
}

static const char *register_memory(state_t *state, uint32_t peer)
{
    verbs_t *verbs = state->verbs;
    verbs_queue_t *queue = &verbs->queue[peer];
    const net_landing_t *landing = &state->network->landing;
    const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    /* A peer gets only the keys of its own window and flag. */
    queue->window = (verbs->calls->reg_mr)(verbs->pd, landing->windows + peer * landing->window_bytes,
                                           landing->window_bytes, remote);
    queue->flag =
        queue->window ? (verbs->calls->reg_mr)(verbs->pd, &landing->flags[peer], sizeof(uint64_t), remote) : NULL;
    if (!queue->flag)
        return "no memory can be registered (ulimit -l)";
    if (landing->source)
        return NULL;
    void *copy = mmap(NULL, landing->window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return "no memory";
    queue->copy = copy;
    queue->copy_bytes = landing->window_bytes;
    queue->copy_key = (verbs->calls->reg_mr)(verbs->pd, copy, landing->window_bytes, 0);
    return queue->copy_key ? NULL : "no memory can be registered (ulimit -l)";
}

static const char *create_queue(verbs_t *verbs, verbs_queue_t *queue)
{
    for (uint32_t bytes = MOST_INLINE; bytes >= LEAST_INLINE && !queue->qp; bytes /= 2) {
        struct ibv_qp_init_attr wanted = {.send_cq = verbs->cq,
                                          .recv_cq = verbs->cq,
                                          .qp_type = IBV_QPT_RC,
                                          .cap = {.max_send_wr = SEND_ROOM,
                                                  .max_recv_wr = 1,
                                                  .max_send_sge = 1,
                                                  .max_recv_sge = 1,
                                                  .max_inline_data = bytes}};
        queue->qp = verbs->calls->create_qp(verbs->pd, &wanted);
        queue->inline_bytes = bytes;
    }
    if (!queue->qp)
        return "no queue pair";
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = (uint16_t)verbs->pkey_index,
                               .port_num = verbs->port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    errno =
        verbs->calls->modify_qp(queue->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    return errno ? "a queue pair cannot be set up" : NULL;
}

static card_t prepare(state_t *state, uint32_t peer)
{
    verbs_t *verbs = state->verbs;
    verbs_queue_t *queue = &verbs->queue[peer];
    const net_landing_t *landing = &state->network->landing;
    card_t card = {.lid = verbs->attributes.lid,
                   .mtu = (uint8_t)verbs->attributes.active_mtu,
                   .link_layer = verbs->attributes.link_layer};
    const char *failure = NULL;
    if (landing->source && !verbs->source) {
        verbs->source = (verbs->calls->reg_mr)(verbs->pd, (void *)(uintptr_t)landing->source, landing->source_bytes, 0);
        failure = verbs->source ? NULL : "no memory can be registered (ulimit -l)";
    }
    failure = failure ? failure : register_memory(state, peer);
    failure = failure ? failure : create_queue(verbs, queue);
    if (failure) {
        give_up(state, peer, failure, errno);
        return card;
    }
    memcpy(card.gid, verbs->gid.raw, sizeof(card.gid));
    card.queue = queue->qp->qp_num;
    card.usable = 1;
    card.window = (uintptr_t)(landing->windows + peer * landing->window_bytes);
    card.flag = (uintptr_t)&landing->flags[peer];
    card.window_key = queue->window->rkey;
    card.flag_key = queue->flag->rkey;
    return card;
}

/* Whether a global address is needed: on Ethernet, or to another subnet. */
static bool needs_address(const verbs_t *verbs, const card_t *peer)
{
    enum { PREFIX = 8 };
    return verbs->attributes.link_layer == IBV_LINK_LAYER_ETHERNET ||
           (verbs->attributes.flags & IBV_QPF_GRH_REQUIRED) || memcmp(verbs->gid.raw, peer->gid, PREFIX) != 0;
}

static int lead_to(verbs_t *verbs, verbs_queue_t *queue, const card_t *peer)
{
    const uint8_t mtu = (uint8_t)verbs->attributes.active_mtu;
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
                                  .path_mtu = peer->mtu < mtu ? peer->mtu : mtu,
                                  .dest_qp_num = peer->queue,
                                  .max_dest_rd_atomic = 1,
                                  .min_rnr_timer = RNR_TIMER,
                                  .ah_attr = {.dlid = peer->lid,
                                              .sl = (uint8_t)verbs->service_level,
                                              .port_num = verbs->port,
                                              .is_global = needs_address(verbs, peer),
                                              .grh = {.sgid_index = (uint8_t)verbs->gid_index,
                                                      .hop_limit = HOPS,
                                                      .traffic_class = (uint8_t)verbs->traffic_class}}};
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
                               .timeout = (uint8_t)verbs->timeout,
                               .retry_cnt = (uint8_t)verbs->retries,
                               .rnr_retry = RNR_ALWAYS,
                               .max_rd_atomic = 1};
    memcpy(receive.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
    queue->to_window = peer->window;
    queue->to_flag = peer->flag;
    queue->window_key = peer->window_key;
    queue->flag_key = peer->flag_key;
    const int error = verbs->calls->modify_qp(queue->qp, &receive,
                                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    return error ? error
                 : verbs->calls->modify_qp(queue->qp, &send,
                                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int show_cards(state_t *state)
{
    card_t own[NET_NETWORK_RANKS] = {0}, all[NET_NETWORK_RANKS];
    for (uint32_t r = 0; r < state->network->nranks; r++) {
        if (has(state->peers, r))
            own[r] = prepare(state, r);
    }
    const int error = one_round(state, own, all, sizeof(own[0]));
    for (uint32_t r = 0; r < state->network->nranks && !error; r++) {
        if (!all[r].usable && has(state->usable, r))
            told_of_failure(state, r);
        if (!has(state->usable, r))
            continue;
        const int failed = all[r].link_layer != own[r].link_layer
                               ? EPROTONOSUPPORT
                               : lead_to(state->verbs, &state->verbs->queue[r], &all[r]);
        if (failed)
            give_up(state, r, "no way to a peer", failed);
    }
    return error;
}

/* Flag 0 changes nothing at the peer. Polls are counted, not timed: this thread or a software device may run rarely. */
static void try_writes(state_t *state)
{
    net_network_t *network = state->network;
    const put_head_t first = {0};
    uint32_t waiting = state->usable, failed = 0;
    for (uint32_t r = 0; r < network->nranks; r++) {
        if (has(waiting, r) && verbs_put(network, r, &first, NULL) != 0)
            failed |= UINT32_C(1) << r;
    }
    waiting &= ~failed;
    for (uint32_t looks = 0; waiting && looks < QUICK_LOOKS + SLOW_LOOKS && wire_check(state->limit) == 0; looks++) {
        const struct timespec nap = {0, looks < QUICK_LOOKS ? QUICK_NAP_NS : SLOW_NAP_NS};
        uint32_t ended;
        verbs_poll(network, &ended);
        failed |= ended & waiting;
        waiting &= ~ended;
        for (uint32_t r = 0; r < network->nranks; r++) {
            if (link_is_idle(&network->link[r]))
                waiting &= ~(UINT32_C(1) << r);
        }
        nanosleep(&nap, NULL);
    }
    for (uint32_t r = 0; r < network->nranks; r++) {
        network->link[r].given = network->link[r].sent;
        if (has(waiting | failed, r))
            give_up(state, r, "a first write did not get through", has(failed, r) ? EIO : ETIMEDOUT);
    }
}

int verbs_connect(net_network_t *network, uint32_t offers, const net_limit_t *limit, char why[NET_WAY_TEXT])
{
    verbs_t *verbs = network->verbs;
    state_t state = {.network = network, .verbs = verbs, .peers = offers, .usable = offers, .limit = limit, .why = why};
    int error = show_cards(&state);
    error = error ? error : exchange_usable(&state);
    if (!error)
        try_writes(&state);
    /* A late first write must not arrive in memory that a socket fills. */
    for (uint32_t r = 0; r < network->nranks && !error; r++) {
        if (!has(state.usable, r))
            verbs_end(verbs, r);
    }
    if (!error)
        error = exchange_usable(&state);
    for (uint32_t r = 0; r < network->nranks && !error; r++) {
        network->link[r].by_verbs = has(state.usable, r);
        if (!has(state.usable, r)) {
            verbs_end(verbs, r);
            verbs_unregister(verbs, r);
        }
    }
    return error;
}
