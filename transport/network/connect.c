/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c - connects all ranks. Each rank calls all others, and sends over the connections that it made. The caller's
 * hello says whether it has an RDMA port, the answer whether both ranks have one. Strangers may displace a peer whose
 * hello is under way, so a caller that loses its connection before the answer calls again. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "transport/network/link.h"

enum { MOST_CALLERS = 32, AGAIN_MS = 20 };

/* A called peer, or an accepted caller whose hello has not arrived. */
typedef struct caller {
    int connection; /* -1: none, or moved to the link */
    uint32_t rank;
    bool connected;    /* to a called peer; the hello is sent */
    uint64_t again_ns; /* when to call again; 0: not */
    wire_hello_t hello;
    uint64_t welcome;
    size_t got;
    uint64_t deadline_ns; /* of an accepted caller */
} caller_t;

typedef struct connecting {
    net_network_t *network;
    wire_hello_t hello; /* all fields but target */
    const net_address_t *addresses;
    caller_t called[NET_NETWORK_RANKS];
    uint32_t calls;
    caller_t caller[MOST_CALLERS];
    uint32_t callers;
    uint32_t missing; /* connections, of both directions, not yet made */
    uint32_t offers;
} connecting_t;

static uint64_t after_ms(uint32_t ms)
{
    return wire_now_ns() + ms * UINT64_C(1000000);
}

static void install(connecting_t *state, uint32_t rank, int *end, int connection, bool offers)
{
    *end = connection;
    state->offers |= (uint32_t)offers << rank;
    state->missing--;
}

static int call_peer(connecting_t *state, caller_t *called, uint32_t rank)
{
    *called = (caller_t){.connection = -1, .rank = rank};
    return wire_connect_begin(&state->addresses[rank], &called->connection);
}

static int call_peers(connecting_t *state)
{
    for (uint32_t r = 0; r < state->hello.nranks; r++) {
        if (r == state->hello.rank)
            continue;
        int error = call_peer(state, &state->called[state->calls], r);
        if (error)
            return error;
        state->calls++;
    }
    return 0;
}

/* The answer may take the whole limit: the peer may not serve connections yet. -ECONNRESET: the hello was not read. */
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
    if (called->welcome != WIRE_MAGIC && called->welcome != WIRE_MAGIC_VERBS)
        return -EPROTO;
    install(state, called->rank, &state->network->link[called->rank].out, called->connection,
            called->welcome == WIRE_MAGIC_VERBS);
    called->connection = -1;
    return 0;
}

static bool is_expected(const connecting_t *state, const wire_hello_t *hello)
{
    const wire_hello_t *own = &state->hello;
    return hello->magic == WIRE_MAGIC && wire_secret_equal(hello->secret, own->secret) &&
           memcmp(&hello->group, &own->group, sizeof(own->group)) == 0 && hello->target == own->rank &&
           hello->nranks == own->nranks && hello->rank != own->rank && hello->rank < own->nranks &&
           state->network->link[hello->rank].in < 0;
}

/* True while the hello is incomplete. */
static bool hear_caller(connecting_t *state, caller_t *caller)
{
    ssize_t got = wire_read_some(caller->connection, (uint8_t *)&caller->hello + caller->got,
                                 sizeof(caller->hello) - caller->got);
    if (got >= 0) {
        caller->got += (size_t)got;
        if (caller->got < sizeof(caller->hello))
            return true;
        const bool offers = caller->hello.verbs && state->hello.verbs;
        const uint64_t welcome = offers ? WIRE_MAGIC_VERBS : WIRE_MAGIC;
        if (is_expected(state, &caller->hello) &&
            wire_write_some(caller->connection, &welcome, sizeof(welcome)) == (ssize_t)sizeof(welcome)) {
            install(state, caller->hello.rank, &state->network->link[caller->hello.rank].in, caller->connection,
                    offers);
            caller->connection = -1;
        }
    }
    wire_close(caller->connection);
    return false;
}

static void drop_caller(connecting_t *state, uint32_t index)
{
    const size_t behind = --state->callers - index;
    memmove(&state->caller[index], &state->caller[index + 1], sizeof(state->caller[0]) * behind);
}

/* Closes the oldest caller without a complete hello. A round accepts at most MOST_CALLERS, so each was read once. */
static void make_room(connecting_t *state)
{
    if (state->callers < MOST_CALLERS)
        return;
    wire_close(state->caller[0].connection);
    drop_caller(state, 0);
}

static void accept_callers(connecting_t *state)
{
    int connection, error = 0;
    for (int i = 0; i < MOST_CALLERS && state->missing > 0; i++) {
        error = wire_accept(state->network->listener, &connection);
        if (error)
            break;
        make_room(state);
        state->caller[state->callers++] = (caller_t){.connection = connection, .deadline_ns = after_ms(WIRE_HELLO_MS)};
    }
    if (error == -EMFILE)
        poll(NULL, 0, WIRE_NAP_MS);
}

static int look_at_called(connecting_t *state, caller_t *called, bool ready, uint64_t now)
{
    if (called->again_ns && now >= called->again_ns)
        return call_peer(state, called, called->rank);
    const int error = ready ? hear_called(state, called) : 0;
    if (error != -ECONNRESET)
        return error;
    wire_close(called->connection);
    called->connection = -1;
    called->again_ns = after_ms(AGAIN_MS);
    return 0;
}

static void look_at_caller(connecting_t *state, uint32_t index, bool ready, uint64_t now)
{
    caller_t *caller = &state->caller[index];
    if (ready ? hear_caller(state, caller) : now <= caller->deadline_ns)
        return;
    if (!ready)
        wire_close(caller->connection);
    drop_caller(state, index);
}

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
        int error = look_at_called(state, &state->called[i], ready[1 + i].revents != 0, now);
        if (error)
            return error;
    }
    for (uint32_t i = callers; i-- > 0;)
        look_at_caller(state, i, ready[1 + calls + i].revents != 0, now);
    if (ready[0].revents)
        accept_callers(state);
    return 0;
}

int connect_links(net_network_t *network, const net_invitation_t *invitation, const net_key_t *group, uint32_t rank,
                  const net_address_t *addresses, const net_limit_t *limit, uint32_t *offers)
{
    connecting_t *state = calloc(1, sizeof(*state));
    if (!state)
        return -ENOMEM;
    state->network = network;
    state->addresses = addresses;
    state->missing = 2 * (network->nranks - 1);
    state->hello = (wire_hello_t){.magic = WIRE_MAGIC,
                                  .secret = {invitation->secret[0], invitation->secret[1]},
                                  .group = *group,
                                  .rank = rank,
                                  .nranks = network->nranks,
                                  .verbs = network->verbs != NULL};
    int error = call_peers(state);
    while (!error && state->missing > 0) {
        error = look(state);
        if (!error && state->missing > 0)
            error = wire_check(limit);
    }
    for (uint32_t i = 0; i < state->calls; i++)
        wire_close(state->called[i].connection);
    for (uint32_t i = 0; i < state->callers; i++)
        wire_close(state->caller[i].connection);
    *offers = state->offers;
    free(state);
    return error;
}
