/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - what a network is made of, and its two ways to move bytes. Private to this
 * folder.
 *
 * Each peer has a connection for each direction (connect.c), since the system lets one
 * thread at a time write to a socket or read from it. Either the connections move the
 * bytes (sockets.c), or a queue pair does (verbs.h), and they only show that the peer
 * lives.
 */
#ifndef SHUNT_NETWORK_LINK_H
#define SHUNT_NETWORK_LINK_H

#include <stdatomic.h>

#include "transport/network/verbs.h"
#include "transport/network/wire.h"

typedef struct put_head {
    uint64_t offset, bytes, flag;
} put_head_t;

typedef struct put {
    put_head_t head;
    const uint8_t *data;
} put_t;

typedef struct link {
    int out, in; /* connections; both -1: none, or ended */
    bool by_verbs;
    /* Out. */
    put_t put[NET_PUTS]; /* number n is put[n % NET_PUTS] */
    uint32_t given, sent;
    uint64_t sent_flag; /* of the last one that is sent */
    size_t written;     /* of head and data of the first one that is not */
    /* In: whose turn it is to read. */
    put_head_t head;
    size_t got;        /* likewise */
    atomic_bool ended; /* seen by who reads; the other thread closes it */
} link_t;

struct net_network {
    uint32_t nranks;
    int listener; /* until all are connected, else -1 */
    net_landing_t landing;
    link_t link[NET_NETWORK_RANKS];
    atomic_flag reads;        /* a thread has the turn to read */
    atomic_bool ends;         /* who ends a connection waits for the turn */
    verbs_t *verbs;           /* NULL: sockets */
    uint64_t heard_ns;        /* when the ends of connections were looked for (by_verbs) */
    char why[NET_WAY_TEXT];   /* not verbs */
    char fault[NET_WAY_TEXT]; /* of the first queue pair that failed; "" */
};

/* ---- network.c ---- */

bool link_is_full(const link_t *link);
bool link_is_idle(const link_t *link); /* all puts are sent */
void link_give(link_t *link, const put_head_t *head, const void *data);
void link_sent(link_t *link); /* the first one that was not */

/* ---- connect.c ---- */

/* Give every link its connections. Peers whose bit is set in *offers have a port, too. */
int connect_links(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group, uint32_t rank,
                  const net_address_t *addresses, const net_limit_t *limit, uint32_t *offers);

/* ---- sockets.c ---- */

/* 0 or -ECONNRESET. */
int sockets_put(link_t *link, const put_head_t *head, const void *data);
/* Move what can be moved; false: the connection has ended. */
bool sockets_write(link_t *link, bool *moved);
bool sockets_read(net_network_t *network, uint32_t peer, bool *moved);

#endif
