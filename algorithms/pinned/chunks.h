/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.h - longer buffers through pinned memory, in chunks of raw data behind flags. In place is safe: at each
 * position a lane reads the input before it writes the output.
 *
 * A block is a channel. In step c it raises flag c+1 at every peer: this rank has posted chunk c in its outbox, and has
 * fetched every peer's chunk c-1. It posts chunk c+1 before it waits for the peers' flags c+1. Flags are numbered as in
 * allreduce/staged.cu; all ranks' flags for a block lie in one cache line.
 *
 * An outbox holds SHM_CHUNKS chunks (per peer, if each gets its own), so chunk c+1 replaces chunk c-2
 * (docs/lab/proofs.md). Calls use two areas in turn, like halves (algorithm.h). */
#ifndef SHUNT_CHUNKS_H
#define SHUNT_CHUNKS_H

#include "algorithms/device/launch.h"
#include "algorithms/device/peers.h"
#include "algorithms/pinned/outbox.h"

enum {
    SHM_CHUNKS = 3,
    SHM_SUMS = 2,           /* chunks of sums (shm_staged.cu) */
    SHM_LANES = 8192,       /* most of a call: 16 blocks of 512 */
    SHM_BATCH = 4,          /* rows that a lane copies at once */
    SHM_MOST_STEPS = 60000, /* less than EPOCH_UNIT; longer buffers get larger chunks */
    SHM_FLAGS_LINE = 8 * ALG_MAX_RANKS
};

/* Most bytes of a rank's block in one kernel. */
#define SHM_SEGMENT ((uint64_t)256 << 20)

/* Number of chunks in staging: two areas, each with chunks for all peers, and sums. */
LANE_HOST_FN uint32_t shm_places(uint32_t nranks)
{
    return 2 * SHM_CHUNKS * (nranks - 1) + SHM_SUMS;
}

/* Bytes of an area: whole pages, so that a warp's stores fill lines. */
LANE_HOST_FN uint64_t shm_area(uint64_t staging_bytes, uint32_t nranks)
{
    return staging_bytes / shm_places(nranks) * SHM_CHUNKS * (nranks - 1) / 4096 * 4096;
}

static inline uint64_t shm_most_bytes(const alg_map_t *map, uint32_t nranks)
{
    const uint64_t least = (uint64_t)shm_places(nranks) * SHM_LANES * VEC;
    return nranks >= 2 && map->staging_bytes >= least + VEC * ALG_MAX_RANKS ? UINT64_MAX : 0;
}

/* vectors: those that one rank sends to another. */
static inline void shm_shape(uint64_t vectors, uint32_t most_threads, uint32_t *blocks, uint32_t *threads)
{
    grid_shape(vectors, most_threads, blocks, threads);
    while (*blocks > 1 && (*blocks > ALG_SHM_CHANNELS || *blocks * *threads > SHM_LANES))
        --*blocks;
}

/* A row: a vector of every lane of a channel. */
typedef struct shm_plan {
    uint32_t channels;
    uint32_t sections; /* chunks side by side: one per peer if each gets its own */
    uint32_t chunks;
    uint32_t rows; /* of a chunk; the last may be shorter */
} shm_plan_t;

LANE_FN shm_plan_t shm_plan(const alg_team_t &team, uint32_t vectors, uint32_t sections, uint32_t channels,
                            uint32_t lanes)
{
    const uint32_t all = channels * lanes;
    const uint64_t row = (uint64_t)all * VEC, area = shm_area(team.staging_bytes, team.nranks);
    const uint64_t chunks_room = area / (SHM_CHUNKS * sections * row);
    const uint64_t sums_room = (team.staging_bytes - 2 * area) / (SHM_SUMS * row);
    const uint32_t room = (uint32_t)(chunks_room < sums_room ? chunks_room : sums_room);
    shm_plan_t p;
    p.channels = channels;
    p.sections = sections;
    const uint32_t rows = (vectors + all - 1) / all, wanted = rows / SHM_MOST_STEPS + 1;
    const uint32_t most = wanted > LANE_ROWS ? wanted : LANE_ROWS;
    p.rows = most < room ? most : room;
    p.chunks = (rows + p.rows - 1) / p.rows;
    return p;
}

typedef struct shm_span {
    uint32_t first; /* in the buffers; the next row is `lanes` vectors further */
    uint32_t rows;
} shm_span_t;

struct shm_channel {
    uint32_t index, lane, lanes;
    uint64_t chunks, sums; /* offsets of the call's area and of the sums */
    shm_plan_t plan;

    LANE_FN static shm_channel make(const lane_t &l, const alg_team_t &team, const shm_plan_t &plan)
    {
        shm_channel ch;
        ch.index = l.block;
        ch.lane = l.thread;
        ch.lanes = l.threads;
        ch.plan = plan;
        ch.chunks = team.staging_offset;
        ch.sums = team.staging_offset + 2 * shm_area(team.staging_bytes, team.nranks);
        return ch;
    }

    LANE_FN void begin(const alg_team_t &team, uint64_t epoch)
    {
        chunks += (epoch / EPOCH_UNIT & 1) * shm_area(team.staging_bytes, team.nranks);
    }

    /* This lane's first vector of chunk c from rank `from` (to `to`, if each peer gets its own). */
    LANE_FN uint8_t *outbox(const alg_team_t &team, uint32_t from, uint32_t to, uint32_t c) const
    {
        const uint32_t slot = c % SHM_CHUNKS * plan.sections + (plan.sections > 1 ? other_place(to, from) : 0);
        return at(team, from, chunks, slot);
    }

    LANE_FN uint8_t *sum(const alg_team_t &team, uint32_t from, uint32_t c) const
    {
        return at(team, from, sums, c % SHM_SUMS);
    }

    LANE_FN uint8_t *at(const alg_team_t &team, uint32_t from, uint64_t area, uint32_t slot) const
    {
        const uint64_t row = (uint64_t)(slot * plan.channels + index) * plan.rows;
        return team.scratch[from] + area + (row * lanes + lane) * VEC;
    }

    LANE_FN shm_span_t span(uint32_t begin, uint32_t end, uint32_t c) const
    {
        const uint32_t first = begin + (c * plan.channels + index) * plan.rows * lanes + lane;
        const uint32_t left = first < end ? (end - first + lanes - 1) / lanes : 0;
        return shm_span_t{first, left < plan.rows ? left : plan.rows};
    }

    LANE_FN uint8_t *flag(const alg_team_t &team, uint32_t at, uint32_t from) const
    {
        return team.scratch[at] + team.flags_offset + (uint64_t)index * SHM_FLAGS_LINE + 8 * from;
    }

    /* The flag's reader sees all that this block posted, and may overwrite what this block fetched. */
    LANE_FN void raise(const lane_t &l, const alg_team_t &team, uint64_t value) const
    {
        lane_sync();
        for (uint32_t r = l.thread; r < team.nranks; r += l.threads) {
            if (r == team.rank)
                continue;
            lane_fence();
            lane_raise(flag(team, r, team.rank), value);
        }
    }

    LANE_FN bool wait(lane_t &l, const alg_team_t &team, uint64_t value) const
    {
        bool broken = false;
        lane_wait_begins(l);
        for (uint32_t r = l.thread; r < team.nranks && !broken; r += l.threads) {
            while (r != team.rank && !broken && lane_flag(flag(team, team.rank, r)) - value >= 2 * EPOCH_UNIT)
                broken = lane_stop(l, team);
        }
        return !lane_sync_any(broken);
    }
};

#endif
