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
#include "algorithms/device/peers.h"

/* A chunk is at most as large as a stage or a slot; `depth` stages in each of a block's two rings. `lag`: copies of the
 * sender that may be under way. A sender that could have more copies waiting in the engine of its multiprocessor holds
 * up what comes from the peers: on 2 H200 32 blocks take 395 us for an all-gather of 256 MB with these stages, and 450
 * with more that are under way (docs/notebook/beside.md). `batch`: plain.h. */
typedef struct bulk_size {
    uint32_t chunk, depth, lag, batch;
} bulk_size_t;

#ifdef __CUDACC__
template <bool EACH> constexpr bulk_size_t BULK_SIZE = {16 << 10, 3, 2, 4};
template <> constexpr bulk_size_t BULK_SIZE<true> = {8 << 10, 6, 1, 4};
enum { BULK_WARPS = 4, BULK_TURNS = 2, BULK_MOST_SLOTS = 16, BULK_MOST_CHUNKS = 60000 };
#else
template <bool EACH> constexpr bulk_size_t BULK_SIZE = {BULK_HOST_STAGE, BULK_HOST_DEPTH, EACH ? 1 : 2, 2};
enum { BULK_WARPS = 1, BULK_TURNS = 1, BULK_MOST_SLOTS = 3, BULK_MOST_CHUNKS = 512 };
#endif
enum {
    BULK_LEAST_SLOTS = 3,
    BULK_MOST_CHANNELS = 32,
    BULK_LINE = 128 /* chunks begin at a multiple of it */
};
/* Chunks of a channel in a kernel. */
static_assert(BULK_MOST_CHUNKS + BULK_MOST_SLOTS < EPOCH_UNIT, "counts run into the next call's");

/* The sender tells the herald of a chunk `lag` chunks late. With only `lag` slots, senders would wait for each other's
 * credit in a circle. It also frees a stage `lag` chunks late, so `depth` must be larger. */
static_assert(BULK_SIZE<false>.lag < BULK_LEAST_SLOTS && BULK_SIZE<true>.lag < BULK_LEAST_SLOTS, "told too late");
static_assert(BULK_SIZE<false>.lag < BULK_SIZE<false>.depth && BULK_SIZE<true>.lag < BULK_SIZE<true>.depth,
              "no stage is ever free");

/* Bulk shares staged's flag words: CREDIT uses those of scatter, DATA those of gather. A peer that is already in the
 * next, staged call may have raised a scatter flag, which reads as credit. That is harmless: the peer has all of this
 * rank's data. Staged raises a gather flag only after this rank's scatter flag, so no flag of staged reads as DATA. */
enum { BULK_CREDIT = 0, BULK_DATA = 1 };

typedef struct bulk_plan {
    uint64_t bytes, span; /* of one rank's data; of a channel's part of it */
    uint32_t chunk, slot; /* bytes */
    uint32_t channels, slots;
} bulk_plan_t;

/* Bytes of the rings of `slots` slots. */
LANE_HOST_FN uint64_t bulk_rings(uint32_t nranks, uint32_t channels, uint32_t slots, uint32_t slot)
{
    return (uint64_t)(nranks - 1) * channels * slots * slot;
}

LANE_FN bulk_plan_t bulk_plan(const alg_team_t &team, uint64_t bytes, uint32_t channels, uint32_t slot)
{
    bulk_plan_t p;
    p.bytes = bytes;
    p.slot = slot;
    p.channels = channels;
    const uint64_t room = team.staging_bytes / 2 / bulk_rings(team.nranks, channels, 1, slot);
    p.slots = room < BULK_MOST_SLOTS ? (uint32_t)room : (uint32_t)BULK_MOST_SLOTS;
    p.span = ((bytes + channels - 1) / channels + BULK_LINE - 1) / BULK_LINE * BULK_LINE;
    const uint64_t chunks = (p.span + slot - 1) / slot;
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

    /* Slots hold whole vectors. */
    LANE_FN uint32_t slot_bytes() const
    {
        return (bytes() + VEC - 1) / VEC * VEC;
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

LANE_FN void bulk_raise(const alg_team_t &team, uint32_t peer, int kind, uint32_t channel, uint64_t value)
{
    lane_raise(bulk_flag(team, peer, kind, channel, team.rank), value);
}

/* Whether every peer's count is beyond the chunk; `least` is what the last look found. A flag of an earlier call counts
 * nothing; one of the next call counts as all, for its rank has ended this one. */
template <int N>
LANE_FN bool bulk_reached(const alg_team_t &team, int kind, const walk &w, uint64_t base, uint32_t &least)
{
    if (least > w.chunk)
        return true;
    least = UINT32_MAX;
    LANE_UNROLL
    for (uint32_t i = 1; i < N; i++) {
        if (i >= team.nranks)
            continue;
        const uint64_t count = lane_flag(bulk_flag(team, team.rank, kind, w.channel, ring_next(team, i))) - base;
        const uint32_t valid = count < 2 * EPOCH_UNIT ? (uint32_t)count : 0;
        least = valid < least ? valid : least;
    }
    bulk_seen();
    return least > w.chunk;
}

/* What all roles know. */
typedef struct bulk_job {
    alg_team_t const *team;
    const bulk_ring_t *out, *in; /* stages on the way to peers, and from them */
    bulk_word_t sent;            /* pieces that are complete at the peers */
    const uint8_t *input;
    const uint8_t *own; /* bulk_add.cu: of the input, what this rank adds itself */
    uint8_t *output;
    uint64_t in_step, out_step, base;
    uint32_t pieces; /* of a chunk that go out: to each rank, or one for all */
    bool keep;       /* the own block goes from the input to the output */
} bulk_job_t;

#endif
