/* SPDX-License-Identifier: Apache-2.0 */
/* routes.h - what dispatch leaves for combine in a handle's memory, behind a staged call's number (room.h). */
#ifndef SHUNT_EXPERTS_ROUTES_H
#define SHUNT_EXPERTS_ROUTES_H

#include "algorithms/experts/room.h"

/* Where a choice's row is: in this rank's `out`, or at a peer (route_of_rank). Sorted by choice, up to ROUTE_NONE. */
typedef struct route_entry {
    int32_t row;
    uint32_t choice;
} route_entry_t;

static const int32_t ROUTE_NONE = -1;
enum { ROUTES_OFFSET = 16 };

LANE_FN int32_t route_of_rank(uint32_t rank)
{
    return -2 - (int32_t)rank;
}

LANE_FN uint32_t route_rank(const alg_team_t &team, int32_t row)
{
    return row >= 0 ? team.rank : (uint32_t)(-2 - row);
}

typedef struct routes {
    uint32_t *tokens;       /* [ALG_MAX_RANKS] */
    route_entry_t *origins; /* [this rank's token][terms]: per choice; rank-major per rank, with its first choice */
    route_entry_t *entries; /* [source rank][most_tokens][keys]: this rank's rows */
} routes_t;

static inline uint64_t routes_bytes(const alg_experts_shape_t *shape, uint32_t top_k)
{
    const uint64_t tokens = shape->most_tokens, terms = top_k > shape->nranks ? top_k : shape->nranks;
    return ROUTES_OFFSET + ALG_MAX_RANKS * 4 + tokens * (terms + shape->nranks * top_k) * sizeof(route_entry_t);
}

LANE_FN routes_t routes_of(const experts_call_t &c)
{
    routes_t r;
    r.tokens = (uint32_t *)((uint8_t *)c.call.routes + ROUTES_OFFSET);
    r.origins = (route_entry_t *)(r.tokens + ALG_MAX_RANKS);
    r.entries = r.origins + (uint64_t)c.most_tokens * c.terms;
    return r;
}

LANE_FN route_entry_t *routes_of_token(const experts_call_t &c, const routes_t &r, uint32_t source, uint32_t token)
{
    return r.entries + ((uint64_t)source * c.most_tokens + token) * c.keys;
}

#endif
