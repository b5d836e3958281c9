/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - ranks of several nodes: how they meet, and put and flag between them. Results are as in transport.h.
 * Functions that wait take a limit: -ETIMEDOUT when its time is over, -ECANCELED when it is stopped.
 * Meeting. The process that makes a communicator's id runs one listener, and stores an invitation in the id: the
 * listener's address and a secret. Ranks exchange records in rounds: each posts one, and gets all when all have posted.
 * Network. A rank puts bytes into a window of a peer's memory, then a flag: whoever sees the flag sees the bytes. They
 * go over a connection (sockets.c), or RDMA (verbs.c) if both ranks have a port. */
#ifndef SHUNT_NETWORK_H
#define SHUNT_NETWORK_H

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    NET_NETWORK_RANKS = NET_MAX_SLOTS,
    NET_PUTS = 8, /* puts to one peer not yet sent */
    NET_ROUND_BYTES = 256,
    NET_ADDRESS_TEXT = 64,
    NET_WAY_TEXT = 200
};

typedef struct net_limit {
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    const uint32_t *stop; /* read atomically; not 0: give up; NULL: never */
} net_limit_t;

/* A socket's address. It is sent: plain data without padding. */
typedef struct net_address {
    uint8_t ip[16]; /* IPv4: the first four */
    uint32_t scope; /* IPv6: interface of a link-local address */
    uint16_t port;  /* in host byte order */
    uint16_t family;
} net_address_t;

/* Interfaces, as in NCCL's variables; NULL: not set. */
typedef struct net_interfaces {
    const char *names;  /* NCCL_SOCKET_IFNAME: prefixes, by commas; "=" first: exact names; "^" first: all but these */
    const char *family; /* NCCL_SOCKET_FAMILY: AF_INET or AF_INET6 */
} net_interfaces_t;

typedef struct net_port {
    char device[32];
    uint32_t port;
} net_port_t;

/* Numbers as in libibverbs. */
typedef struct net_rdma {
    const char *off;     /* not NULL: why RDMA is not used */
    const char *library; /* file of libibverbs; NULL: libibverbs.so.1 */
    const char *devices; /* NCCL_IB_HCA: prefixes, each with ":port" or without, with commas between; "=" and "^" as
                            above; NULL: any */
    const net_port_t *nearest; /* ports to prefer, best first. Read only by net_network_open */
    uint32_t nearest_count;
    int gid_index; /* RoCE; -1: RoCE v2 over IPv4, else v2 over IPv6, else the first */
    int service_level, traffic_class;
    int pkey_index;       /* of the partition */
    int timeout, retries; /* of a packet: 4.096 us * 2^timeout; number of repeats */
} net_rdma_t;

/* An address of this node (interface.c), with port 0. -ENODEV: no selected interface is up. */
int net_address_own(const net_interfaces_t *wanted, net_address_t *address);
/* "192.0.2.1:7000" or "[2001:db8::1]:7000". */
void net_address_write(const net_address_t *address, char text[NET_ADDRESS_TEXT]);

/* ---- Meeting ------------------------------------------------------------------- */

/* Part of an id, distinguished by magic and checksum. Plain data without padding. */
typedef struct net_invitation {
    uint64_t magic;
    uint64_t secret[2]; /* never logged */
    net_address_t address;
    uint64_t checksum;
} net_invitation_t;

/* Starts this process's listener thread once, for the life of the process; a forked child starts its own. */
int net_invite(const net_interfaces_t *wanted, net_invitation_t *invitation);
bool net_invitation_valid(const net_invitation_t *invitation);

typedef struct net_meeting net_meeting_t;

/* Connects to the listener as a rank of the key's group. -EHOSTUNREACH: no answer within the limit. */
int net_meeting_join(const net_invitation_t *invitation, const net_key_t *group, uint32_t rank, uint32_t nranks,
                     uint32_t rounds, const net_limit_t *limit, net_meeting_t **meeting);
/* Posts `bytes` (at most NET_ROUND_BYTES, equal on all ranks) and gets all records by rank. -ESRCH: a rank left after
 * the first round; -EEXIST: the rank is taken; -EPROTO: ranks differ in nranks, rounds or bytes; -ECONNRESET: no
 * listener with the secret. */
int net_meeting_exchange(net_meeting_t *meeting, const void *record, uint32_t bytes, void *records,
                         const net_limit_t *limit);
void net_meeting_leave(net_meeting_t *meeting); /* NULL is allowed */

/* ---- Put and flag -------------------------------------------------------------- */

typedef struct net_network net_network_t;

/* Listens for peers at an address of this node. Uses sockets without an RDMA port, or if `rdma` is NULL. */
int net_network_open(const net_interfaces_t *wanted, const net_rdma_t *rdma, net_network_t **network,
                     net_address_t *address);
/* Where puts arrive: a window and a word with the last flag per rank. The caller owns them, and sets the words to zero.
 * Kernels may wait for the words: they are stored with release, or by a device that writes in order. */
typedef struct net_landing {
    uint8_t *windows;
    size_t window_bytes; /* of each */
    uint64_t *flags;
    const uint8_t *source; /* RDMA: contains all data to put. NULL: data may be anywhere, and is copied first */
    size_t source_bytes;
} net_landing_t;

/* Connects to every other rank; all call it at once, with windows of one size. They check each other by the
 * invitation's secret and the group's key. Landing memory may be accessed until net_network_close. A pair uses sockets
 * if memory cannot be registered, or no RDMA write arrives within 2 s. */
int net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                        uint32_t rank, uint32_t nranks, const net_address_t *addresses, const net_landing_t *landing,
                        const net_limit_t *limit);
/* How peers are reached: "RDMA (mlx5_0:1)", or "sockets" and why not RDMA. */
void net_network_way(const net_network_t *network, char text[NET_WAY_TEXT]);
/* Puts `bytes` at `offset` of this rank's window at the peer, then `flag`, which must exceed the previous one. Until
 * the put is sent or known to have arrived, its data must not change, nor another put go to its place. -EBUSY: NET_PUTS
 * puts are not sent yet; -ECONNRESET: the connection ended; with RDMA -EINVAL: outside the window. */
int net_network_put(net_network_t *network, uint32_t peer, uint64_t offset, const void *data, uint64_t bytes,
                    uint64_t flag);
/* Flag of the last put sent to the peer; 0: none. Puts are sent in order. */
uint64_t net_network_sent(const net_network_t *network, uint32_t peer);
/* False once the connection has ended: the peer closed it, is gone, or sent invalid data. */
bool net_network_alive(const net_network_t *network, uint32_t peer);
/* Why RDMA first failed; NULL: it has not. */
const char *net_network_fault(const net_network_t *network);
/* Moves what can be moved; if nothing can, waits up to `wait_ms`. True if data has moved. One thread at a time. */
bool net_network_progress(net_network_t *network, int wait_ms);
/* Whether some peers use sockets, which cost this process copies. */
bool net_network_copies(const net_network_t *network);
/* The halves of net_network_progress, without waits. A second thread may receive, except during net_network_close. */
bool net_network_write(net_network_t *network);
bool net_network_receive(net_network_t *network);
/* Peers get all that was put, then see the connections end. NULL is allowed. */
void net_network_close(net_network_t *network);

#ifdef __cplusplus
}
#endif
#endif
