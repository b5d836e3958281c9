/* SPDX-License-Identifier: Apache-2.0 */
/* peers.h - the order of a rank's peers; and who sends to whom in a collective, except all-reduce: each receiver gets a
 * block of its own, or all get the same block. */
#ifndef SHUNT_PEERS_H
#define SHUNT_PEERS_H

#include "algorithms/device/lane.h"

/* The rank `step` after this one: ranks first store to different GPUs. */
LANE_FN uint32_t ring_next(const alg_team_t &team, uint32_t step)
{
    const uint32_t r = team.rank + step;
    return r < team.nranks ? r : r - team.nranks;
}

/* The j-th rank without counting this one. */
LANE_FN uint32_t other_rank(const alg_team_t &team, uint32_t j)
{
    return j + (j >= team.rank);
}

/* Inverse of other_rank on `owner`. */
LANE_FN uint32_t other_place(uint32_t rank, uint32_t owner)
{
    return rank - (rank > owner);
}

/* Ranks (bits). */
typedef struct route {
    uint32_t senders, takers;
} route_t;

LANE_FN uint32_t route_all(const alg_team_t &team)
{
    return (1u << team.nranks) - 1;
}

LANE_FN bool route_has(uint32_t set, uint32_t rank)
{
    return set >> rank & 1;
}

LANE_HOST_FN constexpr bool route_input_has_blocks(int collective)
{
    return collective == ALG_REDUCE_SCATTER || collective == ALG_ALL_TO_ALL || collective == ALG_SCATTER;
}

LANE_HOST_FN constexpr bool route_output_has_blocks(int collective)
{
    return collective == ALG_ALL_GATHER || collective == ALG_ALL_TO_ALL || collective == ALG_GATHER;
}

LANE_FN route_t route_of(const alg_team_t &team, alg_collective_t collective, uint32_t root_rank)
{
    const uint32_t all = route_all(team), root = 1u << root_rank;
    switch (collective) {
    case ALG_BROADCAST:
    case ALG_SCATTER:
        return route_t{root, all};
    case ALG_REDUCE:
    case ALG_GATHER:
        return route_t{all, root};
    default:
        return route_t{all, all};
    }
}

#endif
