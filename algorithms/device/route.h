/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - which ranks send and receive, except in all-reduce. Receivers get a block each, or all get the same one. */
#ifndef SHUNT_ROUTE_H
#define SHUNT_ROUTE_H

#include "algorithms/device/kernel_call.h"

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
