/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - sockets with limits, and the first bytes of a connection. Sockets never block, and are closed on exec.
 * Structs are sent as they are, little-endian; the magic detects machines of another byte order. */
#ifndef SHUNT_NETWORK_WIRE_H
#define SHUNT_NETWORK_WIRE_H

#include <sys/types.h>
#include <sys/uio.h>

#include "transport/network/network.h"

#define WIRE_MAGIC UINT64_C(0x31304e5448534b54)
#define WIRE_MAGIC_VERBS UINT64_C(0x31304e5448534b56) /* answer: both ranks have an RDMA port */

enum {
    WIRE_HELLO_MS = 2000, /* for a stranger's hello */
    WIRE_NAP_MS = 20      /* between two checks of `stop` */
};

typedef struct wire_hello {
    uint64_t magic;
    uint64_t secret[2];
    net_key_t group;
    uint32_t rank, nranks;
    union {
        uint32_t rounds; /* in a meeting */
        uint32_t verbs;  /* between ranks; not 0: has an RDMA port */
    };
    uint32_t target; /* between ranks: the called one */
} wire_hello_t;

uint64_t wire_now_ns(void);
/* 0, -ETIMEDOUT or -ECANCELED. */
int wire_check(const net_limit_t *limit);
/* Compares in constant time. */
bool wire_secret_equal(const uint64_t a[2], const uint64_t b[2]);

/* -1 is allowed. The peer still gets what was written. A forked child closes its copies of all sockets made here, so a
 * connection ends when this process does. */
void wire_close(int socket);

/* Sets the port in `address`. */
int wire_listen(net_address_t *address, int *listener);
/* The connection becomes writable when made or failed; wire_connected returns which. */
int wire_connect_begin(const net_address_t *address, int *connection);
int wire_connected(int connection);
/* Whether the peer has closed the connection, even if data is unread. */
bool wire_ended(int connection);
/* -EAGAIN: no caller waits. -EMFILE: no descriptor is left; the listener stays readable, so nap. */
int wire_accept(int listener, int *connection);
/* Bytes moved, 0 if none can be, -ECONNRESET at the end of the connection. */
ssize_t wire_read_some(int connection, void *bytes, size_t size);
ssize_t wire_write_some(int connection, const void *bytes, size_t size);
ssize_t wire_write_parts(int connection, const struct iovec *parts, size_t count);
/* Move all bytes within the limit. */
int wire_read(int connection, void *bytes, size_t size, const net_limit_t *limit);
int wire_write(int connection, const void *bytes, size_t size, const net_limit_t *limit);

#endif
