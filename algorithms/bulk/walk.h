/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - the chunks of a call: their blocks, their slots in staging, and all words that ranks and roles share.
 *
 * All ranks have the same chunks; only the block that serves a chunk may differ. A block takes a chunk when a stage is
 * free, since multiprocessors share the link unequally (docs/lab/beside.md).
 *
 * A word has one writer, a role (roles.h); only TAKEN is written by all listers. A block's words count chunks in the
 * order of its list.
 *
 *   TAKEN           per rank: chunks taken, blocks finished
 *   ENTRY           per ordered pair of ranks: the writer is in this call
 *   CREDIT          per pair and slot: the chunk may be stored
 *   DATA            per pair and slot: the chunk has arrived
 *   BULK_LIST...    per block: chunks' numbers, then BULK_NONE
 *   BULK_LISTED     chunks in the list
 *   BULK_CREDITED   chunks with CREDIT from all peers
 *   BULK_SENT       pieces complete at their destination
 *   BULK_ANNOUNCED  chunks with DATA raised at all peers
 *   BULK_ARRIVED    chunks with DATA from all peers
 *   BULK_KEPT       chunks that the keeper is done with
 *
 * Writers release, readers acquire; TAKEN is atomic and guards no data. Bulk copies need bulk_done and bulk_seen, too
 * (docs/lab/proofs.md). */
#ifndef SHUNT_BULK_WALK_H
#define SHUNT_BULK_WALK_H

#include "algorithms/device/bulk.h"
#include "algorithms/device/epoch.h"
#include "algorithms/device/kernel_call.h"
#include "algorithms/device/peers.h"

/* Sizes:
 *   BULK_CHUNK       bytes of a slot and of the longest chunk between two ranks (more: bulk_parts)
 *   BULK_STAGE       bytes of a stage: a chunk may begin inside a granule (roles.h)
 *   BULK_SHARE       about the fewest chunks of a buffer, unless shorter than BULK_SHORT bytes
 *   BULK_BATCH       vectors that a thread reads at once
 *   BULK_TURNS       groups of BULK_WARPS warps, which take chunks in turn
 *   BULK_DEPTH       stages of a ring (sums: BULK_ADD_DEPTH)
 *   BULK_MOST_SLOTS  most slots of a ring: many, as one slow block holds up the ring (docs/lab/beside.md)
 *   BULK_PLACES      entries of a block's list: most chunks in flight
 *   BULK_PATIENCE    polls of ENTRY by a spare block: some 1 ms */
enum {
#ifdef __CUDACC__
    BULK_CHUNK = 16 << 10,
    BULK_SHORT = 2 << 10,
    BULK_BATCH = 4,
    BULK_WARPS = 4,
    BULK_TURNS = 2,
    BULK_DEPTH = 6,
    BULK_ADD_DEPTH = 4,
    BULK_MOST_SLOTS = 1000,
    BULK_MOST_CHUNKS = 60000,
    BULK_PLACES = 20,
    BULK_SHARE = 128,
    BULK_PATIENCE = 1000,
#else
    BULK_CHUNK = BULK_CPU_STAGE,
    BULK_SHORT = 128,
    BULK_BATCH = 2,
    BULK_WARPS = 1,
    BULK_TURNS = 1,
    BULK_DEPTH = BULK_CPU_DEPTH,
    BULK_ADD_DEPTH = BULK_CPU_DEPTH,
    BULK_MOST_SLOTS = 5,
    BULK_MOST_CHUNKS = 512,
    BULK_PLACES = 7,
    BULK_SHARE = 8,
    BULK_PATIENCE = 3,
#endif
    BULK_LINE = 128, /* chunks begin at multiples of it */
    BULK_STAGE = BULK_CHUNK + BULK_LINE
};
static_assert(BULK_MOST_CHUNKS < EPOCH_UNIT, "flags run into the next call's");

/* The flags of staged.cu, with slots as channels: scatter's are CREDIT (the last one ENTRY), gather's are DATA. */
enum { BULK_CREDIT = 0, BULK_DATA = 1 };
static const uint32_t BULK_ENTRY = ALG_STAGED_CHANNELS - 1;
static_assert((uint32_t)BULK_MOST_SLOTS <= BULK_ENTRY, "a slot without flags");

/* Slots and outgoing stages are cut into this many parts: a sum's incoming stage holds a chunk of every rank. */
LANE_HOST_FN uint32_t bulk_parts(uint32_t nranks)
{
    return nranks <= 2 ? 1 : nranks <= 4 ? 2 : BULK_MOST_PARTS;
}
static_assert((int)BULK_LINE / (int)BULK_MOST_PARTS >= 2 * (int)VEC,
              "no room around a chunk that begins in the midst of a granule");

typedef struct bulk_plan {
    uint64_t bytes; /* of one rank's data; the most, if ranks differ */
    uint32_t chunk; /* bytes; the last one may be shorter */
    uint32_t slot;  /* bytes of a slot */
    uint32_t chunks, slots;
} bulk_plan_t;

LANE_FN bulk_plan_t bulk_plan(const alg_team_t &team, uint64_t bytes, uint32_t slot)
{
    bulk_plan_t p;
    p.bytes = bytes;
    p.slot = slot;
    const uint64_t share = (bytes / BULK_SHARE + BULK_LINE - 1) / BULK_LINE * BULK_LINE;
    p.chunk = slot;
    if (share < p.chunk)
        p.chunk = share > BULK_SHORT ? (uint32_t)share : (uint32_t)BULK_SHORT;
    p.chunks = (uint32_t)((bytes + p.chunk - 1) / p.chunk);
    const uint64_t room = team.staging_bytes / 2 / ((team.nranks - 1) * (uint64_t)slot);
    p.slots = room < BULK_MOST_SLOTS ? (uint32_t)room : (uint32_t)BULK_MOST_SLOTS;
    return p;
}

enum { BULK_LISTED, BULK_CREDITED, BULK_SENT, BULK_ANNOUNCED, BULK_ARRIVED, BULK_KEPT, BULK_LIST };
static_assert((int)BULK_LIST + (int)BULK_PLACES <= (int)BULK_WORDS, "the list is longer than the block's words");
/* Marks the list's end, once for each group of warps. */
static const uint32_t BULK_NONE = UINT32_MAX;

/* A block's chunks, the n-th in entry n % BULK_PLACES, and its roles' progress. */
typedef struct bulk_list {
    bulk_word_t words;

    LANE_FN uint32_t told(uint32_t word) const
    {
        return bulk_told(bulk_word(words, word));
    }

    LANE_FN void tell(uint32_t word, uint32_t value) const
    {
        bulk_tell(bulk_word(words, word), value);
    }

    /* Number in the call of the block's chunk n. Needs n < told(BULK_LISTED). */
    LANE_FN uint32_t chunk(uint32_t n) const
    {
        return told(BULK_LIST + n % BULK_PLACES);
    }

    LANE_FN bool ends_at(uint32_t n) const
    {
        return chunk(n) == BULK_NONE;
    }

    /* Whether the list has room for chunk n or BULK_TURNS end marks (BULK_NONE). Herald and keeper read an entry
     * last. */
    LANE_FN bool has_place(uint32_t n) const
    {
        const uint32_t announced = told(BULK_ANNOUNCED), kept = told(BULK_KEPT);
        const uint32_t done = announced < kept ? announced : kept;
        return n + BULK_TURNS - done <= BULK_PLACES;
    }

    /* Needs has_place(n). */
    LANE_FN void add(uint32_t &n, uint32_t chunk) const
    {
        tell(BULK_LIST + n % BULK_PLACES, chunk);
        tell(BULK_LISTED, ++n);
    }
} bulk_list_t;

/* Constants that a block's roles share. */
typedef struct bulk_job {
    alg_team_t const *team;
    bulk_plan_t plan;
    const bulk_ring_t *out, *in; /* stages to peers, from peers */
    bulk_list_t list;
    const uint8_t *input;
    const uint8_t *own; /* bulk_add.cu: this rank's summand */
    uint8_t *output;
    uint64_t in_step, out_step, base;
    uint32_t full; /* ranks with plan.bytes of data; rank `full` has `rest` bytes, later ranks none */
    uint64_t rest;
    uint32_t unit;   /* bytes of an outgoing stage; bulk_add.cu: of each chunk in an incoming one */
    uint32_t pieces; /* outgoing stages of a chunk: one per destination, or one */
    bool keep;       /* this rank's block must be copied to its output */

    LANE_FN uint64_t at(uint32_t chunk) const
    {
        return (uint64_t)chunk * plan.chunk;
    }

    LANE_FN uint64_t data_bytes(uint32_t rank) const
    {
        return rank < full ? plan.bytes : rank == full ? rest : 0;
    }

    LANE_FN uint32_t bytes(uint32_t chunk, uint32_t rank) const
    {
        const uint64_t data = data_bytes(rank), begin = at(chunk), left = begin < data ? data - begin : 0;
        return left < plan.chunk ? (uint32_t)left : plan.chunk;
    }

    LANE_FN uint32_t slot_bytes(uint32_t chunk, uint32_t rank) const
    {
        return (bytes(chunk, rank) + VEC - 1) / VEC * VEC;
    }
} bulk_job_t;

LANE_FN bulk_job_t bulk_job(const alg_team_t &team, const kernel_call_t &call, uint64_t bytes, uint32_t slot,
                            bulk_block_t &block)
{
    bulk_job_t j = {};
    j.team = &team;
    j.plan = bulk_plan(team, bytes, slot);
    j.rest = call.all_bytes;
    for (j.full = 0; j.full < team.nranks && j.rest >= bytes; j.full++)
        j.rest = j.rest > call.stride ? j.rest - call.stride : 0;
    j.unit = block.ring[0].bytes;
    j.out = &block.ring[0];
    j.in = &block.ring[1];
    j.list.words = block.word;
    j.input = (const uint8_t *)call.input;
    j.output = (uint8_t *)call.output;
    return j;
}

struct walk {
    uint32_t n;     /* next chunk's number in the block */
    uint32_t known; /* chunks listed, as last read */
    uint32_t chunk; /* next chunk's number in the call, from `look` */

    LANE_FN bulk_step_t look(const bulk_job_t &j)
    {
        if (n >= known)
            known = j.list.told(BULK_LISTED);
        if (n >= known)
            return BULK_IDLE;
        chunk = j.list.chunk(n);
        return chunk == BULK_NONE ? BULK_ENDED : BULK_MOVED;
    }

    /* Warp-wide. */
    LANE_FN bulk_step_t look_together(const bulk_job_t &j)
    {
        const bulk_step_t found = look(j);
        return lane_warp_any(found == BULK_IDLE) ? BULK_IDLE : found;
    }
};

/* A finished block adds this to TAKEN; the bits below count attempts to take a chunk. TAKEN is 0 between calls. */
static const uint64_t BULK_FINISHED = (uint64_t)1 << 32;

LANE_FN uint64_t *bulk_taken(const alg_team_t &team)
{
    return (uint64_t *)(team.own + ALG_TAKEN_OFFSET);
}

/* The next chunk's number; plan.chunks or more: none is left. */
LANE_FN uint32_t bulk_take(const alg_team_t &team)
{
    return (uint32_t)lane_take_own(bulk_taken(team), 1);
}

/* Each block calls it once, after its last bulk_take. */
LANE_FN void bulk_finish(const alg_team_t &team, uint32_t blocks)
{
    if (lane_take_own(bulk_taken(team), BULK_FINISHED) / BULK_FINISHED == blocks - 1)
        lane_write_own(bulk_taken(team), 0);
}

LANE_FN uint8_t *bulk_flag(const alg_team_t &team, uint32_t at, int kind, uint32_t slot, uint32_t from)
{
    return team.scratch[at] + team.flags_offset +
           (((uint64_t)kind * ALG_STAGED_CHANNELS + slot) * ALG_MAX_RANKS + from) * 8;
}

LANE_FN uint32_t bulk_slot_of(const bulk_job_t &j, uint32_t chunk)
{
    return chunk % j.plan.slots;
}

LANE_FN uint8_t *bulk_slot(const bulk_job_t &j, uint32_t at, uint32_t from, uint32_t chunk)
{
    const alg_team_t &team = *j.team;
    const uint64_t slot = (uint64_t)other_place(from, at) * j.plan.slots + bulk_slot_of(j, chunk);
    return team.scratch[at] + team.staging_offset + team.staging_bytes / 2 + slot * j.plan.slot;
}

LANE_FN void bulk_raise(const bulk_job_t &j, uint32_t peer, int kind, uint32_t chunk)
{
    lane_raise(bulk_flag(*j.team, peer, kind, bulk_slot_of(j, chunk), j.team->rank), j.base + chunk + 1);
}

LANE_FN void bulk_raise_entry(const bulk_job_t &j, uint32_t peer)
{
    lane_raise(bulk_flag(*j.team, peer, BULK_CREDIT, BULK_ENTRY, j.team->rank), j.base + 1);
}

/* Whether every peer has raised the chunk's flag (ENTRY in CREDIT's first round). A flag of the next call is accepted:
 * its writer has ended this call. */
template <int N> LANE_FN bool bulk_reached(const bulk_job_t &j, int kind, uint32_t chunk)
{
    const bool entry = kind == BULK_CREDIT && chunk < j.plan.slots;
    const uint32_t slot = entry ? BULK_ENTRY : bulk_slot_of(j, chunk);
    const uint64_t wanted = j.base + (entry ? 0 : chunk) + 1;
    bool all = true;
    LANE_UNROLL
    for (uint32_t i = 1; i < N; i++) {
        if (i >= j.team->nranks)
            continue;
        const uint64_t ahead = lane_flag(bulk_flag(*j.team, j.team->rank, kind, slot, ring_next(*j.team, i))) - wanted;
        all = all && ahead < 2 * EPOCH_UNIT;
    }
    return all;
}

#endif
