/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - the parts of a network. A peer has one connection per direction: the kernel lets one thread at a time write
 * to or read from a socket. Connections move the bytes (sockets.c), or show that a queue pair's peer lives. */
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
    int out, in; /* both -1: none, or ended */
    bool by_verbs;
    put_t put[NET_PUTS]; /* number n is put[n % NET_PUTS] */
    uint32_t given, sent;
    uint64_t sent_flag; /* flag of the last put sent */
    size_t written;     /* bytes that the socket has accepted of the first put not yet sent, head included */
    /* Written by the thread that holds the turn to read: */
    put_head_t head;
    size_t got;
    atomic_bool ended; /* the reader has seen the connection's end; the thread that writes closes it */
} link_t;

struct net_network {
    uint32_t nranks;
    int listener; /* -1 once all are connected */
    net_landing_t landing;
    link_t link[NET_NETWORK_RANKS];
    atomic_flag reads;        /* the turn to read is taken */
    atomic_bool ends;         /* a thread waits for the turn, to end a connection */
    verbs_t *verbs;           /* NULL: sockets */
    uint64_t heard_ns;        /* last check for ended connections */
    char why[NET_WAY_TEXT];   /* why RDMA is not used */
    char fault[NET_WAY_TEXT]; /* first failure of a queue pair */
};

bool link_is_full(const link_t *link);
bool link_is_idle(const link_t *link);
void link_give(link_t *link, const put_head_t *head, const void *data);
void link_sent(link_t *link);

/* *offers: bits of peers that have an RDMA port, if this rank has one. */
int connect_links(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group, uint32_t rank,
                  const net_address_t *addresses, const net_limit_t *limit, uint32_t *offers);

/* 0 or -ECONNRESET. */
int sockets_put(link_t *link, const put_head_t *head, const void *data);
/* False if the connection has ended. */
bool sockets_write(link_t *link, bool *moved);
bool sockets_read(net_network_t *network, uint32_t peer, bool *moved);

#endif
