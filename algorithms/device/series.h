/* SPDX-License-Identifier: Apache-2.0 */
/*
 * series.h - broadcasts of rising roots, one after the other, share a half of
 * scratch; so do reduces.
 *
 * A group of them, one of each root, is how programs gather, or reduce and scatter,
 * parts of unequal length. One rank may run such calls in one kernel, side by side
 * (parts.h), and another one by one, so what a call does on the link depends on
 * the order of calls alone. Were each to have a half of its own, the second could
 * not begin before the first has heard from everybody (algorithm.h), and the third
 * not before the first has ended. So they count as one call: what lets the first
 * begin lets all begin. None touches what is another's:
 *   - A broadcast uses the root's slot at the other ranks. Slots are as long as a half
 *     allows (alg_call_t.room), whatever the message.
 *   - A reduce uses the slots at its root.
 *   - Each root has notices of its own (push.h).
 * Each call has all ranks hear from each other, so whoever is behind a series knows
 * that everybody is in it or behind it.
 *
 * A call goes on with its predecessor's series if that was of the same collective and of
 * a lower root. Only the device knows the predecessor, for graphs are replayed in any
 * order. So the word at ALG_SERIES_OFFSET has the number of the last series, and its
 * collective and last root. A call that goes on leaves the epoch alone.
 *
 * The word changes only when no block of the call will misread it: a call that begins
 * a series stores the call's own number, which tells late blocks so. One that goes on
 * has each block add its share (as epoch_leave does); a word with shares is in the
 * middle of that.
 */
#ifndef SHUNT_SERIES_H
#define SHUNT_SERIES_H

#include "algorithms/device/epoch.h"

/* alg_call_t.series: a broadcast or a reduce, the roots of the kernel's first and last part. Also (a unit of
 * SERIES_SHARES) in the word, behind which lies the number of the series, a multiple of EPOCH_UNIT. */
enum { SERIES_BROADCAST = 8, SERIES_REDUCE = 16, SERIES_KIND = 24, SERIES_FIRST = 32 };
static const uint64_t SERIES_SHARES = 1u << 11; /* more than blocks */

LANE_HOST_FN uint32_t series_of(int collective, uint32_t first, uint32_t last)
{
    return collective == ALG_BROADCAST ? SERIES_BROADCAST | last | SERIES_FIRST * first
           : collective == ALG_REDUCE  ? SERIES_REDUCE | last | SERIES_FIRST * first
                                       : 0;
}

typedef struct series {
    uint64_t epoch, word; /* as they were read */
    bool goes_on;
} series_t;

/* Of the call, and of its predecessor. Issue independent loads before using the result. */
LANE_FN series_t series_read(const alg_team_t &team)
{
    series_t s;
    lane_read_both((const uint64_t *)(team.own + ALG_EPOCH_OFFSET), s.epoch, s.word);
    return s;
}

LANE_FN void series_find(series_t &s, uint32_t series)
{
    const uint64_t last = epoch_base(s.epoch) - EPOCH_UNIT;
    const uint32_t before = (uint32_t)(s.word % EPOCH_UNIT / SERIES_SHARES);
    s.goes_on = series && ((s.word % SERIES_SHARES) ||
                           (epoch_base(s.word) == last && (before & SERIES_KIND) == (series & SERIES_KIND) &&
                            before % SERIES_BROADCAST < series / SERIES_FIRST));
}

/* Once a lane, after series_find, in place of epoch_leave. */
LANE_FN void series_leave(const lane_t &lane, const alg_team_t &team, const series_t &s, uint32_t series)
{
    uint64_t *const word = (uint64_t *)(team.own + ALG_SERIES_OFFSET);
    const uint64_t now = series % SERIES_FIRST * SERIES_SHARES;
    if (!s.goes_on) {
        epoch_leave(lane, team);
        if (series && lane.grid_block == 0 && lane.thread == 0)
            lane_write_own(word, epoch_base(s.epoch) | now);
        return;
    }
    lane_sync();
    if (lane.thread == 0)
        lane_add_own(word, lane.grid_block == 0
                               ? now - s.word % EPOCH_UNIT / SERIES_SHARES * SERIES_SHARES - (lane.grid_blocks - 1)
                               : 1);
}

/* How far the call's half lies behind half 0. */
LANE_FN uint64_t series_half(const alg_team_t &team, const series_t &s)
{
    return epoch_half(team, s.epoch - (s.goes_on ? EPOCH_UNIT : 0));
}

#endif
