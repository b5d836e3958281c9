/* SPDX-License-Identifier: Apache-2.0 */
/* series.h - consecutive broadcasts, or reduces, of rising roots form a series. They share one number and one half of
 * scratch, so all may begin when the first one may: one rank may run them in one kernel (parts.h), another rank one by
 * one. Their words in the half are disjoint (docs/lab/proofs.md).
 *
 * A call continues the series if its predecessor has the same collective and a lower root; it does not advance the
 * epoch. Graphs are replayed in any order, so only the device knows the predecessor, by the word at ALG_SERIES_OFFSET.
 * A block changes that word after all its lanes have read it; other blocks decide alike before and after. */
#ifndef SHUNT_SERIES_H
#define SHUNT_SERIES_H

#include "algorithms/device/epoch.h"

/* kernel_call_t.series (0: another collective):
 *   bits 0-2   % SERIES_BROADCAST   root of the last part
 *   bits 3-4   & SERIES_KIND        SERIES_BROADCAST or SERIES_REDUCE
 *   bits 5-7   / SERIES_FIRST       root of the first part
 * The word at ALG_SERIES_OFFSET:
 *   bits 0-10  % SERIES_SHARES      shares of a call that continues the series; 0 when all its blocks have left
 *   bits 11-15 series_before        bits 0-4 of the last call's kernel_call_t.series
 *   bits 16-63 epoch_base           of the call that began the series */
enum { SERIES_BROADCAST = 8, SERIES_REDUCE = 16, SERIES_KIND = 24, SERIES_FIRST = 32 };
static const uint64_t SERIES_SHARES = 1u << 11; /* exceeds the number of a grid's blocks */

static_assert(ALG_MAX_RANKS <= SERIES_BROADCAST && SERIES_FIRST * SERIES_SHARES == EPOCH_UNIT, "fields of a series");

LANE_HOST_FN uint32_t series_of(int collective, uint32_t first, uint32_t last)
{
    return collective == ALG_BROADCAST ? SERIES_BROADCAST | last | SERIES_FIRST * first
           : collective == ALG_REDUCE  ? SERIES_REDUCE | last | SERIES_FIRST * first
                                       : 0;
}

typedef struct series {
    uint64_t epoch, word;
    bool continues;
} series_t;

LANE_FN series_t series_read(const alg_team_t &team)
{
    series_t s;
    lane_read_both((const uint64_t *)(team.own + ALG_EPOCH_OFFSET), s.epoch, s.word);
    return s;
}

LANE_FN uint32_t series_before(uint64_t word)
{
    return (uint32_t)(word % EPOCH_UNIT / SERIES_SHARES);
}

LANE_FN uint64_t series_now(uint32_t series)
{
    return series % SERIES_FIRST * SERIES_SHARES;
}

/* All blocks together add this call's fields less its predecessor's. The field of shares is then 0 again. */
LANE_FN uint64_t series_share(const lane_t &lane, uint64_t word, uint64_t now)
{
    return lane.grid_block == 0 ? now - word % EPOCH_UNIT / SERIES_SHARES * SERIES_SHARES - (lane.grid_blocks - 1) : 1;
}

LANE_FN void series_compare(series_t &s, uint32_t series)
{
    const uint64_t last = epoch_base(s.epoch) - EPOCH_UNIT;
    const uint32_t before = series_before(s.word);
    s.continues = series && ((s.word % SERIES_SHARES) ||
                             (epoch_base(s.word) == last && (before & SERIES_KIND) == (series & SERIES_KIND) &&
                              before % SERIES_BROADCAST < series / SERIES_FIRST));
}

/* Each lane calls it, after series_compare, instead of epoch_leave. */
LANE_FN void series_leave(const lane_t &lane, const alg_team_t &team, const series_t &s, uint32_t series)
{
    uint64_t *const word = (uint64_t *)(team.own + ALG_SERIES_OFFSET);
    const uint64_t now = series_now(series);
    lane_sync();
    if (!s.continues) {
        epoch_add_share(lane, team);
        if (series && lane.grid_block == 0 && lane.thread == 0)
            lane_write_own(word, epoch_base(s.epoch) | now);
        return;
    }
    if (lane.thread == 0)
        lane_add_own(word, series_share(lane, s.word, now));
}

LANE_FN uint64_t series_half(const alg_team_t &team, const series_t &s)
{
    return epoch_half(team, s.epoch - (s.continues ? EPOCH_UNIT : 0));
}

#endif
