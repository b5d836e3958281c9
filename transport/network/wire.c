/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - see wire.h. */
#define _GNU_SOURCE
#include "transport/network/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A connection ends after about 20 s if the peer's node has vanished, or if it is full and the peer reads nothing. */
enum { BACKLOG = 64, IDLE_S = 10, PROBE_S = 3, PROBES = 3, UNACKNOWLEDGED_MS = 20000 };

uint64_t wire_now_ns(void)
{
    return net_now_ns();
}

int wire_check(const net_limit_t *limit)
{
    if (limit->stop && __atomic_load_n(limit->stop, __ATOMIC_ACQUIRE))
        return -ECANCELED;
    return limit->deadline_ns && wire_now_ns() >= limit->deadline_ns ? -ETIMEDOUT : 0;
}

bool wire_secret_equal(const uint64_t a[2], const uint64_t b[2])
{
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

static net_lock_t g_lock = NET_LOCK_INITIALIZER;
static int *g_sockets;
static size_t g_count, g_room;

static void close_in_child(void)
{
    while (g_count > 0)
        close(g_sockets[--g_count]);
}

NET_IN_CHILD(close_in_child);

/* Closes `made` on failure. */
static int keep(int made)
{
    net_lock_take(&g_lock);
    if (g_count == g_room) {
        int *more = realloc(g_sockets, (g_room + 64) * sizeof(*more));
        g_sockets = more ? more : g_sockets;
        g_room += more ? 64 : 0;
    }
    const bool kept = g_count < g_room;
    if (kept)
        g_sockets[g_count++] = made;
    net_lock_give(&g_lock);
    if (!kept)
        close(made);
    return kept ? 0 : -ENOMEM;
}

void wire_close(int socket)
{
    if (socket < 0)
        return;
    net_lock_take(&g_lock);
    size_t i = 0;
    while (i < g_count && g_sockets[i] != socket)
        i++;
    if (i < g_count)
        g_sockets[i] = g_sockets[--g_count];
    shutdown(socket, SHUT_RDWR); /* a child forked meanwhile may have a copy */
    close(socket);
    net_lock_give(&g_lock);
}

typedef union socket_address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} socket_address_t;

static socklen_t to_system(const net_address_t *address, socket_address_t *system)
{
    memset(system, 0, sizeof(*system));
    if (address->family == AF_INET) {
        system->four.sin_family = AF_INET;
        system->four.sin_port = htons(address->port);
        memcpy(&system->four.sin_addr, address->ip, sizeof(system->four.sin_addr));
        return sizeof(system->four);
    }
    if (address->family == AF_INET6) {
        system->six.sin6_family = AF_INET6;
        system->six.sin6_port = htons(address->port);
        system->six.sin6_scope_id = address->scope;
        memcpy(&system->six.sin6_addr, address->ip, sizeof(system->six.sin6_addr));
        return sizeof(system->six);
    }
    return 0;
}

/* If an option fails, the connection is slower or its end is noticed later. */
static void set_options(int connection)
{
    const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},       {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, IDLE_S}, {IPPROTO_TCP, TCP_KEEPINTVL, PROBE_S},
                   {IPPROTO_TCP, TCP_KEEPCNT, PROBES},  {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(connection, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

int wire_listen(net_address_t *address, int *listener)
{
    socket_address_t system;
    socklen_t size = to_system(address, &system);
    int made = net_descriptor(socket(address->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (made < 0)
        return -errno;
    if (bind(made, &system.any, size) != 0 || listen(made, BACKLOG) != 0 ||
        getsockname(made, &system.any, &size) != 0) {
        int error = -errno;
        close(made);
        return error;
    }
    address->port = ntohs(address->family == AF_INET ? system.four.sin_port : system.six.sin6_port);
    const int error = keep(made);
    if (!error)
        *listener = made;
    return error;
}

int wire_connect_begin(const net_address_t *address, int *connection)
{
    socket_address_t system;
    const socklen_t size = to_system(address, &system);
    if (size == 0 || address->port == 0)
        return -EAFNOSUPPORT;
    int made = net_descriptor(socket(address->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (made < 0)
        return -errno;
    set_options(made);
    if (connect(made, &system.any, size) != 0 && errno != EINPROGRESS) {
        int error = -errno;
        close(made);
        return error;
    }
    const int error = keep(made);
    if (!error)
        *connection = made;
    return error;
}

int wire_connected(int connection)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(connection, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return -errno;
    return -error;
}

bool wire_ended(int connection)
{
    struct pollfd one = {.fd = connection, .events = POLLRDHUP};
    return poll(&one, 1, 0) > 0;
}

int wire_accept(int listener, int *connection)
{
    int made = net_descriptor(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (made < 0) /* a caller that has hung up counts as none */
        return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ? -EMFILE : -EAGAIN;
    set_options(made);
    const int error = keep(made);
    if (!error)
        *connection = made;
    return error;
}

static bool would_wait(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

ssize_t wire_read_some(int connection, void *bytes, size_t size)
{
    ssize_t got = recv(connection, bytes, size, 0);
    if (got > 0)
        return got;
    return got < 0 && would_wait(errno) ? 0 : -ECONNRESET;
}

ssize_t wire_write_some(int connection, const void *bytes, size_t size)
{
    ssize_t sent = send(connection, bytes, size, MSG_NOSIGNAL);
    if (sent >= 0)
        return sent;
    return would_wait(errno) ? 0 : -ECONNRESET;
}

ssize_t wire_write_parts(int connection, const struct iovec *parts, size_t count)
{
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(connection, &message, MSG_NOSIGNAL);
    if (sent >= 0)
        return sent;
    return would_wait(errno) ? 0 : -ECONNRESET;
}

/* Of `to` and `from` one is NULL. */
static int move_all(int connection, uint8_t *to, const uint8_t *from, size_t size, const net_limit_t *limit)
{
    for (size_t done = 0; done < size;) {
        const ssize_t moved = to ? wire_read_some(connection, to + done, size - done)
                                 : wire_write_some(connection, from + done, size - done);
        if (moved < 0)
            return (int)moved;
        done += (size_t)moved;
        const int error = moved == 0 ? wire_check(limit) : 0;
        if (error)
            return error;
        struct pollfd one = {.fd = connection, .events = to ? POLLIN : POLLOUT};
        if (moved == 0)
            poll(&one, 1, WIRE_NAP_MS);
    }
    return 0;
}

int wire_read(int connection, void *bytes, size_t size, const net_limit_t *limit)
{
    return move_all(connection, bytes, NULL, size, limit);
}

int wire_write(int connection, const void *bytes, size_t size, const net_limit_t *limit)
{
    return move_all(connection, NULL, bytes, size, limit);
}
