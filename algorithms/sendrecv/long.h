/* SPDX-License-Identifier: Apache-2.0 */
/* long.h - chunks, slots and flags of messages that bulk copies carry (roles: long_roles.h).
 *
 * An ordered pair of ranks numbers its chunks from the scratch's first launch on, so both ends agree. Chunk c uses slot
 * c modulo the number of slots, in the receiver's scratch behind the rings. While slots are free, a sender waits for
 * nobody. A slot has two flags, which persist between launches. Each holds a chunk's number, at first -1:
 *   LONG_DATA    the last chunk that has arrived; in the receiver's scratch
 *   LONG_CREDIT  the last chunk that has left the slot; in the sender's scratch */
#ifndef SHUNT_LONG_H
#define SHUNT_LONG_H

#include "algorithms/bulk/plain.h"
#include "algorithms/sendrecv/messages.h"

/* LONG_HELD: chunks that a gate (long_roles.h) holds until they may move, at least two per peer with chunks;
 * LONG_LANE_HELD: most of one lane. LONG_PLACES: entries of a gate's list. LONG_MOST_SLOTS: slots of a pair. */
enum {
#ifdef __CUDACC__
    LONG_HELD = 8,
    LONG_PLACES = 16,
    LONG_LANE_HELD = 1,
    LONG_MOST_SLOTS = 1000,
#else
    LONG_HELD = 3,
    LONG_PLACES = BULK_PLACES,
    LONG_LANE_HELD = 2 * ALG_MAX_RANKS,
    LONG_MOST_SLOTS = BULK_MOST_SLOTS,
#endif
    LONG_OUT = MESSAGES_SEND, /* includes messages to this rank itself */
    LONG_IN = MESSAGES_RECEIVE
};
static_assert(BULK_DEPTH + 2 * BULK_TURNS - 1 < LONG_PLACES, "LONG_PLACES is too small for plain.h's keeper");

/* Words in alg_team_t.own_counts. Per list (messages.h): LONG_TAKEN counts the chunks of this launch that gates have
 * taken, and is 0 between launches; LONG_COUNT counts the chunks of all earlier launches. LONG_ENDED counts the gates
 * of this launch that have ended. */
enum { LONG_TAKEN = ALG_LONG_OFFSET, LONG_LINE = 128, LONG_ENDED = LONG_TAKEN + MESSAGES_LISTS * LONG_LINE };
enum { LONG_COUNT = LONG_ENDED + LONG_LINE };
static_assert((int)LONG_COUNT + 8 * (int)MESSAGES_LISTS <= (int)ALG_COUNTS_BYTES,
              "LONG_ words do not fit ALG_COUNTS_BYTES");

/* A block's words (bulk_word). Each direction has LONG_LISTED (chunks listed), LONG_DONE (chunks whose list entry is
 * free again), LONG_SENT (LONG_OUT only: chunks complete at the peer) and the list. Then two words per message list
 * have the number of the launch's first chunk. */
enum { LONG_LISTED, LONG_DONE, LONG_SENT, LONG_LIST, LONG_WORDS = LONG_LIST + LONG_PLACES, LONG_BASE = 2 * LONG_WORDS };
static_assert((int)LONG_BASE + 2 * (int)MESSAGES_LISTS <= (int)BULK_WORDS, "more words than a block has");

enum { LONG_DATA = 0, LONG_CREDIT = 1 };

/* Offset of the slots from the rings, in bytes. */
LANE_HOST_FN uint64_t long_offset(const rings_t &r, uint32_t nranks, uint32_t lanes)
{
    return (rings_bytes(r, nranks, lanes) + LONG_LINE - 1) / LONG_LINE * LONG_LINE;
}

static inline uint32_t long_slots(uint64_t bytes, const rings_t &r, uint32_t nranks, uint32_t lanes, uint32_t slot)
{
    const uint64_t used = long_offset(r, nranks, lanes) + bytes / RINGS_PER_LIST;
    const uint64_t room = bytes > used ? (bytes - used) / ((nranks - 1) * ((uint64_t)slot + 2 * 8)) : 0;
    return room < LONG_MOST_SLOTS ? (uint32_t)room : (uint32_t)LONG_MOST_SLOTS;
}

template <int MOST> struct long_messages : messages<MOST> {
    /* message_end of the bulk messages, which follow the ring messages. */
    uint16_t long_end[MESSAGES_LISTS];
    uint32_t chunks[MESSAGES_LISTS];
    uint32_t slots;
    uint32_t blocks; /* those that serve bulk messages */
    uint32_t depth;
    uint32_t kept; /* offset in shared memory of the ring messages' progress_t */
};

LANE_HOST_FN uint64_t long_chunks(uint64_t bytes)
{
    return (bytes + BULK_CHUNK - 1) / BULK_CHUNK;
}

enum { LONG_CHUNK_BITS = 29 };

LANE_FN uint32_t long_entry(uint32_t peer, uint32_t chunk)
{
    return peer << LONG_CHUNK_BITS | chunk;
}

LANE_FN uint32_t long_entry_peer(uint32_t entry)
{
    return entry >> LONG_CHUNK_BITS;
}

LANE_FN uint32_t long_entry_chunk(uint32_t entry)
{
    return entry % (1u << LONG_CHUNK_BITS);
}

template <int MOST> struct long_job {
    const alg_team_t &team;
    const long_messages<MOST> &m;
    const bulk_ring_t *out, *in;
    bulk_word_t words;

    LANE_FN uint32_t told(int direction, uint32_t word) const
    {
        return bulk_told(bulk_word(words, direction * LONG_WORDS + word));
    }

    LANE_FN void tell(int direction, uint32_t word, uint32_t value) const
    {
        bulk_tell(bulk_word(words, direction * LONG_WORDS + word), value);
    }

    LANE_FN uint64_t *own(uint32_t at) const
    {
        return (uint64_t *)(team.own_counts + at);
    }

    LANE_FN uint64_t number(int direction, uint32_t peer, uint32_t chunk) const
    {
        const bulk_word_t base = bulk_word(words, LONG_BASE + 2 * (2 * peer + direction));
        return ((uint64_t)bulk_told(bulk_word(base, 1)) << 32 | bulk_told(base)) + chunk;
    }

    LANE_FN uint8_t *area(uint32_t at) const
    {
        return team.scratch[at] + team.rings_offset + long_offset(m.rings, team.nranks, lane_warp_size());
    }

    LANE_FN uint8_t *slot(uint32_t at, uint32_t from, uint64_t number) const
    {
        return area(at) + ((uint64_t)other_place(from, at) * m.slots + number % m.slots) * BULK_CHUNK;
    }

    LANE_FN uint8_t *flag(int kind, uint32_t at, uint32_t from, uint64_t number) const
    {
        const uint64_t others = team.nranks - 1;
        return area(at) + others * m.slots * BULK_CHUNK +
               ((kind * others + other_place(from, at)) * m.slots + number % m.slots) * 8;
    }

    LANE_FN bool may_move(int direction, uint32_t peer, uint64_t number) const
    {
        if (peer == team.rank)
            return true;
        const int kind = direction == LONG_OUT ? LONG_CREDIT : LONG_DATA;
        const uint64_t ahead = lane_flag(flag(kind, team.rank, peer, number)) - number;
        return (int64_t)(direction == LONG_OUT ? ahead + m.slots : ahead) >= 0;
    }
};

typedef struct long_piece {
    uint8_t *buffer, *other; /* other: where a message to this rank itself goes */
    uint64_t all, at;        /* bytes of the message; bytes before the chunk */
    uint32_t bytes;
} long_piece_t;

template <int DIRECTION, int MOST> struct long_walk {
    const long_job<MOST> &j;
    uint32_t n, known;    /* next chunk; chunks listed, when last read */
    uint32_t peer, chunk; /* of the next chunk; set by `look` */
    /* Of the last chunk: peer, message, the message's first chunk and the next message's. */
    uint32_t last_peer, message, first, next;

    LANE_FN static long_walk make(const long_job<MOST> &j)
    {
        return {j, 0, 0, 0, 0, ALG_MAX_RANKS, 0, 0, 0};
    }

    LANE_FN bulk_step_t look()
    {
        if (n >= known) {
            known = j.told(DIRECTION, LONG_LISTED);
            bulk_seen();
        }
        if (n >= known)
            return BULK_IDLE;
        const uint32_t entry = j.told(DIRECTION, LONG_LIST + n % LONG_PLACES);
        peer = long_entry_peer(entry);
        chunk = long_entry_chunk(entry);
        return entry == BULK_NONE ? BULK_ENDED : BULK_MOVED;
    }

    LANE_FN bulk_step_t look_together()
    {
        const bulk_step_t found = look();
        return lane_warp_any(found == BULK_IDLE) ? BULK_IDLE : found;
    }

    LANE_FN uint32_t list() const
    {
        return 2 * peer + DIRECTION;
    }

    LANE_FN uint32_t begin(uint32_t l) const
    {
        return l > 0 ? j.m.long_end[l - 1] : j.m.message_end[MESSAGES_LISTS - 1];
    }

    LANE_FN uint64_t number() const
    {
        return j.number(DIRECTION, peer, chunk);
    }

    LANE_FN long_piece_t piece()
    {
        if (peer != last_peer || chunk < first) {
            last_peer = peer;
            message = begin(list());
            first = 0;
            next = (uint32_t)long_chunks(j.m.message[message].bytes);
        }
        while (chunk >= next) {
            first = next;
            next += (uint32_t)long_chunks(j.m.message[++message].bytes);
        }
        const message_t &one = j.m.message[message];
        long_piece_t p;
        p.buffer = one.buffer;
        p.other = peer == j.team.rank ? j.m.message[message + j.m.long_end[list()] - begin(list())].buffer : NULL;
        p.all = one.bytes;
        p.at = (uint64_t)(chunk - first) * BULK_CHUNK;
        p.bytes = p.all - p.at < BULK_CHUNK ? (uint32_t)(p.all - p.at) : (uint32_t)BULK_CHUNK;
        return p;
    }
};

LANE_FN uint32_t long_slot_bytes(const long_piece_t &p)
{
    return (p.bytes + VEC - 1) / VEC * VEC;
}

#endif
