/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.h - the number of a call, in device memory because a graph replays a kernel's arguments unchanged. Ranks
 * agree on it: they make the same calls in the same order. */
#ifndef SHUNT_EPOCH_H
#define SHUNT_EPOCH_H

#include "algorithms/device/lane.h"

/* The word at ALG_EPOCH_OFFSET:
 *   bit 0      ALG_EPOCH_STOPPED
 *   bits 1-15  shares: 2 for each block that has left; once block 0 has, 2^16 less 2 for each that has not
 *   bits 16-63 this call's number. It may wrap: only low bits and differences of neighbours are used
 * In flags a chunk's number replaces the shares (staged.cu, pinned/chunks.h, bulk/walk.h). */
static const uint64_t EPOCH_UNIT = 1u << 16;

LANE_FN uint64_t epoch_read(const alg_team_t &team)
{
    return lane_read_own((const uint64_t *)(team.own + ALG_EPOCH_OFFSET));
}

/* Whether an earlier call was given up (algorithm.h). Lanes may read different values: where one lane acts for its warp
 * or block, all must leave together (lane_warp_any, lane_sync_any). */
LANE_FN bool epoch_stopped(uint64_t epoch)
{
    return epoch & ALG_EPOCH_STOPPED;
}

LANE_FN uint64_t epoch_base(uint64_t epoch)
{
    return epoch / EPOCH_UNIT * EPOCH_UNIT;
}

/* Needs lane_sync before (see epoch_leave). */
LANE_FN void epoch_add_share_to(const lane_t &lane, uint64_t *counter)
{
    if (lane.thread == 0)
        lane_add_own(counter, lane.grid_block == 0 ? EPOCH_UNIT - 2 * (lane.grid_blocks - 1) : 2);
}

LANE_FN void epoch_add_share(const lane_t &lane, const alg_team_t &team)
{
    epoch_add_share_to(lane, (uint64_t *)(team.own + ALG_EPOCH_OFFSET));
}

/* Each lane calls it once, when the block no longer needs the number. A block adds its share after all its lanes have
 * read the number. All shares add up to a unit, so the number advances with the last one: no lane of this call reads
 * the next number, and no block waits for another. Shares are even, so bit 0 (ALG_EPOCH_STOPPED) stays. */
LANE_FN void epoch_leave(const lane_t &lane, const alg_team_t &team)
{
    lane_sync();
    epoch_add_share(lane, team);
}

LANE_FN uint64_t epoch_half(const alg_team_t &team, uint64_t epoch)
{
    return (epoch / EPOCH_UNIT & 1) * team.half_bytes;
}

#endif
