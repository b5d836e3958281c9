/* SPDX-License-Identifier: Apache-2.0 */
/* network.c - put and flag between ranks, over RDMA or sockets. One thread does everything, but a second one may read.
 * Only the thread that holds the turn (`reads`) reads from sockets or ends connections. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "transport/network/link.h"

enum {
    LISTEN_NS = 100000, /* between checks for ended connections */
    SPINS = 50,         /* polls before naps: no event reports a write to memory */
    NAP_NS = 50000
};

int net_network_open(const net_interfaces_t *wanted, const net_rdma_t *rdma, net_network_t **network,
                     net_address_t *address)
{
    net_address_t own;
    int error = net_address_own(wanted, &own);
    if (error)
        return error;
    net_network_t *made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->listener = -1;
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        made->link[r].out = made->link[r].in = -1;
    atomic_flag_clear(&made->reads);
    error = wire_listen(&own, &made->listener);
    if (error) {
        net_network_close(made);
        return error;
    }
    if (!rdma || rdma->off)
        snprintf(made->why, sizeof(made->why), "%s", rdma ? rdma->off : "RDMA is not wanted");
    else
        (void)verbs_open(rdma, &made->verbs, made->why);
    *network = made;
    *address = own;
    return 0;
}

int net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                        uint32_t rank, uint32_t nranks, const net_address_t *addresses, const net_landing_t *landing,
                        const net_limit_t *limit)
{
    uint32_t offers = 0;
    if (rank >= nranks || nranks > NET_NETWORK_RANKS)
        return -EINVAL;
    network->nranks = nranks;
    network->landing = *landing;
    int error = connect_links(network, invitation, group, rank, addresses, limit, &offers);
    wire_close(network->listener);
    network->listener = -1;
    if (error || !network->verbs)
        return error;
    snprintf(network->why, sizeof(network->why), "peers have no RDMA port");
    error = offers ? verbs_connect(network, offers, limit, network->why) : 0;
    bool any = false;
    for (uint32_t r = 0; r < nranks; r++)
        any |= network->link[r].by_verbs;
    if (!any) {
        verbs_close(network->verbs);
        network->verbs = NULL;
    }
    return error;
}

void net_network_way(const net_network_t *network, char text[NET_WAY_TEXT])
{
    uint32_t peers = 0, by_verbs = 0;
    for (uint32_t r = 0; r < network->nranks; r++) {
        peers += net_network_alive(network, r);
        by_verbs += net_network_alive(network, r) && network->link[r].by_verbs;
    }
    if (by_verbs > 0 && by_verbs == peers)
        snprintf(text, NET_WAY_TEXT, "RDMA (%s)", verbs_way(network->verbs));
    else if (by_verbs > 0)
        snprintf(text, NET_WAY_TEXT, "RDMA (%s), %u of %u by sockets", verbs_way(network->verbs), peers - by_verbs,
                 peers);
    else
        snprintf(text, NET_WAY_TEXT, "sockets (%.180s)", network->why);
}

bool link_is_full(const link_t *link)
{
    return link->given - link->sent == NET_PUTS;
}

bool link_is_idle(const link_t *link)
{
    return link->given == link->sent;
}

void link_give(link_t *link, const put_head_t *head, const void *data)
{
    link->put[link->given++ % NET_PUTS] = (put_t){*head, data};
}

void link_sent(link_t *link)
{
    link->sent_flag = link->put[link->sent++ % NET_PUTS].head.flag;
}

static bool try_turn(net_network_t *network)
{
    return !atomic_flag_test_and_set_explicit(&network->reads, memory_order_acquire);
}

static void take_turn(net_network_t *network)
{
    atomic_store(&network->ends, true);
    while (!try_turn(network))
        sched_yield();
    atomic_store(&network->ends, false);
}

static void give_turn(net_network_t *network)
{
    atomic_flag_clear_explicit(&network->reads, memory_order_release);
}

/* The caller holds the turn. */
static bool read_all(net_network_t *network)
{
    bool moved = false;
    for (uint32_t r = 0; r < network->nranks; r++) {
        link_t *link = &network->link[r];
        if (!link->by_verbs && link->in >= 0 && !atomic_load(&link->ended) && !sockets_read(network, r, &moved))
            atomic_store(&link->ended, true);
    }
    return moved;
}

/* Ends the queue pair first: no flag changes after the link is reported dead. */
static void end_link(net_network_t *network, uint32_t peer)
{
    link_t *link = &network->link[peer];
    if (link->by_verbs)
        verbs_end(network->verbs, peer);
    take_turn(network);
    wire_close(link->out);
    wire_close(link->in);
    link->out = link->in = -1;
    give_turn(network);
}

int net_network_put(net_network_t *network, uint32_t peer, uint64_t offset, const void *data, uint64_t bytes,
                    uint64_t flag)
{
    link_t *link = &network->link[peer];
    const put_head_t head = {offset, bytes, flag};
    if (link->out < 0)
        return -ECONNRESET;
    if (link_is_full(link))
        return -EBUSY;
    const int error = link->by_verbs ? verbs_put(network, peer, &head, data) : sockets_put(link, &head, data);
    if (error == -ECONNRESET)
        end_link(network, peer);
    return error;
}

uint64_t net_network_sent(const net_network_t *network, uint32_t peer)
{
    return network->link[peer].sent_flag;
}

bool net_network_alive(const net_network_t *network, uint32_t peer)
{
    return network->link[peer].out >= 0;
}

const char *net_network_fault(const net_network_t *network)
{
    return network->fault[0] ? network->fault : NULL;
}

/* Beside RDMA a connection carries no data: any event is the peer's end or a fault. */
static bool is_quiet(const link_t *link)
{
    struct pollfd one = {.fd = link->in, .events = POLLIN | POLLRDHUP};
    return poll(&one, 1, 0) <= 0;
}

static bool serve_verbs(net_network_t *network)
{
    uint32_t ended;
    const bool moved = verbs_poll(network, &ended);
    const uint64_t now = wire_now_ns();
    const bool listens = now - network->heard_ns >= LISTEN_NS;
    if (listens)
        network->heard_ns = now;
    for (uint32_t r = 0; r < network->nranks; r++) {
        const link_t *link = &network->link[r];
        if (link->by_verbs && link->in >= 0 && ((ended >> r & 1) || (listens && !is_quiet(link))))
            end_link(network, r);
    }
    return moved;
}

bool net_network_write(net_network_t *network)
{
    bool moved = network->verbs && serve_verbs(network);
    for (uint32_t r = 0; r < network->nranks; r++) {
        link_t *link = &network->link[r];
        if (!link->by_verbs && link->out >= 0 && (atomic_load(&link->ended) || !sockets_write(link, &moved)))
            end_link(network, r);
    }
    return moved;
}

bool net_network_receive(net_network_t *network)
{
    const bool turn = !atomic_load(&network->ends) && try_turn(network), moved = turn && read_all(network);
    if (turn)
        give_turn(network);
    return moved;
}

/* Tries all links: asking which are ready would cost a system call. */
static bool serve_all(net_network_t *network)
{
    const bool moved = net_network_receive(network);
    return net_network_write(network) || moved;
}

bool net_network_copies(const net_network_t *network)
{
    bool copies = false;
    for (uint32_t r = 0; r < network->nranks; r++)
        copies |= net_network_alive(network, r) && !network->link[r].by_verbs;
    return copies;
}

/* *verbs: some peers use RDMA, which no socket reports. */
static uint32_t list_sockets(const net_network_t *network, struct pollfd *ready, bool *verbs)
{
    uint32_t count = 0;
    *verbs = false;
    for (uint32_t r = 0; r < network->nranks; r++) {
        const link_t *link = &network->link[r];
        if (link->out < 0)
            continue;
        ready[count++] = (struct pollfd){.fd = link->in, .events = POLLIN};
        if (!link->by_verbs && !link_is_idle(link))
            ready[count++] = (struct pollfd){.fd = link->out, .events = POLLOUT};
        *verbs |= link->by_verbs;
    }
    return count;
}

bool net_network_progress(net_network_t *network, int wait_ms)
{
    struct pollfd ready[2 * NET_NETWORK_RANKS];
    bool verbs;
    if (wait_ms == 0)
        return serve_all(network);
    const uint32_t count = list_sockets(network, ready, &verbs);
    if (!verbs)
        return poll(ready, count, wait_ms) > 0 && serve_all(network);
    const uint64_t until = wire_now_ns() + (uint64_t)wait_ms * 1000000;
    for (uint32_t spins = 0; wire_now_ns() < until; spins++) {
        const struct timespec nap = {0, spins < SPINS ? 0 : NAP_NS};
        if (serve_all(network))
            return true;
        if (ppoll(ready, count, &nap, NULL) > 0) {
            network->heard_ns = 0;
            return serve_all(network);
        }
        sched_yield();
    }
    return false;
}

void net_network_close(net_network_t *network)
{
    if (!network)
        return;
    verbs_close(network->verbs); /* before the caller frees memory that queue pairs write */
    wire_close(network->listener);
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++) {
        wire_close(network->link[r].out);
        wire_close(network->link[r].in);
    }
    free(network);
}
