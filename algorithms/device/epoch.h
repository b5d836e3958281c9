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

/* offset: ALG_EPOCH_OFFSET or ALG_STAGED_OFFSET. */
LANE_FN uint64_t epoch_read(const alg_team_t &team, uint32_t offset)
{
    return lane_read_own((const uint64_t *)(team.scratch[team.rank] + offset));
}

/* Once a lane, after its epoch_read and before its first wait. True on one lane of the kernel, which
 * then owes epoch_close: the lane of the last block to come here. A block comes here only when all its
 * lanes have read, so no lane of this call sees the new value; none of the next call sees the old one,
 * because its kernel begins after this one ended. The ticket's way to L2 and back overlaps the wait. */
LANE_FN bool epoch_leave(const lane_t &lane, const alg_team_t &team, uint32_t offset)
{
    lane_sync();
    if (lane.thread != 0)
        return false;
    uint32_t *ticket = (uint32_t *)(team.scratch[team.rank] + offset + ALG_TICKET_OFFSET - ALG_EPOCH_OFFSET);
    return lane.blocks == 1 || lane_last_ticket(ticket, lane.blocks);
}

/* The counter moves on by `step`. */
LANE_FN void epoch_close(bool last, const alg_team_t &team, uint32_t offset, uint64_t epoch, uint64_t step)
{
    if (last)
        lane_write_own((uint64_t *)(team.scratch[team.rank] + offset), epoch + step);
}

/* How far the call's half lies behind half 0. */
LANE_FN uint64_t epoch_half(const alg_team_t &team, uint64_t epoch)
{
    return (epoch & 1) * team.half_bytes;
}

#endif
