/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_hello.c - what ranks receive while they connect: only the hello of a missing peer gives a caller a connection,
 * and from a called rank only a welcome is accepted.
 *
 * Input: a byte whose lowest bit says who speaks, then its bytes.
 */
#include <stdlib.h>
#include <sys/socket.h>

#define connect_links fuzz_connect_links /* the library has one, too */
#include "transport/network/connect.c"

enum { RANK = 0, RANKS = 3 };

static void expect(int so)
{
    if (!so)
        abort();
}

static void hear_as_caller(connecting_t *state, int connection)
{
    caller_t *caller = &state->caller[0];
    *caller = (caller_t){.connection = connection};
    state->callers = 1;
    const bool stays = hear_caller(state, caller);
    expect(!stays || caller->got < sizeof(caller->hello));
    if (stays)
        wire_close(connection);
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++) {
        const bool right = caller->hello.magic == WIRE_MAGIC && caller->hello.rank == r &&
                           caller->hello.target == RANK && caller->hello.nranks == RANKS && r != RANK && r < RANKS;
        expect(state->network->link[r].in < 0 || right);
        wire_close(state->network->link[r].in);
    }
}

static void hear_as_called(connecting_t *state, int connection)
{
    caller_t *called = &state->called[0];
    *called = (caller_t){.connection = connection, .rank = 1, .connected = true};
    const int error = hear_called(state, called);
    expect(error <= 0 && (called->connection < 0) == (state->network->link[1].out >= 0));
    wire_close(connection);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    net_network_t network = {.nranks = RANKS};
    connecting_t state = {.network = &network, .missing = 2 * (RANKS - 1)};
    if (size < 1)
        return 0;
    for (uint32_t r = 0; r < NET_NETWORK_RANKS; r++)
        network.link[r].in = network.link[r].out = -1;
    state.hello = (wire_hello_t){.magic = WIRE_MAGIC,
                                 .secret = {0x5151515151515151, 0x5252525252525252},
                                 .group = {{0x5353535353535353, 0x5454545454545454}},
                                 .rank = RANK,
                                 .nranks = RANKS};
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    expect(size == 1 || send(pair[1], data + 1, size - 1, MSG_NOSIGNAL) > 0);
    if (data[0] & 1)
        hear_as_called(&state, pair[0]);
    else
        hear_as_caller(&state, pair[0]);
    wire_close(pair[1]);
    return 0;
}
