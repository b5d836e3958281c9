/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.h - which chunk goes when through which slot (bulk_move.cu), and the flags
 * that say so. All is derived from the call and the number of ranks, alike on both
 * ends; nothing is kept between two calls but the flags.
 */
#ifndef SHUNT_BULK_WALK_H
#define SHUNT_BULK_WALK_H

#include "algorithms/device/bulk.h"
#include "algorithms/device/epoch.h"

/* A chunk is as large as a stage or a slot, but for VEC bytes: chunks of any alignment travel with the bytes around
 * them up to whole vectors. */
typedef struct bulk_size {
    uint32_t chunk, out, in; /* bytes; stages on the way to the peers, and from them */
} bulk_size_t;

#ifdef __CUDACC__
LANE_HOST_FN constexpr bulk_size_t bulk_size(uint32_t nranks)
{
    return nranks == 2 ? bulk_size_t{16 << 10, 3, 3} : nranks <= 4 ? bulk_size_t{8 << 10, 4, 8} : bulk_size_t{4 << 10, 10, 14};
}
enum { BULK_KEEPERS = 8, BULK_MOST_SLOTS = 16 };
#else
LANE_HOST_FN constexpr bulk_size_t bulk_size(uint32_t)
{
    return bulk_size_t{BULK_HOST_STAGE - VEC, 4, BULK_HOST_DEPTH};
}
enum { BULK_KEEPERS = 1, BULK_MOST_SLOTS = 3 };
#endif
/* LAG: copies of the sender that may be under way. More slots than that: so many of the last chunks are not yet told,
 * and senders without credit would wait for each other in a circle. */
enum {
    BULK_LAG = 1,
    BULK_LEAST_SLOTS = 3,
    BULK_MOST_CHANNELS = 64,
    BULK_MOST_CHUNKS = 4000, /* of a channel in a kernel: 16 times as many are less than EPOCH_UNIT */
    BULK_LINE = 128          /* chunks begin at a multiple of it */
};

/* The flags are staged's. A rank that is in the next call, a staged one, may have raised scatter flags; these count as
 * all credit, for it has ended this call. Gather flags, like rings, wait for the reader, so DATA is the sender's own. */
enum { BULK_CREDIT = 0, BULK_DATA = 1 };

typedef struct bulk_plan {
    uint64_t bytes, span; /* of a block; of a channel's part of it */
    uint32_t chunk, slot; /* bytes */
    uint32_t channels, slots;
} bulk_plan_t;

/* Bytes of a slot: a whole number of lines. */
LANE_HOST_FN uint32_t bulk_slot_bytes(uint32_t nranks)
{
    return bulk_size(nranks).chunk + BULK_LINE;
}

/* Bytes of the rings of `slots` slots. */
LANE_HOST_FN uint64_t bulk_rings(uint32_t nranks, uint32_t channels, uint32_t slots)
{
    return (uint64_t)(nranks - 1) * channels * slots * bulk_slot_bytes(nranks);
}

LANE_FN bulk_plan_t bulk_plan(const alg_team_t &team, uint64_t bytes, uint32_t channels)
{
    bulk_plan_t p;
    const uint32_t most = bulk_size(team.nranks).chunk;
    p.bytes = bytes;
    p.slot = bulk_slot_bytes(team.nranks);
    p.channels = channels;
    const uint64_t room = team.staging_bytes / 2 / bulk_rings(team.nranks, channels, 1);
    p.slots = room < BULK_MOST_SLOTS ? (uint32_t)room : (uint32_t)BULK_MOST_SLOTS;
    p.span = ((bytes + channels - 1) / channels + BULK_LINE - 1) / BULK_LINE * BULK_LINE;
    const uint64_t chunks = (p.span + most - 1) / most;
    p.chunk = (uint32_t)((p.span + chunks - 1) / chunks + BULK_LINE - 1) / BULK_LINE * BULK_LINE;
    return p;
}

/* A block's way through the chunks of its channels. */
struct walk {
    bulk_plan_t plan;
    uint32_t channel, stride;
    uint32_t chunk, slot;
    uint64_t at, end; /* bytes of a rank's block */

    LANE_FN static walk make(const bulk_plan_t &plan, const lane_t &lane)
    {
        walk w = {plan, lane.block, lane.blocks, 0, 0, 0, 0};
        w.begin();
        return w;
    }

    LANE_FN void begin()
    {
        chunk = slot = 0;
        at = channel * plan.span;
        end = at + plan.span < plan.bytes ? at + plan.span : plan.bytes;
    }

    /* Channels beyond the last byte have none. */
    LANE_FN bool done() const
    {
        return channel >= plan.channels || at >= plan.bytes;
    }

    LANE_FN uint32_t bytes() const
    {
        return end - at < plan.chunk ? (uint32_t)(end - at) : plan.chunk;
    }

    /* With the bytes around it, where its first one is at `place`. */
    LANE_FN uint32_t slot_bytes(uint32_t place) const
    {
        return (place + bytes() + VEC - 1) / VEC * VEC;
    }

    /* The chunk begins, or ends, the block. */
    LANE_FN bool begins() const
    {
        return at == 0;
    }

    LANE_FN bool ends() const
    {
        return end == plan.bytes && last();
    }

    /* Of the channel. */
    LANE_FN bool last() const
    {
        return end - at <= plan.chunk;
    }

    LANE_FN void next()
    {
        if (last()) {
            channel += stride;
            begin();
            return;
        }
        at += plan.chunk;
        chunk++;
        slot = slot + 1 < plan.slots ? slot + 1 : 0;
    }
};

LANE_FN uint8_t *bulk_flag(const alg_team_t &team, uint32_t at, int kind, uint32_t channel, uint32_t from)
{
    return team.scratch[at] + team.flags_offset +
           (((uint64_t)kind * ALG_STAGED_CHANNELS + channel) * ALG_MAX_RANKS + from) * 8;
}

LANE_FN uint8_t *bulk_slot(const alg_team_t &team, uint32_t at, uint32_t from, const walk &w)
{
    const uint64_t ring = (uint64_t)other_place(from, at) * w.plan.channels + w.channel;
    return team.scratch[at] + team.staging_offset + team.staging_bytes / 2 +
           (ring * w.plan.slots + w.slot) * w.plan.slot;
}

/* Flags number the chunks of all calls, and have room for the place of a chunk's first byte in its slot. */
enum { BULK_PLACES = VEC };

LANE_FN void bulk_raise(const alg_team_t &team, uint32_t peer, int kind, uint32_t channel, uint64_t base,
                        uint32_t chunks, uint32_t place)
{
    lane_raise(bulk_flag(team, peer, kind, channel, team.rank), base + chunks * BULK_PLACES + place);
}

/* What a role knows of the peers' flags: chunks that every one has reached, and their places, from that of
 * other_rank 0 on. */
template <int N> struct bulk_reach {
    uint32_t least, place[N - 1];
};

/* Whether every peer's count is beyond the chunk. A flag of an earlier call counts nothing. A peer that is in the next
 * call has ended this one. */
template <int N>
LANE_FN bool bulk_reached(const alg_team_t &team, int kind, const walk &w, uint64_t base, bulk_reach<N> &reach)
{
    if (reach.least > w.chunk)
        return true;
    reach.least = UINT32_MAX;
    LANE_UNROLL
    for (uint32_t j = 0; j < N - 1; j++) {
        if (j + 1 >= team.nranks)
            continue;
        const uint64_t flag = lane_flag(bulk_flag(team, team.rank, kind, w.channel, other_rank(team, j))) - base;
        const uint32_t valid = flag < 2 * EPOCH_UNIT ? (uint32_t)flag : 0;
        reach.place[j] = valid % BULK_PLACES;
        reach.least = valid / BULK_PLACES < reach.least ? valid / BULK_PLACES : reach.least;
    }
    bulk_seen();
    return reach.least > w.chunk;
}

/* What all roles know. */
typedef struct bulk_job {
    alg_team_t const *team;
    const bulk_ring_t *out, *in; /* stages on the way to peers, and from them */
    bulk_word_t sent;            /* pieces that are complete at the peers */
    const uint8_t *input;
    uint8_t *output;
    uint64_t in_step, out_step, base;
    uint32_t pieces; /* of a chunk that go out: to each peer, or one for all */
    uint32_t parts;  /* that come in: of each peer, and the own one where the output wants it */
    uint32_t thread; /* of the keepers */

    /* The input's block for a rank. */
    LANE_FN const uint8_t *block(uint32_t rank) const
    {
        return input + rank * in_step;
    }
} bulk_job_t;

#endif
