/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_frames.c - puts that come over a socket: any bytes are written within the sender's window, flags only grow, and
 * anything that is not a put ends the connection.
 */
#include <stdlib.h>
#include <sys/socket.h>

#include "transport/network/link.h"

enum { WINDOW = 512, PEERS = 2, PEER = 1 };

static void expect(int so)
{
    if (!so)
        abort();
}

/* Read all that the socket has, up to its end. */
static void read_all(net_network_t *network)
{
    uint64_t *flag = &network->landing.flags[PEER];
    for (bool moved = true, alive = true; alive && moved;) {
        const uint64_t before = *flag;
        moved = false;
        alive = sockets_read(network, PEER, &moved);
        expect(*flag >= before);
        expect(network->link[PEER].got <= sizeof(put_head_t) + WINDOW);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    net_network_t *network = calloc(1, sizeof(*network));
    /* The peer's window is the last one: a sanitizer sees what lands behind it. */
    network->landing = (net_landing_t){
        .windows = calloc(PEERS, WINDOW), .window_bytes = WINDOW, .flags = calloc(PEERS, sizeof(uint64_t))};
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    network->nranks = PEERS;
    network->link[PEER].in = pair[0];
    while (size > 0) {
        const ssize_t sent = send(pair[1], data, size, MSG_NOSIGNAL);
        expect(sent > 0);
        data += sent;
        size -= (size_t)sent;
        read_all(network);
        if (size > 0 && sent == 0)
            break;
    }
    for (size_t i = 0; i < WINDOW; i++)
        expect(network->landing.windows[i] == 0); /* another rank's */
    wire_close(pair[0]);
    wire_close(pair[1]);
    free(network->landing.windows);
    free(network->landing.flags);
    free(network);
    return 0;
}
