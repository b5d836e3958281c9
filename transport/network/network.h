/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.h - ranks of several hosts: how they meet, and put and flag between them.
 *
 * Nothing here knows of NCCL, of settings or of collectives. Functions return 0
 * or a negative errno, set their outputs only on success, and log nothing. Those
 * that wait take a limit and return -ETIMEDOUT when its time is over and -ECANCELED
 * when it is stopped.
 *
 * Meeting. The process that makes a communicator's id runs a listener, one a
 * process, and lays an invitation into the id: the listener's address and a secret.
 * Ranks connect, and exchange records in rounds: each posts one, and gets everyone's
 * when all have posted. Only who knows the secret is answered.
 *
 * Network. A connection from each rank to each other one. A rank puts bytes into a window
 * of a peer's memory, and a flag behind them: whoever sees the flag sees the bytes.
 * Bytes go over the connection itself (sockets.c), or by RDMA (verbs.c) where both
 * ranks have a port for it and a first write gets through.
 */
#ifndef SHUNT_NETWORK_H
#define SHUNT_NETWORK_H

#include "transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    NET_NETWORK_RANKS = NET_MAX_SLOTS,
    NET_PUTS = 8,          /* to a peer, under way at a time */
    NET_ROUND_BYTES = 256, /* the most bytes of a record */
    NET_ADDRESS_TEXT = 64,
    NET_WAY_TEXT = 200
};

/* How long to wait. */
typedef struct net_limit {
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC; 0: none */
    const uint32_t *stop; /* read atomically: not 0 gives up; NULL: nothing does */
} net_limit_t;

/* Of a socket. Plain data without padding: it travels. */
typedef struct net_address {
    uint8_t ip[16]; /* of IPv4 the first four */
    uint32_t scope; /* of an address of one link (IPv6) */
    uint16_t port;  /* of the host's order */
    uint16_t family;
} net_address_t;

/* Which of the host's interfaces, as NCCL's variables say; NULL where they say nothing. */
typedef struct net_interfaces {
    const char
        *names; /* NCCL_SOCKET_IFNAME: prefixes with commas between; "=" before them: whole names; "^": not these */
    const char *family; /* NCCL_SOCKET_FAMILY: AF_INET or AF_INET6 */
} net_interfaces_t;

/* A port of an RDMA device: "mlx5_0", 1. */
typedef struct net_port {
    char device[32];
    uint32_t port;
} net_port_t;

/* Which RDMA port, and how it is used; numbers as libibverbs has them. */
typedef struct net_rdma {
    const char *off;     /* not NULL: RDMA is not used, and why */
    const char *library; /* the file of libibverbs; NULL: libibverbs.so.1 */
    const char *devices; /* NCCL_IB_HCA: prefixes, each with ":port" or without, with commas between; "=" and "^" as
                            above; NULL: any */
    const net_port_t *nearest; /* the best first; others come behind them. Read by net_network_open alone */
    uint32_t nearest_count;
    int gid_index; /* of RoCE; -1: of RoCE v2 over IPv4, else v2 over IPv6, else the first */
    int service_level, traffic_class;
    int pkey_index;       /* of the partition */
    int timeout, retries; /* of a packet: 4.096 us * 2^timeout, and how often after the first time */
} net_rdma_t;

/* An address of this host with port 0. Where no name is given, loopback and container bridges come last. -ENODEV: no
 * interface that is up is among those asked for. */
int net_address_own(const net_interfaces_t *wanted, net_address_t *address);
/* "192.0.2.1:7000" or "[2001:db8::1]:7000". */
void net_address_write(const net_address_t *address, char text[NET_ADDRESS_TEXT]);

/* ---- Meeting ------------------------------------------------------------------- */

/* What an id carries. The magic and the checksum tell it from other bytes. Plain data without padding. */
typedef struct net_invitation {
    uint64_t magic;
    uint64_t secret[2]; /* never logged */
    net_address_t address;
    uint64_t checksum;
} net_invitation_t;

/* An invitation to this process's listener, whose thread is started at the first one and lives as long as the process.
 * A forked child has none of it, and gets its own. */
int net_invite(const net_interfaces_t *wanted, net_invitation_t *invitation);
bool net_invitation_valid(const net_invitation_t *invitation);

typedef struct net_meeting net_meeting_t;

/* Connect to the listener, as a rank of a group that meets there under this key, for so many rounds. -EHOSTUNREACH:
 * nothing has answered within the limit. */
int net_meeting_join(const net_invitation_t *invitation, const net_key_t *group, uint32_t rank, uint32_t nranks,
                     uint32_t rounds, const net_limit_t *limit, net_meeting_t **meeting);
/* One round: post `bytes` (at most NET_ROUND_BYTES, the same for all ranks) and get all ranks' records, in their order.
 * -ESRCH: a rank left after the first round; -EEXIST: another one has this rank; -EPROTO: the ranks differ in nranks,
 * rounds or bytes; -ECONNRESET: the listener is gone, or does not know the secret. */
int net_meeting_exchange(net_meeting_t *meeting, const void *record, uint32_t bytes, void *records,
                         const net_limit_t *limit);
void net_meeting_leave(net_meeting_t *meeting); /* NULL is fine */

/* ---- Put and flag -------------------------------------------------------------- */

typedef struct net_network net_network_t;

/* Listen for peers at an address of this host. Without an RDMA port it is the sockets. `rdma` NULL: likewise. */
int net_network_open(const net_interfaces_t *wanted, const net_rdma_t *rdma, net_network_t **network,
                     net_address_t *address);
/* Where puts land: a window for each rank, and a word for each with the last flag that came. The caller's; the words
 * are zero at first. Kernels may wait for these words: they are stored with release, or by a device whose writes come
 * in order. */
typedef struct net_landing {
    uint8_t *windows;
    size_t window_bytes; /* of one */
    uint64_t *flags;
    const uint8_t *source; /* RDMA: all that is put lies here. NULL: anywhere, and is copied first */
    size_t source_bytes;
} net_landing_t;

/* Connect to every other rank, with windows of the same size; all do so at once. They show each other the invitation's
 * secret and the group's key; strangers are sent away. What lands may be touched until net_network_close. Ranks of a
 * pair agree on RDMA or the socket: without memory to register, or where the first write does not get through within
 * 2 s, it is the socket. */
int net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                        uint32_t rank, uint32_t nranks, const net_address_t *addresses, const net_landing_t *landing,
                        const net_limit_t *limit);
/* How peers are reached: "RDMA (mlx5_0:1)", or "sockets" and why not RDMA. */
void net_network_way(const net_network_t *network, char text[NET_WAY_TEXT]);
/* Put `bytes` at `offset` of this rank's window at the peer, and `flag`, larger than the one before, behind them. The
 * data stays as it is, and no other put goes to the same place, until it is sent or the peer is known to have it.
 * -EBUSY: NET_PUTS of them are not sent; -ECONNRESET: the connection ended. RDMA: a put beside the window is -EINVAL.
 */
int net_network_put(net_network_t *network, uint32_t peer, uint64_t offset, const void *data, uint64_t bytes,
                    uint64_t flag);
/* Of the last put to the peer that is sent, as all before it are: its flag. 0: none is. */
uint64_t net_network_sent(const net_network_t *network, uint32_t peer);
/* False once the connection has ended: the peer has closed it, is gone, or has sent what no peer sends. */
bool net_network_alive(const net_network_t *network, uint32_t peer);
/* Why RDMA to a peer failed, the first time; NULL: it has not. */
const char *net_network_fault(const net_network_t *network);
/* Move what can be moved; if that is nothing, wait for up to `wait_ms` until something can. True if any data has moved.
 * One thread at a time. */
bool net_network_progress(net_network_t *network, int wait_ms);
/* Whether peers' bytes come by sockets, so that this process copies them. */
bool net_network_copies(const net_network_t *network);
/* The two halves of net_network_progress, without waiting. A second thread may receive beside all but
 * net_network_close. */
bool net_network_write(net_network_t *network);
bool net_network_receive(net_network_t *network);
/* Peers see the end of the connections once they have what was put. NULL is fine. */
void net_network_close(net_network_t *network);

#ifdef __cplusplus
}
#endif
#endif
