/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.h - ranks of several hosts: how they meet, and put and flag between them (docs/hosts.md). Whoever sees a
 * flag sees the bytes put before it.
 *
 * Functions return 0 or a negative errno, set outputs only on success, and log nothing. A limit ends them with
 * -ETIMEDOUT, a stop with -ECANCELED.
 */
#ifndef SHUNT_NETWORK_H
#define SHUNT_NETWORK_H

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    NET_NETWORK_RANKS = NET_MAX_SLOTS,
    NET_PUTS = 8,          /* under way to a peer */
    NET_ROUND_BYTES = 256, /* of a record */
    NET_ADDRESS_TEXT = 64,
    NET_WAY_TEXT = 200
};

typedef struct net_limit {
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none */
    const uint32_t *stop; /* read atomically; not 0: give up. NULL: never */
} net_limit_t;

/* It travels: no padding. */
typedef struct net_address {
    uint8_t ip[16]; /* IPv4: the first 4 */
    uint32_t scope; /* of a link-local IPv6 address */
    uint16_t port;  /* of the host's order */
    uint16_t family;
} net_address_t;

/* By NCCL's variables; NULL: unset. */
typedef struct net_interfaces {
    const char *names; /* NCCL_SOCKET_IFNAME: prefixes with commas between; "=" in front: whole names; "^": not these */
    const char *family; /* NCCL_SOCKET_FAMILY: AF_INET or AF_INET6 */
} net_interfaces_t;

/* "mlx5_0", 1 */
typedef struct net_port {
    char device[32];
    uint32_t port;
} net_port_t;

/* Numbers as libibverbs has them. */
typedef struct net_rdma {
    const char *off;           /* NULL, or why not RDMA */
    const char *library;       /* NULL: libibverbs.so.1 */
    const char *devices;       /* NCCL_IB_HCA: like names above, with ":port" or without; NULL: any */
    const net_port_t *nearest; /* best first, then all others; read by net_network_open alone */
    uint32_t nearest_count;
    int gid_index; /* RoCE; -1: v2 over IPv4, else v2 over IPv6, else the first */
    int service_level, traffic_class;
    int pkey_index;
    int timeout, retries; /* of a packet: 4.096 us * 2^timeout; resends */
} net_rdma_t;

/* An address of this host, port 0. Without names, loopback and container bridges come last. -ENODEV: no interface asked
 * for is up. */
int net_address_own(const net_interfaces_t *wanted, net_address_t *address);
/* "192.0.2.1:7000" or "[2001:db8::1]:7000". */
void net_address_write(const net_address_t *address, char text[NET_ADDRESS_TEXT]);

/* Magic and checksum tell it from other bytes. No padding. */
typedef struct net_invitation {
    uint64_t magic;
    uint64_t secret[2]; /* never logged */
    net_address_t address;
    uint64_t checksum;
} net_invitation_t;

/* The process's listener starts with the first invitation, and ends with the process; a forked child gets its own. */
int net_invite(const net_interfaces_t *wanted, net_invitation_t *invitation);
bool net_invitation_valid(const net_invitation_t *invitation);

typedef struct net_meeting net_meeting_t;

/* Connect to the listener as a rank of a group, for so many rounds. -EHOSTUNREACH: no answer within the limit. */
int net_meeting_join(const net_invitation_t *invitation, const net_key_t *group, uint32_t rank, uint32_t nranks,
                     uint32_t rounds, const net_limit_t *limit, net_meeting_t **meeting);
/* Post a record of `bytes` (at most NET_ROUND_BYTES, the same for all ranks) and get all, in rank order. -ESRCH: a rank
 * left after the first round; -EEXIST: another one has this rank; -EPROTO: ranks differ in nranks, rounds or bytes;
 * -ECONNRESET: the listener is gone, or does not know the secret. */
int net_meeting_exchange(net_meeting_t *meeting, const void *record, uint32_t bytes, void *records,
                         const net_limit_t *limit);
void net_meeting_leave(net_meeting_t *meeting); /* NULL is allowed */

typedef struct net_network net_network_t;

/* Listen for peers. Without RDMA port or `rdma`: sockets. */
int net_network_open(const net_interfaces_t *wanted, const net_rdma_t *rdma, net_network_t **network,
                     net_address_t *address);
/* Where puts land; the caller's. Each rank has a window, and a word for its last flag, 0 at first. Kernels may wait for
 * the words: they are stored with release, or by a device that writes in order. */
typedef struct net_landing {
    uint8_t *windows;
    size_t window_bytes; /* of one */
    uint64_t *flags;
    const uint8_t *source; /* RDMA: registered, all puts lie here. NULL: puts are copied first */
    size_t source_bytes;
} net_landing_t;

/* Connect to all other ranks, which do the same, with equal windows. The landing is written until net_network_close.
 * Peers must show the secret and the group's key. A pair whose first RDMA write does not get through within 2 s uses
 * sockets. */
int net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                        uint32_t rank, uint32_t nranks, const net_address_t *addresses, const net_landing_t *landing,
                        const net_limit_t *limit);
/* "RDMA (mlx5_0:1)", or "sockets" and why not RDMA. */
void net_network_way(const net_network_t *network, char text[NET_WAY_TEXT]);
/* Put `bytes` at `offset` of this rank's window at the peer, then `flag`, larger than the last. Until it is sent, or
 * the peer is known to have it, the data stays and nothing else goes to that place. -EBUSY: NET_PUTS are under way;
 * -ECONNRESET: the connection has ended; -EINVAL (RDMA): outside the window. */
int net_network_put(net_network_t *network, uint32_t peer, uint64_t offset, const void *data, uint64_t bytes,
                    uint64_t flag);
/* The flag of the last put that is sent, as all before it are; 0: none. */
uint64_t net_network_sent(const net_network_t *network, uint32_t peer);
/* False once the peer has closed, is gone, or has sent what no peer sends. */
bool net_network_alive(const net_network_t *network, uint32_t peer);
/* Why RDMA first failed, or NULL. */
const char *net_network_fault(const net_network_t *network);
/* Move what can be moved, or wait up to `wait_ms` until something can. True if data has moved. One thread at a time. */
bool net_network_progress(net_network_t *network, int wait_ms);
/* Whether any peer's bytes come by sockets, so that this process copies them. */
bool net_network_copies(const net_network_t *network);
/* Halves of net_network_progress, without waiting. A second thread may receive, except during net_network_close. */
bool net_network_write(net_network_t *network);
bool net_network_receive(net_network_t *network);
/* Peers first get what was put. NULL is allowed. */
void net_network_close(net_network_t *network);

#ifdef __cplusplus
}
#endif
#endif
