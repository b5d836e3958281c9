/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets.c - put and flag over TCP.
 *
 * A put is a head (where it goes, how much, the flag) and the bytes behind it; the
 * stream keeps their order. Bytes are read from the socket straight into the window,
 * and a head that points outside of it ends the connection. The thread that makes
 * calls moves the bytes of both directions, so no put waits for another one's peer.
 *
 * Memory: what is put, and where it lands, is the caller's.
 */
#include "transport/network/link.h"

static uint8_t *window_of(const net_network_t *network, uint32_t peer)
{
    return network->landing.windows + (size_t)peer * network->landing.window_bytes;
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

bool sockets_put(link_t *link, const put_head_t *head, const void *data)
{
    link->out = *head;
    link->data = data;
    link->sent = 0;
    link->sending = true;
    return push_out(link);
}

bool sockets_serve(net_network_t *network, uint32_t peer, bool *moved)
{
    link_t *link = &network->link[peer];
    const size_t sent = link->sent;
    const bool alive = pull_in(network, peer, moved) && push_out(link);
    *moved |= link->sent != sent;
    return alive;
}
