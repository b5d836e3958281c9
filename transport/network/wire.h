/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - sockets with limits, and what the first bytes of a connection say.
 * Private to this folder.
 *
 * Sockets never block and are closed on exec. Hosts are little-endian (x86-64), so
 * structs travel as they lie; the magic tells whoever differs.
 */
#ifndef SHUNT_NETWORK_WIRE_H
#define SHUNT_NETWORK_WIRE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "transport/network/network.h"

#define WIRE_MAGIC UINT64_C(0x31304e5448534b54)
#define WIRE_MAGIC_VERBS UINT64_C(0x31304e5448534b56) /* an answer: both ranks have an RDMA port */

enum {
    WIRE_HELLO_MS = 2000, /* until a stranger must have said who it is */
    WIRE_NAP_MS = 20      /* between two looks at a limit's `stop` */
};

/* The first bytes of every connection. */
typedef struct wire_hello {
    uint64_t magic;
    uint64_t secret[2];
    net_key_t group;
    uint32_t rank, nranks;
    union {
        uint32_t rounds; /* meeting */
        uint32_t verbs;  /* between ranks: not 0: it has an RDMA port */
    };
    uint32_t target; /* between ranks: who is called */
} wire_hello_t;

uint64_t wire_now_ns(void);
/* 0, -ETIMEDOUT or -ECANCELED. */
int wire_check(const net_limit_t *limit);
/* Whether a secret is the one; takes the same time for every wrong one. */
bool wire_secret_equal(const uint64_t a[2], const uint64_t b[2]);

/* Sockets that the functions below make. A forked child closes its copies, so that the end of this process ends its
 * connections. */
void wire_close(int socket); /* the other side sees the end once it has what was written; -1 is fine */

/* A listening socket; the address gets its port. */
int wire_listen(net_address_t *address, int *listener);
/* Begin to connect. The socket is writable when it is decided; wire_connected says how. */
int wire_connect_begin(const net_address_t *address, int *connection);
int wire_connected(int connection);
/* Whether the other side has closed it, read or not. */
bool wire_ended(int connection);
/* -EAGAIN: nobody is waiting. -EMFILE: somebody is, and there is no descriptor; the listener stays readable, so nap. */
int wire_accept(int listener, int *connection);
/* Read or write some: the number of bytes, 0 if none can move now, -ECONNRESET at the end. */
ssize_t wire_read_some(int connection, void *bytes, size_t size);
ssize_t wire_write_some(int connection, const void *bytes, size_t size);
/* Some of several pieces of memory, in their order, at once. */
ssize_t wire_write_parts(int connection, const struct iovec *parts, size_t count);
/* All of them, within the limit. */
int wire_read(int connection, void *bytes, size_t size, const net_limit_t *limit);
int wire_write(int connection, const void *bytes, size_t size, const net_limit_t *limit);

#endif
