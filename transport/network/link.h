/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - what a network is made of, and its two ways to move bytes. Private to this
 * folder.
 *
 * Each peer has a connection (connect.c). Either the connection moves the bytes
 * (sockets.c), or a queue pair does (verbs.h), and the connection only shows that the peer
 * lives.
 */
#ifndef SHUNT_NETWORK_LINK_H
#define SHUNT_NETWORK_LINK_H

#include "transport/network/verbs.h"
#include "transport/network/wire.h"

typedef struct put_head {
    uint64_t offset, bytes, flag;
} put_head_t;

typedef struct link {
    int connection; /* -1: none, or ended */
    bool by_verbs;
    /* Out. */
    put_head_t out;
    const uint8_t *data;
    size_t sent; /* of head and data */
    bool sending;
    /* In. */
    put_head_t in;
    size_t got; /* likewise */
} link_t;

struct net_network {
    uint32_t nranks;
    int listener; /* until all are connected, else -1 */
    net_landing_t landing;
    link_t link[NET_NETWORK_RANKS];
    verbs_t *verbs;         /* NULL: sockets */
    uint64_t heard_ns;      /* when the ends of connections were looked for (by_verbs) */
    char why[NET_WAY_TEXT]; /* not verbs */
};

/* ---- connect.c ---- */

/* Give every link its connection. Peers whose bit is set in *offers have a port, too. */
int connect_links(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group, uint32_t rank,
                  const net_address_t *addresses, const net_limit_t *limit, uint32_t *offers);

/* ---- sockets.c ---- */

/* False: the connection has ended. */
bool sockets_put(link_t *link, const put_head_t *head, const void *data);
/* Move what can be moved; false: the connection has ended. */
bool sockets_serve(net_network_t *network, uint32_t peer, bool *moved);

#endif
