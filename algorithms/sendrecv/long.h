/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long.h - messages that bulk copies carry: their chunks, slots and flags, and what the roles of a block know of them
 * (long_roles.h).
 *
 * A message is cut into chunks. Chunks of an ordered pair of ranks are numbered from the scratch's first launch on,
 * message after message, so both ends agree on a chunk's number whatever else their groups hold. Chunk c lies in slot c
 * modulo their number, in the receiver's scratch behind the rings. A slot has two flags, each the number of a chunk,
 * and -1 at the start:
 *   LONG_DATA    the last chunk that has arrived; in the receiver's scratch
 *   LONG_CREDIT  the last chunk that has left the slot; in the sender's scratch
 * Both persist, so a launch begins where the last one ended, and a sender ends without its receiver as long as there
 * are slots.
 */
#ifndef SHUNT_LONG_H
#define SHUNT_LONG_H

#include "algorithms/bulk/plain.h"
#include "algorithms/sendrecv/messages.h"

/* LONG_HELD: chunks of one direction that a block has taken and that may not move yet; at least two for each peer.
 * LONG_PLACES: of a block's list of a direction. LONG_LANE_HELD: the most of a lane. LONG_MOST_SLOTS: of an ordered
 * pair. */
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
    LONG_OUT = MESSAGES_SEND, /* and to this rank itself */
    LONG_IN = MESSAGES_RECEIVE
};
static_assert(BULK_DEPTH + 2 * BULK_TURNS - 1 < LONG_PLACES, "no place for what plain.h's keeper has yet to tell");

/* Words of this rank (alg_team_t.own_counts), from ALG_LONG_OFFSET on. Of each list (messages.h): chunks of this launch
 * that blocks have taken, 0 between launches; chunks of all launches before. Of the launch: ends of both directions'
 * gates. */
enum { LONG_TAKEN = ALG_LONG_OFFSET, LONG_LINE = 128, LONG_ENDED = LONG_TAKEN + MESSAGES_LISTS * LONG_LINE };
enum { LONG_COUNT = LONG_ENDED + LONG_LINE };
static_assert((int)LONG_COUNT + 8 * (int)MESSAGES_LISTS <= (int)ALG_COUNTS_BYTES, "words leave their page");

/* Words of a block (bulk_word), of each direction: chunks that are listed, that no role needs in the list any more, and
 * (LONG_OUT) that are complete at the peer; the list. Then of each list the number of its launch's first chunk, in two
 * words. */
enum { LONG_LISTED, LONG_DONE, LONG_SENT, LONG_LIST, LONG_WORDS = LONG_LIST + LONG_PLACES, LONG_BASE = 2 * LONG_WORDS };
static_assert((int)LONG_BASE + 2 * (int)MESSAGES_LISTS <= (int)BULK_WORDS, "more words than a block has");

enum { LONG_DATA = 0, LONG_CREDIT = 1 };

/* Slots of an ordered pair of ranks, behind the rings: their offset, and their number. */
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

/* A kernel's argument, with bulk copies. */
template <int MOST> struct long_messages : messages<MOST> {
    uint16_t long_end[MESSAGES_LISTS]; /* as message_end; the first one begins behind all of those */
    uint32_t chunks[MESSAGES_LISTS];
    uint32_t slots;
    uint32_t blocks; /* that have roles */
    uint32_t depth;  /* stages of each of a block's rings */
    uint32_t kept;   /* where a block keeps the progress of short messages, from its memory's begin on */
};

LANE_HOST_FN uint64_t long_chunks(uint64_t bytes)
{
    return (bytes + BULK_CHUNK - 1) / BULK_CHUNK;
}

/* In a block's list: a chunk of this launch, and the peer. */
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
    uint8_t *buffer, *other; /* other: to this rank itself, where the message goes */
    uint64_t all, at;        /* bytes of the message, and of it before the chunk */
    uint32_t bytes;
} long_piece_t;

template <int DIRECTION, int MOST> struct long_walk {
    const long_job<MOST> &j;
    uint32_t n, known;                 /* the next of the block's chunks; those listed, as far as this has seen */
    uint32_t peer, chunk;              /* of the next, when `look` has found it */
    uint32_t of, message, first, next; /* the last peer; its last message, that one's first chunk, and the one behind */

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

    /* By all lanes of a warp. */
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
        if (peer != of || chunk < first) {
            of = peer;
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
