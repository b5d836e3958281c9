/* SPDX-License-Identifier: Apache-2.0 */
/* rooted.h - broadcast and reduce in two steps. No link carries the buffer more than once.
 *
 * Every rank but the root owns a slice. A rank sends another at most one slice, so one set of slots (slots.h) holds a
 * call. Slices may be empty, and the root of a broadcast gets no data, so all ranks exchange notices (notice.h). No
 * deadlock, whatever the grids: docs/lab/proofs.md. */
#ifndef SHUNT_ROOTED_H
#define SHUNT_ROOTED_H

#include "algorithms/push/push.h"

typedef struct slices {
    uint32_t vectors; /* of the buffer */
    uint32_t each;    /* of a slice; the last slices may be shorter or empty */
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

/* Position in the buffer of vector u of `owner`'s slice. The root owns no slice. */
LANE_FN uint32_t slices_at(const slices_t &s, uint32_t owner, uint32_t u)
{
    return other_place(owner, s.root) * s.each + u;
}

/* Whether that vector exists. Needs u < each. */
LANE_FN bool slices_has(const slices_t &s, uint32_t owner, uint32_t u)
{
    return owner != s.root && slices_at(s, owner, u) < s.vectors;
}

LANE_FN notices_t slices_notices(const alg_team_t &team, const slices_t &s, mark_t mark)
{
    return notices_make(team, team.half_offset + slots_bytes(mark, team.nranks - 1, s.each), 0, 0);
}

/* Most bytes of a buffer that fit a half. */
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
