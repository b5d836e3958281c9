/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rooted.h - broadcast and reduce in two crossings, so that no link carries the message more than once.
 *
 * Every rank but the root owns a slice of the message. Broadcast: the root sends each owner its slice, and the owner
 * passes it on to the other owners. Reduce: every rank sends each owner its part, and the owner adds and sends the
 * result to the root. S bytes leave and enter the busiest rank: time = t0 + one crossing + S / B. If the root also
 * owned a slice, its link would carry 2 (n-1)/n S.
 *
 * Each rank sends another at most one slice, so one set of slots (slots.h) holds a call. A message too large for a half
 * goes in segments, a launch each.
 *
 * The rule that guards the scratch (algorithm.h): slices may be empty, and the root of a broadcast gets no data. So in
 * every call every pair exchanges a notice: each rank hears from every other directly, and when it begins call e+2 all
 * have ended call e. Without notices a root stores the slices of call e+2 over those of call e that a slow owner still
 * reads.
 *
 * No circular wait, whatever the grids: a send of position u waits only for positions below u, and in the second
 * crossing for u of the first, too. So the lowest unfinished position is under way on every rank.
 */
#ifndef SHUNT_ROOTED_H
#define SHUNT_ROOTED_H

#include "algorithms/push/push.h"

typedef struct slices {
    uint32_t vectors; /* of the message */
    uint32_t each;    /* of a slice; the last ones have fewer or none */
    uint32_t root;
} slices_t;

LANE_HOST_FN uint32_t slices_each(uint32_t vectors, uint32_t nranks)
{
    return (vectors + nranks - 2) / (nranks - 1);
}

LANE_FN slices_t slices_make(const alg_team_t &team, const kernel_call_t &call, uint32_t vectors)
{
    return slices_t{vectors, slices_each(vectors, team.nranks), call.root};
}

/* At position u of the slice of `owner`, which is not the root. */
LANE_FN uint32_t slices_at(const slices_t &s, uint32_t owner, uint32_t u)
{
    return other_place(owner, s.root) * s.each + u;
}

/* u < each. */
LANE_FN bool slices_has(const slices_t &s, uint32_t owner, uint32_t u)
{
    return owner != s.root && slices_at(s, owner, u) < s.vectors;
}

LANE_FN notices_t slices_notices(const alg_team_t &team, const slices_t &s, mark_t mark)
{
    return notices_make(team, team.half_offset + slots_bytes(mark, team.nranks - 1, s.each), 0, 0);
}

/* Of the message, in a half. */
static inline uint64_t rooted_segment(uint64_t half_bytes, uint32_t nranks, mark_t mark)
{
    return push_segment(half_bytes, nranks, mark) * (nranks - 1);
}

static inline void rooted_shape(uint64_t bytes, uint32_t nranks, uint32_t most_threads, uint32_t *blocks,
                                uint32_t *threads)
{
    grid_shape(slices_each(buffer_vectors(bytes), nranks), most_threads, blocks, threads);
}

#endif
