/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.c - put and flag between ranks, whichever way each peer is reached.
 *
 * Memory: the network owns its connections and its RDMA port; what is put, and where it
 * lands, is the caller's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "transport/network/link.h"

enum {
    LISTEN_NS = 100000, /* between two looks for the ends of connections (by_verbs) */
    SPINS = 50,         /* then naps, since no event tells that memory has changed */
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
        made->link[r].connection = -1;
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
        peers += network->link[r].connection >= 0;
        by_verbs += network->link[r].connection >= 0 && network->link[r].by_verbs;
    }
    if (by_verbs > 0 && by_verbs == peers)
        snprintf(text, NET_WAY_TEXT, "RDMA (%s)", verbs_way(network->verbs));
    else if (by_verbs > 0)
        snprintf(text, NET_WAY_TEXT, "RDMA (%s), %u of %u by sockets", verbs_way(network->verbs), peers - by_verbs,
                 peers);
    else
        snprintf(text, NET_WAY_TEXT, "sockets (%.180s)", network->why);
}

/* ---- Moving ------------------------------------------------------------------------ */

/* The queue pair ends first, so that no flag changes once the link is reported dead. */
static void end_link(net_network_t *network, uint32_t peer)
{
    link_t *link = &network->link[peer];
    if (link->by_verbs)
        verbs_end(network->verbs, peer);
    wire_close(link->connection);
    link->connection = -1;
}

int net_network_put(net_network_t *network, uint32_t peer, uint64_t offset, const void *data, uint64_t bytes,
                    uint64_t flag)
{
    link_t *link = &network->link[peer];
    const put_head_t head = {offset, bytes, flag};
    if (link->connection < 0)
        return -ECONNRESET;
    if (link->sending)
        return -EBUSY;
    const int error = link->by_verbs                   ? verbs_put(network, peer, offset, data, bytes, flag)
                      : sockets_put(link, &head, data) ? 0
                                                       : -ECONNRESET;
    if (error == -ECONNRESET)
        end_link(network, peer);
    return error;
}

bool net_network_sent(const net_network_t *network, uint32_t peer)
{
    return !network->link[peer].sending;
}

bool net_network_alive(const net_network_t *network, uint32_t peer)
{
    return network->link[peer].connection >= 0;
}

/* Beside RDMA a connection carries no data: any event means that the peer has ended, or is broken. */
static bool is_quiet(const link_t *link)
{
    struct pollfd one = {.fd = link->connection, .events = POLLIN | POLLRDHUP};
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
        if (link->by_verbs && link->connection >= 0 && ((ended >> r & 1) || (listens && !is_quiet(link))))
            end_link(network, r);
    }
    return moved;
}

/* Try all links; to ask first which sockets are ready would cost another system call. */
static bool serve_all(net_network_t *network)
{
    bool moved = network->verbs && serve_verbs(network);
    for (uint32_t r = 0; r < network->nranks; r++) {
        link_t *link = &network->link[r];
        if (link->connection >= 0 && !link->by_verbs && !sockets_serve(network, r, &moved))
            end_link(network, r);
    }
    return moved;
}

/* The sockets to wait for; *verbs: some peers are reached by RDMA, of which no socket tells. */
static uint32_t list_sockets(const net_network_t *network, struct pollfd *ready, bool *verbs)
{
    uint32_t count = 0;
    *verbs = false;
    for (uint32_t r = 0; r < network->nranks; r++) {
        const link_t *link = &network->link[r];
        if (link->connection < 0)
            continue;
        const bool writes = link->sending && !link->by_verbs;
        ready[count++] = (struct pollfd){.fd = link->connection, .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
        *verbs |= link->by_verbs;
    }
    return count;
}

bool net_network_progress(net_network_t *network, int wait_ms)
{
    struct pollfd ready[NET_NETWORK_RANKS];
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
    verbs_close(network->verbs); /* before the caller frees what it writes to */
    wire_close(network->listener);
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        wire_close(network->link[r].connection);
    free(network);
}
