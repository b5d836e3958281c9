/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoch.h - the number of a call, kept on the device because a captured graph replays its arguments unchanged. Every
 * lane reads the counter in its own scratch; ranks agree because they issue the same calls in the same order.
 */
#ifndef SHUNT_EPOCH_H
#define SHUNT_EPOCH_H

#include "algorithms/device/lane.h"

/* The counter at ALG_EPOCH_OFFSET:
 *   bit 0      ALG_EPOCH_STOPPED
 *   bits 1-15  shares: blocks that have left this call
 *   bits 16-63 the number of this call
 * It may wrap around after 2^48 calls: only low bits of a number and differences of neighbours are used. The staged
 * algorithms number their chunks within a unit (staged.cu, hostmem/chunks.h). */
static const uint64_t EPOCH_UNIT = 1u << 16;

LANE_FN uint64_t epoch_read(const alg_team_t &team)
{
    return lane_read_own((const uint64_t *)(team.own + ALG_EPOCH_OFFSET));
}

LANE_FN bool epoch_stopped(uint64_t epoch)
{
    return epoch & ALG_EPOCH_STOPPED;
}

LANE_FN uint64_t epoch_base(uint64_t epoch)
{
    return epoch / EPOCH_UNIT * EPOCH_UNIT;
}

/* After lane_sync: add the block's share to a counter. */
LANE_FN void epoch_add_share_to(const lane_t &lane, uint64_t *counter)
{
    if (lane.thread == 0)
        lane_add_own(counter, lane.grid_block == 0 ? EPOCH_UNIT - 2 * (lane.grid_blocks - 1) : 2);
}

/* For epoch_leave and series_leave, after lane_sync. */
LANE_FN void epoch_add_share(const lane_t &lane, const alg_team_t &team)
{
    epoch_add_share_to(lane, (uint64_t *)(team.own + ALG_EPOCH_OFFSET));
}

/* Not the kernel's end: the block no longer needs the call's number. Call once per lane, after its epoch_read. Each
 * block adds its share when all its lanes have read; all shares add up to a unit. So no lane of this call reads the
 * next number, and no lane waits for the others. The next call's kernel begins after this one ends, so it reads the new
 * number. Shares are even, so bit 0 stays. */
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
