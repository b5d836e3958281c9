/* SPDX-License-Identifier: Apache-2.0 */
/* messages.h - the messages of one launch, and the rings that carry them.
 *
 * Each ordered pair of ranks has channels, each with a ring in the receiver's scratch: `rows` rows of one vector per
 * lane, then an escape word per vector (mark.h). The map and the number of ranks determine the layout, so both ends
 * agree. Four counts of rows, which only grow, describe a ring (ring.h). "own": in alg_team_t.own_counts.
 *   count           writer    reader    where             rows
 *   COUNT_SENT      sender    sender    own               sent
 *   COUNT_SEEN      sender    sender    own               of COUNT_CREDIT, when last read
 *   COUNT_RECEIVED  receiver  receiver  own               received
 *   COUNT_CREDIT    receiver  sender    sender's scratch  re-armed
 * Kernel boundaries order all but COUNT_CREDIT, which is raised by release and read by acquire. */
#ifndef SHUNT_MESSAGES_H
#define SHUNT_MESSAGES_H

#include "algorithms/device/mark.h"

enum { COUNT_SENT = 0, COUNT_RECEIVED = 1, COUNT_CREDIT = 2, COUNT_SEEN = 3 };
enum { MESSAGES_SEND = 0, MESSAGES_RECEIVE = 1 };

/* Byte offset of the counts of `kind` and `peer`. */
LANE_FN uint64_t count_place(uint32_t kind, uint32_t peer)
{
    return (uint64_t)(kind * ALG_MAX_RANKS + peer) * ALG_PAIR_CHANNELS * 8;
}

typedef struct rings {
    uint32_t channels; /* of an ordered pair */
    uint32_t rows;     /* of a ring: a power of two */
} rings_t;

/* The list of a large group takes 1 / RINGS_PER_LIST of the rings' bytes. */
enum { RINGS_LEAST_ROWS = 8, RINGS_MOST_ROWS = 64, RINGS_PER_LIST = 64 };

LANE_HOST_FN uint64_t ring_bytes(uint32_t rows, uint32_t lanes)
{
    return (uint64_t)rows * lanes * (VEC + 4);
}

LANE_HOST_FN uint64_t rings_bytes(const rings_t &r, uint32_t nranks, uint32_t lanes)
{
    return ring_bytes(r.rows, lanes) * r.channels * (nranks - 1);
}

/* bytes: at least 64 KiB (alg_map_init), enough for a channel. */
static inline rings_t rings_make(uint64_t bytes, uint32_t nranks, uint32_t lanes)
{
    rings_t r;
    /* A link needs some 500 warps a direction (docs/lab/proofs.md). The CPU device has few cores. */
    r.channels = lanes == 1 ? 4 : nranks <= 4 ? (uint32_t)ALG_PAIR_CHANNELS : (uint32_t)ALG_PAIR_CHANNELS / 2;
    r.rows = RINGS_MOST_ROWS;
    bytes -= bytes / RINGS_PER_LIST;
    while (rings_bytes(r, nranks, lanes) > bytes) {
        if (r.rows > RINGS_LEAST_ROWS)
            r.rows /= 2;
        else
            r.channels /= 2;
    }
    return r;
}

LANE_HOST_FN uint32_t rings_channels(const rings_t &r, uint64_t rows)
{
    return rows < r.channels ? (uint32_t)rows : r.channels;
}

LANE_HOST_FN uint64_t message_rows(uint64_t bytes, uint32_t lanes)
{
    return (bytes + (uint64_t)lanes * VEC - 1) / (lanes * VEC);
}

typedef struct message {
    uint8_t *buffer;
    uint64_t bytes;
} message_t;

/* List 2p has the messages to rank p, list 2p+1 those from p. A list's items are the channels that its messages use. If
 * p is this rank, list 2p is copied to the buffers of list 2p+1, which has no items. */
enum { MESSAGES_LISTS = 2 * ALG_MAX_RANKS };

struct messages_head {
    rings_t rings;
    uint32_t early;
    uint32_t shared_self; /* all warps share the message to this rank itself (alone.h) */
    uint16_t message_end[MESSAGES_LISTS];
    uint16_t item_end[MESSAGES_LISTS];
};

/* Up to MOST messages in a kernel's arguments. With MESSAGES_LISTED the messages are in device memory. */
template <int MOST> struct messages : messages_head {
    message_t message[MOST];
};

enum { MESSAGES_LISTED = 0 };
template <> struct messages<MESSAGES_LISTED> : messages_head {
    const message_t *message;
};

/* Most messages of the list in device memory. One list suffices, since launches on a scratch run one after another. */
LANE_HOST_FN uint32_t messages_room(uint64_t rings_bytes)
{
    const uint64_t room = rings_bytes / RINGS_PER_LIST / sizeof(message_t);
    return room < UINT16_MAX ? (uint32_t)room : UINT16_MAX;
}

LANE_HOST_FN message_t *messages_list(const alg_team_t &team)
{
    return (message_t *)(team.scratch[team.rank] + team.rings_offset + team.rings_bytes) -
           messages_room(team.rings_bytes);
}

#endif
