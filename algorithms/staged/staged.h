/*
 * staged.h - messages of any length through chunks of staging: what the kernels
 * that reduce and those that move share.
 *
 * Data path: input chunk -> staging at the peer -> flag -> there it is taken out, or
 * added up. Raw data behind flags: nothing is polled but flags and nothing is
 * re-armed. A warp takes a channel's chunks alone, and hundreds of channels in
 * different steps keep the link busy. Every pair of ranks raises two flags for every
 * chunk, with or without data between them; no other credit crosses the link. The
 * staging has two halves.
 *
 * In one step (all-gather, reduce-scatter, ...): chunk c goes to half c & 1, then the
 * scatter flag is raised; a rank that has taken chunk c raises its gather flag. Chunk
 * c+1 is sent before chunk c is taken, and
 *   - chunk c+1 goes to a rank after its gather flag c-1, that is, after it has read
 *     what lay in this half, and after its scatter flag c, that is, in this call.
 *
 * In two steps (all-reduce, broadcast, reduce): senders -> owners through the first
 * half; owners -> receivers through the second.
 *   - scatter chunk c+1 goes to owner o after o's gather flag c, which o raised
 *     after it had read scatter chunk c;
 *   - gather chunk c+1 goes to rank p after p's scatter flag c+1, which p raised
 *     after it had read gather chunk c.
 *
 * Between two calls, whatever their grids and collectives: a rank ends when it has
 * every peer's last gather flag, so every peer has read its whole first half; and it
 * stores into a second half only behind a scatter flag that its reader raised in the
 * new call. That is why the two halves are fixed and never share memory.
 *
 * Flags hold the number of the chunk counted over all calls, in 8 bytes, and are
 * never cleared. A flag is new if it is at most two calls ahead of what is waited
 * for; one that was left alone is behind.
 *
 * The number of channels is the same on all ranks. The number of warps need not be:
 * a warp takes its channels one after the other, in growing order, so the lowest
 * channel that is not through is under way on every rank.
 */
#ifndef SHUNT_STAGED_H
#define SHUNT_STAGED_H

#include "algorithms/device/buffers.h"
#include "algorithms/device/launch.h"
#include "algorithms/device/route.h"

enum {
    STAGED_BATCH = 4,          /* loads in flight before the first store */
    STAGED_ROWS = 24,          /* of a chunk: 12 KiB of a warp's, for which 1024 of two ranks find room */
    STAGED_MOST_CHUNKS = 60000 /* less than EPOCH_UNIT; of more, chunks grow */
};

/* Vectors are counted in 32 bits; a bound below their end keeps every sum in range too. */
#define STAGED_MOST_BYTES ((uint64_t)32 << 30)

/* A row is one vector of every lane of a channel. */
typedef struct staged_plan {
    uint32_t part;     /* vectors of an owner's part, at most */
    uint32_t channels; /* of the call */
    uint32_t chunks;   /* each channel's, of each part */
    uint32_t rows;     /* of a chunk; the part's last may have fewer */
} staged_plan_t;

/* Bytes of both stagings, if chunks had one row. */
LANE_HOST_FN uint64_t staged_row(uint32_t nranks, uint32_t channels, uint32_t lanes)
{
    return (uint64_t)2 * (nranks - 1) * channels * lanes * VEC;
}

/* As few chunks as the staging allows, all alike. */
LANE_HOST_FN staged_plan_t staged_plan(uint64_t staging_bytes, uint32_t part, uint32_t nranks, uint32_t channels,
                                       uint32_t lanes)
{
    staged_plan_t p;
    p.part = part;
    p.channels = channels;
    const uint32_t rows = (part + channels * lanes - 1) / (channels * lanes);
    const uint64_t row = staged_row(nranks, channels, lanes); /* 0 for a rank alone */
    const uint32_t room = row ? (uint32_t)(staging_bytes / row) : (uint32_t)STAGED_ROWS;
    uint32_t most = rows / STAGED_MOST_CHUNKS + 1;
    most = most > STAGED_ROWS ? most : (uint32_t)STAGED_ROWS;
    most = most < room ? most : room;
    p.chunks = (rows + most - 1) / most;
    p.rows = p.chunks ? (rows + p.chunks - 1) / p.chunks : 0;
    return p;
}

/* Flags; and the halves of the staging that two steps use. */
enum { STAGED_SCATTER = 0, STAGED_GATHER = 1 };

/* This lane's share of a chunk. */
typedef struct span {
    uint32_t first; /* vector of the part; the next row's is `lanes` further */
    uint32_t rows;
} span_t;

/* The message cut into the owners' parts. */
typedef struct staged_cut {
    bool blocks;       /* a part is the owner's block; else vectors of the message, evenly */
    uint32_t owners;   /* as in route_t */
    uint32_t vectors;  /* of a part, at most */
    uint64_t bytes;    /* of a block; else of the message */
    uint32_t left_out; /* the rank that owns no part of a message, if one does not; else nranks */
} staged_cut_t;

LANE_FN staged_cut_t staged_cut(const alg_team_t &team, const route_t &route, bool blocks, uint32_t root,
                                uint64_t bytes)
{
    staged_cut_t c;
    c.blocks = blocks;
    c.owners = route.owners;
    c.bytes = bytes;
    const uint32_t vectors = buffer_vectors(bytes);
    if (blocks || route.owners == 1u << root) {
        c.blocks = true;
        c.vectors = vectors;
        c.left_out = team.nranks;
        return c;
    }
    c.left_out = route_has(route.owners, root) ? team.nranks : root;
    const uint32_t parts = team.nranks - (c.left_out < team.nranks);
    c.vectors = (vectors + parts - 1) / parts;
    return c;
}

/* The place of an owner's part in the message, which has all parts; a block is at 0 there. */
LANE_FN uint64_t staged_part_at(const staged_cut_t &c, uint32_t owner)
{
    const uint32_t place = owner - (owner > c.left_out);
    return c.blocks ? 0 : (uint64_t)place * c.vectors * VEC;
}

LANE_FN buffer_t staged_part(const staged_cut_t &c, uint32_t owner, const uint8_t *message)
{
    const uint64_t at = staged_part_at(c, owner), length = (uint64_t)c.vectors * VEC;
    const uint64_t left = c.bytes > at ? c.bytes - at : 0;
    return buffer_make(message + at, left < length ? left : length);
}

/* One warp's view of the buffers and the scratch, for the channel that it is at. */
struct channel {
    uint32_t index, lane, lanes;
    staged_plan_t plan;

    LANE_FN uint8_t *flag(const alg_team_t &team, uint32_t at, int step, uint32_t from) const
    {
        return team.scratch[at] + team.flags_offset +
               (((uint64_t)step * ALG_STAGED_CHANNELS + index) * ALG_MAX_RANKS + from) * 8;
    }

    /* This lane's first vector of the chunk that `from` stores at rank `at`, in that half of the staging. */
    LANE_FN uint8_t *staging(const alg_team_t &team, uint32_t at, int half, uint32_t from) const
    {
        const uint64_t slot = (uint64_t)other_place(from, at) * plan.channels + index;
        return team.scratch[at] + team.staging_offset + half * (team.staging_bytes / 2) +
               (slot * plan.rows * lanes + lane) * VEC;
    }

    /* Of chunk c of a part of so many vectors. */
    LANE_FN span_t span(uint32_t vectors, uint32_t c) const
    {
        const uint32_t first = (c * plan.channels + index) * plan.rows * lanes + lane;
        const uint32_t left = first < vectors ? (vectors - first + lanes - 1) / lanes : 0;
        return span_t{first, left < plan.rows ? left : plan.rows};
    }

    /* What this channel stored for the peers is there when they see the flag. */
    LANE_FN void raise(const alg_team_t &team, int step, uint64_t value) const
    {
        lane_warp_sync();
        for (uint32_t r = lane; r < team.nranks; r += lanes) {
            if (r == team.rank)
                continue;
            lane_fence();
            lane_raise(flag(team, r, step, team.rank), value);
        }
    }

    /* Until every peer has raised its flag to `value`. False: the wait was broken. */
    LANE_FN bool wait(lane_t &l, const alg_team_t &team, int step, uint64_t value) const
    {
        bool broken = false;
        lane_wait_begins(l);
        for (uint32_t r = lane; r < team.nranks && !broken; r += lanes) {
            while (r != team.rank && !broken && lane_flag(flag(team, team.rank, step, r)) - value >= 2 * EPOCH_UNIT)
                broken = lane_stop(l, team);
        }
        broken = lane_warp_any(broken);
        lane_warp_sync();
        return !broken;
    }
};

/* All chunks of a channel in one step. send(c, half): to all who get some of it; take(c, half): what has arrived.
 * False: a wait was broken. */
template <class SEND, class TAKE>
LANE_FN bool staged_direct(lane_t &lane, const alg_team_t &team, const channel &ch, uint64_t base, SEND send, TAKE take)
{
    send(0, 0);
    ch.raise(team, STAGED_SCATTER, base + 1);
    for (uint32_t c = 0; c < ch.plan.chunks; c++) {
        if (!ch.wait(lane, team, STAGED_SCATTER, base + c + 1))
            return false;
        if (c + 1 < ch.plan.chunks) {
            if (c > 0 && !ch.wait(lane, team, STAGED_GATHER, base + c))
                return false;
            send(c + 1, (int)((c + 1) & 1));
            ch.raise(team, STAGED_SCATTER, base + c + 2);
        }
        take(c, (int)(c & 1));
        ch.raise(team, STAGED_GATHER, base + c + 1);
    }
    return ch.wait(lane, team, STAGED_GATHER, base + ch.plan.chunks);
}

/* The plan's, for this warp, before its first channel. */
LANE_FN channel channel_make(const lane_t &lane, const alg_team_t &team, const alg_call_t &call, uint32_t part)
{
    channel ch;
    ch.lanes = lane_warp_size();
    ch.lane = lane.thread % ch.lanes;
    ch.index = (lane.block * lane.threads + lane.thread) / ch.lanes;
    ch.plan = staged_plan(team.staging_bytes, part, team.nranks, call.blocks * (call.threads / ch.lanes), ch.lanes);
    return ch;
}

static inline uint64_t staged_most_bytes(const alg_map_t *map, uint32_t nranks)
{
    return map->staging_bytes >= staged_row(nranks, ALG_STAGED_CHANNELS, 32) ? STAGED_MOST_BYTES : 0;
}

/* part_bytes: of a rank's part of the message. */
static inline void staged_shape(uint64_t part_bytes, uint32_t most_threads, uint32_t *blocks, uint32_t *threads)
{
    launch_shape(buffer_vectors(part_bytes), most_threads, blocks, threads);
    while (*blocks > 1 && (uint64_t)*blocks * (*threads / 32) > ALG_STAGED_CHANNELS)
        --*blocks;
}

#endif
