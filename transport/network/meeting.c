/* SPDX-License-Identifier: Apache-2.0 */
/* meeting.c - a rank's side of a meeting. A listener crowded by strangers may close a rank's connection unread, like
 * one with another secret, so the rank calls again, up to MOST_CALLS times. */
#define _GNU_SOURCE
#include "transport/network/meeting.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

enum { MOST_CALLS = 8, AGAIN_MS = 20 };

struct net_meeting {
    int connection;
    uint32_t calls;
    bool heard; /* the listener has answered */
    net_address_t address;
    wire_hello_t hello;
};

/* Waits for the whole limit: the kernel repeats a lost connection request after 1 s, 3 s and so on. */
static int connect_within(const net_address_t *address, const net_limit_t *limit, int *connection)
{
    int made = -1;
    int error = wire_connect_begin(address, &made);
    if (error)
        return error;
    struct pollfd one = {.fd = made, .events = POLLOUT};
    while (!error && poll(&one, 1, WIRE_NAP_MS) <= 0)
        error = wire_check(limit);
    if (!error)
        error = wire_connected(made);
    if (error) {
        wire_close(made);
        return error == -ETIMEDOUT ? -EHOSTUNREACH : error;
    }
    *connection = made;
    return 0;
}

static int call(net_meeting_t *meeting, const net_limit_t *limit)
{
    wire_close(meeting->connection);
    meeting->connection = -1;
    meeting->calls++;
    int error = connect_within(&meeting->address, limit, &meeting->connection);
    return error ? error : wire_write(meeting->connection, &meeting->hello, sizeof(meeting->hello), limit);
}

int net_meeting_join(const net_invitation_t *invitation, const net_key_t *group, uint32_t rank, uint32_t nranks,
                     uint32_t rounds, const net_limit_t *limit, net_meeting_t **meeting)
{
    if (rank >= nranks || nranks > NET_NETWORK_RANKS)
        return -EINVAL;
    net_meeting_t *joined = calloc(1, sizeof(*joined));
    if (!joined)
        return -ENOMEM;
    joined->connection = -1;
    joined->address = invitation->address;
    joined->hello = (wire_hello_t){.magic = WIRE_MAGIC,
                                   .secret = {invitation->secret[0], invitation->secret[1]},
                                   .group = *group,
                                   .rank = rank,
                                   .nranks = nranks,
                                   .rounds = rounds};
    int error = call(joined, limit);
    if (error) {
        net_meeting_leave(joined);
        return error;
    }
    *meeting = joined;
    return 0;
}

static int exchange(net_meeting_t *meeting, const void *record, uint32_t bytes, void *records, const net_limit_t *limit)
{
    const meeting_head_t own = {.bytes = bytes};
    meeting_head_t answer;
    int error = wire_write(meeting->connection, &own, sizeof(own), limit);
    if (!error)
        error = wire_write(meeting->connection, record, bytes, limit);
    if (error == -ECANCELED || error == -ETIMEDOUT)
        return error;
    /* A listener may refuse before it has read everything; its answer has the reason. */
    error = wire_read(meeting->connection, &answer, sizeof(answer), limit);
    if (error)
        return error;
    meeting->heard = true;
    if (answer.error)
        return answer.error < 4096 ? -(int)answer.error : -EPROTO;
    return answer.bytes == bytes ? wire_read(meeting->connection, records, (size_t)meeting->hello.nranks * bytes, limit)
                                 : -EPROTO;
}

int net_meeting_exchange(net_meeting_t *meeting, const void *record, uint32_t bytes, void *records,
                         const net_limit_t *limit)
{
    if (bytes > NET_ROUND_BYTES)
        return -EMSGSIZE;
    int error = exchange(meeting, record, bytes, records, limit);
    while (error == -ECONNRESET && !meeting->heard && meeting->calls < MOST_CALLS) {
        poll(NULL, 0, AGAIN_MS);
        const int failed = call(meeting, limit);
        if (failed)
            return failed == -ECANCELED ? failed : error;
        error = exchange(meeting, record, bytes, records, limit);
    }
    return error;
}

void net_meeting_leave(net_meeting_t *meeting)
{
    if (!meeting)
        return;
    wire_close(meeting->connection);
    free(meeting);
}
