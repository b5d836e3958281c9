/* SPDX-License-Identifier: Apache-2.0 */
/* sockets.c - put and flag over TCP. A put is a head (offset, size, flag) and its bytes, which are read straight into
 * the window; a head that points outside ends the connection. */
#include <errno.h>

#include "transport/network/link.h"

static uint8_t *window_of(const net_network_t *network, uint32_t peer)
{
    return network->landing.windows + (size_t)peer * network->landing.window_bytes;
}

static size_t list_parts(link_t *link, struct iovec *part)
{
    size_t count = 0, skipped = link->written;
    for (uint32_t n = link->sent; n != link->given; n++) {
        put_t *put = &link->put[n % NET_PUTS];
        const size_t head = sizeof(put->head), of_head = skipped < head ? skipped : head, of_data = skipped - of_head;
        part[count++] = (struct iovec){(uint8_t *)&put->head + of_head, head - of_head};
        part[count++] = (struct iovec){(uint8_t *)(uintptr_t)put->data + of_data, put->head.bytes - of_data};
        skipped = 0;
    }
    return count;
}

bool sockets_write(link_t *link, bool *moved)
{
    struct iovec part[2 * NET_PUTS];
    while (!link_is_idle(link)) {
        const ssize_t some = wire_write_parts(link->out, part, list_parts(link, part));
        if (some <= 0)
            return some == 0;
        *moved = true;
        link->written += (size_t)some;
        while (!link_is_idle(link)) {
            const size_t whole = sizeof(put_head_t) + link->put[link->sent % NET_PUTS].head.bytes;
            if (link->written < whole)
                break;
            link->written -= whole;
            link_sent(link);
        }
    }
    return true;
}

int sockets_put(link_t *link, const put_head_t *head, const void *data)
{
    bool moved;
    link_give(link, head, data);
    return sockets_write(link, &moved) ? 0 : -ECONNRESET;
}

static bool is_sound(const net_network_t *network, uint32_t peer)
{
    const put_head_t *in = &network->link[peer].head;
    const size_t window = network->landing.window_bytes;
    return in->bytes <= window && in->offset <= window - in->bytes &&
           in->flag > __atomic_load_n(&network->landing.flags[peer], __ATOMIC_RELAXED);
}

/* Reads at most to the end of a put, so that one peer cannot keep this thread. */
bool sockets_read(net_network_t *network, uint32_t peer, bool *moved)
{
    link_t *link = &network->link[peer];
    const size_t head = sizeof(link->head);
    for (;;) {
        const bool in_head = link->got < head;
        uint8_t *to = in_head ? (uint8_t *)&link->head + link->got
                              : window_of(network, peer) + link->head.offset + (link->got - head);
        const size_t left = in_head ? head - link->got : head + link->head.bytes - link->got;
        ssize_t got = wire_read_some(link->in, to, left);
        if (got <= 0)
            return got == 0;
        *moved = true;
        link->got += (size_t)got;
        if (in_head && link->got == head && !is_sound(network, peer))
            return false;
        if (link->got >= head && link->got == head + link->head.bytes) {
            __atomic_store_n(&network->landing.flags[peer], link->head.flag, __ATOMIC_RELEASE);
            link->got = 0;
            return true;
        }
    }
}
