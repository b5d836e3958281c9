/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - sockets with limits, and the first bytes of a connection. Sockets never block and are closed on exec.
 * Structs travel as they are, little-endian (x86-64); the magic tells other hosts. */
#ifndef SHUNT_NETWORK_WIRE_H
#define SHUNT_NETWORK_WIRE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "transport/network/network.h"

#define WIRE_MAGIC UINT64_C(0x31304e5448534b54)
#define WIRE_MAGIC_VERBS UINT64_C(0x31304e5448534b56) /* answer: both ranks have an RDMA port */

enum {
    WIRE_HELLO_MS = 2000, /* for a stranger's hello */
    WIRE_NAP_MS = 20      /* between two looks at `stop` */
};

typedef struct wire_hello {
    uint64_t magic;
    uint64_t secret[2];
    net_key_t group;
    uint32_t rank, nranks;
    union {
        uint32_t rounds; /* meeting */
        uint32_t verbs;  /* ranks: not 0: it has an RDMA port */
    };
    uint32_t target; /* ranks: the callee */
} wire_hello_t;

uint64_t wire_now_ns(void);
/* 0, -ETIMEDOUT or -ECANCELED. */
int wire_check(const net_limit_t *limit);
/* in constant time */
bool wire_secret_equal(const uint64_t a[2], const uint64_t b[2]);

/* A forked child closes its copies of these sockets, so that the end of this process ends its connections. */
void wire_close(int socket); /* -1 is allowed; the other side first gets what was written */

/* `address` gets the port. */
int wire_listen(net_address_t *address, int *listener);
/* The socket becomes writable when it is decided; wire_connected tells how. */
int wire_connect_begin(const net_address_t *address, int *connection);
int wire_connected(int connection);
/* Whether the other side closed it, even with data unread. */
bool wire_ended(int connection);
/* -EAGAIN: nobody waits. -EMFILE: no descriptor; the listener stays readable, so nap. */
int wire_accept(int listener, int *connection);
/* The number of bytes moved, 0 if none can, -ECONNRESET at the end. */
ssize_t wire_read_some(int connection, void *bytes, size_t size);
ssize_t wire_write_some(int connection, const void *bytes, size_t size);
ssize_t wire_write_parts(int connection, const struct iovec *parts, size_t count);
/* All bytes, within the limit. */
int wire_read(int connection, void *bytes, size_t size, const net_limit_t *limit);
int wire_write(int connection, const void *bytes, size_t size, const net_limit_t *limit);

#endif
