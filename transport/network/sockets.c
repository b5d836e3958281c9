/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets.c - put and flag over TCP.
 *
 * A put is a head (where it goes, how much, the flag) and the bytes behind it; the
 * stream keeps their order. Bytes are read from the socket straight into the window,
 * and a head that points outside of it ends the connection. The thread that makes
 * calls moves the bytes of both directions, so no put waits for another one's peer.
 *
 * Memory: the network owns its sockets; what is put, and where it lands, is the caller's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "transport/network/wire.h"

enum { MOST_CALLERS = 32 };

typedef struct put_head {
    uint64_t offset, bytes, flag;
} put_head_t;

typedef struct link {
    int connection; /* -1: none, or ended */
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
};

int net_network_open(const net_interfaces_t *wanted, net_network_t **network, net_address_t *address)
{
    net_address_t own;
    int error = net_address_own(wanted, &own);
    if (error)
        return error;
    net_network_t *made = calloc(1, sizeof(*made));
    if (!made)
        return -ENOMEM;
    made->listener = -1;
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        made->link[r].connection = -1;
    error = wire_listen(&own, &made->listener);
    if (error) {
        net_network_close(made);
        return error;
    }
    *network = made;
    *address = own;
    return 0;
}

/* ---- Connecting -------------------------------------------------------------------- */

/* A connection to a rank below, which answers; or one that was accepted, whose hello is awaited. */
typedef struct caller {
    int connection;
    uint32_t rank;  /* called */
    bool connected; /* called, and said hello */
    wire_hello_t hello;
    uint64_t welcome;
    size_t got;
    uint64_t deadline_ns;
} caller_t;

typedef struct connecting {
    net_network_t *network;
    wire_hello_t hello; /* but for the target */
    caller_t called[NET_NETWORK_RANKS];
    uint32_t calls;
    caller_t caller[MOST_CALLERS];
    uint32_t callers;
    uint32_t missing; /* peers without a connection */
} connecting_t;

static uint64_t after_ms(uint32_t ms)
{
    return wire_now_ns() + ms * UINT64_C(1000000);
}

static void install(connecting_t *state, uint32_t rank, int connection)
{
    state->network->link[rank].connection = connection;
    state->missing--;
}

static int call_peers(connecting_t *state, const net_address_t *addresses)
{
    for (uint32_t r = 0; r < state->hello.rank; r++) {
        caller_t *called = &state->called[state->calls];
        *called = (caller_t){.rank = r, .deadline_ns = after_ms(WIRE_CONNECT_MS)};
        int error = wire_connect_begin(&addresses[r], &called->connection);
        if (error)
            return error;
        state->calls++;
    }
    return 0;
}

/* One of those we have called is connected, or has answered. Its answer has no limit but the caller's: the peer may
 * have yet to look. */
static int hear_called(connecting_t *state, caller_t *called)
{
    if (!called->connected) {
        int error = wire_connected(called->connection);
        if (error)
            return error;
        wire_hello_t hello = state->hello;
        hello.target = called->rank;
        if (wire_write_some(called->connection, &hello, sizeof(hello)) != (ssize_t)sizeof(hello))
            return -ECONNRESET;
        called->connected = true;
        return 0;
    }
    ssize_t got = wire_read_some(called->connection, (uint8_t *)&called->welcome + called->got,
                                 sizeof(called->welcome) - called->got);
    if (got < 0)
        return (int)got;
    called->got += (size_t)got;
    if (called->got < sizeof(called->welcome))
        return 0;
    if (called->welcome != WIRE_MAGIC)
        return -EPROTO;
    install(state, called->rank, called->connection);
    called->connection = -1;
    return 0;
}

static bool is_expected(const connecting_t *state, const wire_hello_t *hello)
{
    const wire_hello_t *own = &state->hello;
    return hello->magic == WIRE_MAGIC && wire_secret_equal(hello->secret, own->secret) &&
           memcmp(&hello->group, &own->group, sizeof(own->group)) == 0 && hello->target == own->rank &&
           hello->nranks == own->nranks && hello->rank > own->rank && hello->rank < own->nranks &&
           state->network->link[hello->rank].connection < 0;
}

/* True if it is still to be heard. */
static bool hear_caller(connecting_t *state, caller_t *caller)
{
    ssize_t got = wire_read_some(caller->connection, (uint8_t *)&caller->hello + caller->got,
                                 sizeof(caller->hello) - caller->got);
    if (got >= 0) {
        const uint64_t welcome = WIRE_MAGIC;
        caller->got += (size_t)got;
        if (caller->got < sizeof(caller->hello))
            return true;
        if (is_expected(state, &caller->hello) &&
            wire_write_some(caller->connection, &welcome, sizeof(welcome)) == (ssize_t)sizeof(welcome)) {
            install(state, caller->hello.rank, caller->connection);
            caller->connection = -1;
        }
    }
    wire_close(caller->connection);
    return false;
}

static void drop_caller(connecting_t *state, uint32_t index)
{
    state->caller[index] = state->caller[--state->callers];
}

static void accept_callers(connecting_t *state)
{
    int connection, error;
    while ((error = wire_accept(state->network->listener, &connection)) == 0) {
        if (state->callers == MOST_CALLERS) { /* the first of those that say nothing */
            wire_close(state->caller[0].connection);
            memmove(state->caller, state->caller + 1, sizeof(state->caller[0]) * --state->callers);
        }
        state->caller[state->callers++] = (caller_t){.connection = connection, .deadline_ns = after_ms(WIRE_HELLO_MS)};
    }
    if (error == -EMFILE)
        poll(NULL, 0, WIRE_NAP_MS);
}

/* Look once at all sockets. */
static int look(connecting_t *state)
{
    struct pollfd ready[1 + NET_NETWORK_RANKS + MOST_CALLERS];
    const uint32_t calls = state->calls, callers = state->callers;
    ready[0] = (struct pollfd){.fd = state->network->listener, .events = POLLIN};
    for (uint32_t i = 0; i < calls; i++)
        ready[1 + i] =
            (struct pollfd){.fd = state->called[i].connection, .events = state->called[i].connected ? POLLIN : POLLOUT};
    for (uint32_t i = 0; i < callers; i++)
        ready[1 + calls + i] = (struct pollfd){.fd = state->caller[i].connection, .events = POLLIN};
    if (poll(ready, 1 + calls + callers, WIRE_NAP_MS) < 0)
        return 0;
    const uint64_t now = wire_now_ns();
    for (uint32_t i = 0; i < calls; i++) {
        caller_t *called = &state->called[i];
        int error = ready[1 + i].revents ? hear_called(state, called) : 0;
        if (!error && called->connection >= 0 && !called->connected && now > called->deadline_ns)
            error = -ETIMEDOUT;
        if (error)
            return error;
    }
    for (uint32_t i = callers; i-- > 0;) {
        caller_t *caller = &state->caller[i];
        if (ready[1 + calls + i].revents) {
            if (!hear_caller(state, caller))
                drop_caller(state, i);
        } else if (now > caller->deadline_ns) {
            wire_close(caller->connection);
            drop_caller(state, i);
        }
    }
    if (ready[0].revents)
        accept_callers(state);
    return 0;
}

int net_network_connect(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group,
                        uint32_t rank, uint32_t nranks, const net_address_t *addresses, const net_landing_t *landing,
                        const net_limit_t *limit)
{
    if (rank >= nranks || nranks > NET_NETWORK_RANKS)
        return -EINVAL;
    connecting_t *state = calloc(1, sizeof(*state));
    if (!state)
        return -ENOMEM;
    network->nranks = nranks;
    network->landing = *landing;
    state->network = network;
    state->missing = nranks - 1;
    state->hello = (wire_hello_t){.magic = WIRE_MAGIC,
                                  .secret = {invitation->secret[0], invitation->secret[1]},
                                  .group = *group,
                                  .rank = rank,
                                  .nranks = nranks};
    int error = call_peers(state, addresses);
    while (!error && state->missing > 0) {
        error = look(state);
        if (!error && state->missing > 0)
            error = wire_check(limit);
    }
    for (uint32_t i = 0; i < state->calls; i++)
        wire_close(state->called[i].connection);
    for (uint32_t i = 0; i < state->callers; i++)
        wire_close(state->caller[i].connection);
    free(state);
    wire_close(network->listener);
    network->listener = -1;
    return error;
}

/* ---- Moving ------------------------------------------------------------------------ */

static uint8_t *window_of(const net_network_t *network, uint32_t peer)
{
    return network->landing.windows + (size_t)peer * network->landing.window_bytes;
}

static void end_link(link_t *link)
{
    wire_close(link->connection);
    link->connection = -1;
}

/* Write what goes at once; false if the connection has ended. */
static bool push_out(link_t *link)
{
    const size_t head = sizeof(link->out);
    while (link->sending) {
        const size_t of_head = link->sent < head ? link->sent : head, of_data = link->sent - of_head;
        const struct iovec part[2] = {{(uint8_t *)&link->out + of_head, head - of_head},
                                      {(uint8_t *)(uintptr_t)link->data + of_data, link->out.bytes - of_data}};
        ssize_t sent = wire_write_parts(link->connection, part, 2);
        if (sent <= 0)
            return sent == 0;
        link->sent += (size_t)sent;
        link->sending = link->sent < head + link->out.bytes;
    }
    return true;
}

static bool is_sound(const net_network_t *network, uint32_t peer)
{
    const put_head_t *in = &network->link[peer].in;
    const size_t window = network->landing.window_bytes;
    return in->bytes <= window && in->offset <= window - in->bytes &&
           in->flag > __atomic_load_n(&network->landing.flags[peer], __ATOMIC_RELAXED);
}

/* Read what is there, up to the end of a put: one peer must not keep this thread. */
static bool pull_in(net_network_t *network, uint32_t peer, bool *moved)
{
    link_t *link = &network->link[peer];
    const size_t head = sizeof(link->in);
    for (;;) {
        const bool in_head = link->got < head;
        uint8_t *to = in_head ? (uint8_t *)&link->in + link->got
                              : window_of(network, peer) + link->in.offset + (link->got - head);
        const size_t left = in_head ? head - link->got : head + link->in.bytes - link->got;
        ssize_t got = wire_read_some(link->connection, to, left);
        if (got <= 0)
            return got == 0;
        *moved = true;
        link->got += (size_t)got;
        if (in_head && link->got == head && !is_sound(network, peer))
            return false;
        if (link->got >= head && link->got == head + link->in.bytes) {
            __atomic_store_n(&network->landing.flags[peer], link->in.flag, __ATOMIC_RELEASE);
            link->got = 0;
            return true;
        }
    }
}

int net_network_put(net_network_t *network, uint32_t peer, uint64_t offset, const void *data, uint64_t bytes,
                    uint64_t flag)
{
    link_t *link = &network->link[peer];
    if (link->connection < 0)
        return -ECONNRESET;
    if (link->sending)
        return -EBUSY;
    link->out = (put_head_t){offset, bytes, flag};
    link->data = data;
    link->sent = 0;
    link->sending = true;
    if (push_out(link))
        return 0;
    end_link(link);
    return -ECONNRESET;
}

bool net_network_sent(const net_network_t *network, uint32_t peer)
{
    return !network->link[peer].sending;
}

bool net_network_alive(const net_network_t *network, uint32_t peer)
{
    return network->link[peer].connection >= 0;
}

/* True if any data has moved. */
static bool serve(net_network_t *network, uint32_t peer)
{
    link_t *link = &network->link[peer];
    const size_t sent = link->sent;
    bool moved = false;
    if (!pull_in(network, peer, &moved) || !push_out(link))
        end_link(link);
    return moved || link->sent != sent;
}

/* One who does not wait need not ask which sockets are ready. */
static bool serve_all(net_network_t *network)
{
    bool moved = false;
    for (uint32_t r = 0; r < network->nranks; r++)
        moved |= network->link[r].connection >= 0 && serve(network, r);
    return moved;
}

bool net_network_progress(net_network_t *network, int wait_ms)
{
    struct pollfd ready[NET_NETWORK_RANKS];
    uint32_t count = 0;
    if (wait_ms == 0)
        return serve_all(network);
    for (uint32_t r = 0; r < network->nranks; r++) {
        const link_t *link = &network->link[r];
        if (link->connection >= 0)
            ready[count++] =
                (struct pollfd){.fd = link->connection, .events = (short)(POLLIN | (link->sending ? POLLOUT : 0))};
    }
    return poll(ready, count, wait_ms) > 0 && serve_all(network);
}

void net_network_close(net_network_t *network)
{
    if (!network)
        return;
    wire_close(network->listener);
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        wire_close(network->link[r].connection);
    free(network);
}
