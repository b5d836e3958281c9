/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoch.h - the number of a call, kept on the device.
 *
 * A captured graph replays its arguments unchanged, so no argument may number the call. Every lane reads the counter in
 * its own scratch; the ranks' counters agree because they issue the same calls in the same order.
 */
#ifndef SHUNT_EPOCH_H
#define SHUNT_EPOCH_H

#include "algorithms/device/lane.h"

/* The counter at ALG_EPOCH_OFFSET:
 *   bit 0      ALG_EPOCH_STOPPED
 *   bits 1-15  shares: blocks that have left this call
 *   bits 16-63 the number of this call
 * It may wrap around after 2^48 calls: only a number's last bits and differences of neighbours are used. The staged
 * algorithms number their chunks within a unit (staged.cu, hostmem/chunks.h). */
static const uint64_t EPOCH_UNIT = 1u << 16;

LANE_FN uint64_t epoch_read(const alg_team_t &team)
{
    return lane_read_own((const uint64_t *)(team.own + ALG_EPOCH_OFFSET));
}

/* An earlier call was not finished here: this one must not store anything. */
LANE_FN bool epoch_stopped(uint64_t epoch)
{
    return epoch & ALG_EPOCH_STOPPED;
}

LANE_FN uint64_t epoch_base(uint64_t epoch)
{
    return epoch / EPOCH_UNIT * EPOCH_UNIT;
}

/* The part of epoch_leave after lane_sync; series_leave uses it too. */
LANE_FN void epoch_add_share(const lane_t &lane, const alg_team_t &team)
{
    if (lane.thread == 0)
        lane_add_own((uint64_t *)(team.own + ALG_EPOCH_OFFSET),
                     lane.grid_block == 0 ? EPOCH_UNIT - 2 * (lane.grid_blocks - 1) : 2);
}

/* Once a lane, after its epoch_read. Each block adds its share of a unit when all its lanes have read, so the counter
 * reaches the next number when all blocks have: no lane of this call sees the new value, and none of the next call the
 * old one, since its kernel begins after this one ended. No lane waits for the sum. Shares are even, so bit 0 stays. */
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
