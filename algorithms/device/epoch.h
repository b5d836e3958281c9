/*
 * epoch.h - the number of a call, kept on the device.
 *
 * A captured graph replays its arguments unchanged, so no argument may say
 * which call this is. Every lane reads the counter in its own scratch; the
 * ranks' counters agree because they issue the same calls in the same order.
 */
#ifndef SHUNT_EPOCH_H
#define SHUNT_EPOCH_H

#include "algorithms/device/lane.h"

/* offset: ALG_EPOCH_OFFSET or ALG_STAGED_OFFSET. */
LANE_FN uint64_t epoch_read(const alg_team_t &team, uint32_t offset)
{
    return lane_read_own((const uint64_t *)(team.scratch[team.rank] + offset));
}

/* Once a lane, after its epoch_read and before its first wait: the last block moves the counter on by
 * `step`. A block takes its ticket only when all its lanes have read, so no lane of this call sees the
 * new value; none of the next call sees the old one, because its kernel begins after this one ended. */
LANE_FN void epoch_leave(const lane_t &lane, const alg_team_t &team, uint32_t offset, uint64_t epoch, uint64_t step)
{
    uint8_t *own = team.scratch[team.rank] + offset;
    lane_sync();
    if (lane.thread == 0 && lane_last_ticket((uint32_t *)(own + ALG_TICKET_OFFSET - ALG_EPOCH_OFFSET), lane.blocks))
        lane_write_own((uint64_t *)own, epoch + step);
}

LANE_FN uint64_t epoch_half(const alg_team_t &team, uint64_t epoch)
{
    return team.half_offset + (epoch & 1) * team.half_bytes;
}

#endif
