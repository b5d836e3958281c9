/*
 * epoch.h - the number of a call, kept on the device; and the order of peers.
 *
 * A captured graph replays its arguments unchanged, so no argument may say
 * which call this is. Every lane reads the counter in its own scratch; the
 * ranks' counters agree because they issue the same calls in the same order.
 */
#ifndef SHUNT_EPOCH_H
#define SHUNT_EPOCH_H

#include "algorithms/device/lane.h"

/* The rank `step` places after `rank`. Peers are visited from rank + 1 on, so that no GPU is hit by all at once. */
LANE_FN uint32_t ring_next(const alg_team_t &team, uint32_t step)
{
    const uint32_t r = team.rank + step;
    return r < team.nranks ? r : r - team.nranks;
}

/* The ranks but this one in their order: the one at place j. */
LANE_FN uint32_t other_rank(const alg_team_t &team, uint32_t j)
{
    return j + (j >= team.rank);
}

/* And the place of `rank` among the others of `among`. */
LANE_FN uint32_t other_place(uint32_t rank, uint32_t among)
{
    return rank - (rank > among);
}

/* A counter (ALG_EPOCH_OFFSET, ALG_STAGED_OFFSET) moves on by so much a call. It wraps after 2^38 calls, which nothing
 * minds. Staged numbers its chunks within a unit: so many chunks of one warp are 1.6 TB, of the host device 50 GB. */
static const uint64_t EPOCH_UNIT = 1u << 26;

/* The counter as it stands: less than a unit of it is of blocks that have left this call. Who makes anything of it
 * waits for it, so first come the loads that are to be in flight beside it. */
LANE_FN uint64_t epoch_read(const alg_team_t &team, uint32_t offset)
{
    return lane_read_own((const uint64_t *)(team.scratch[team.rank] + offset));
}

/* Of this call: a multiple of EPOCH_UNIT. */
LANE_FN uint64_t epoch_base(uint64_t epoch)
{
    return epoch / EPOCH_UNIT * EPOCH_UNIT;
}

/* Once a lane, after its epoch_read. Each block adds its share of a unit when all its lanes have read, so the counter
 * moves on when all blocks have: no lane of this call sees the new value; and none of the next call sees the old one,
 * because its kernel begins after this one ended. Nobody waits for the sum. */
LANE_FN void epoch_leave(const lane_t &lane, const alg_team_t &team, uint32_t offset)
{
    lane_sync();
    if (lane.thread == 0)
        lane_add_own((uint64_t *)(team.scratch[team.rank] + offset),
                     lane.block == 0 ? EPOCH_UNIT - (lane.blocks - 1) : 1);
}

/* How far the call's half lies behind half 0. */
LANE_FN uint64_t epoch_half(const alg_team_t &team, uint64_t epoch)
{
    return (epoch / EPOCH_UNIT & 1) * team.half_bytes;
}

#endif
