/*
 * route.h - which rank sends what to which, for each collective.
 *
 * A collective is one step or two. In the first, senders give each owner its
 * part; owners add the parts up, or keep them. In the second, owners give their
 * part to the receivers.
 * Algorithms are written for any such pattern; what differs between collectives
 * is here.
 */
#ifndef SHUNT_ROUTE_H
#define SHUNT_ROUTE_H

#include "algorithms/device/epoch.h"

/* Sets of ranks: bit r is rank r. */
typedef struct route {
    uint32_t senders, owners, receivers;
} route_t;

LANE_FN uint32_t route_all(const alg_team_t &team)
{
    return (1u << team.nranks) - 1;
}

LANE_FN bool route_has(uint32_t set, uint32_t rank)
{
    return set >> rank & 1;
}

/* Each rank has a block of its own at the senders: it lies at rank times the block's bytes. */
LANE_HOST_FN constexpr bool route_input_blocks(int collective)
{
    return collective == ALG_REDUCE_SCATTER || collective == ALG_ALL_TO_ALL || collective == ALG_SCATTER;
}

/* Each rank's block has a place of its own where it arrives. */
LANE_HOST_FN constexpr bool route_output_blocks(int collective)
{
    return collective == ALG_ALL_GATHER || collective == ALG_ALL_TO_ALL || collective == ALG_GATHER;
}

/* One step: what a rank sends goes straight to who wants it. There are no receivers. */
LANE_FN route_t route_direct(const alg_team_t &team, const alg_call_t &call)
{
    const uint32_t all = route_all(team), root = 1u << call.root;
    switch (call.collective) {
    case ALG_BROADCAST:
    case ALG_SCATTER:
        return route_t{root, all, 0};
    case ALG_REDUCE:
    case ALG_GATHER:
        return route_t{all, root, 0};
    default:
        return route_t{all, all, 0};
    }
}

/* In parts: no link carries more than the message (but for what a step's own collective demands). The root of a
 * broadcast or reduce owns no part, for its link is busy with the whole message already. */
LANE_FN route_t route_parts(const alg_team_t &team, const alg_call_t &call)
{
    const uint32_t all = route_all(team), root = 1u << call.root;
    switch (call.collective) {
    case ALG_ALL_REDUCE:
        return route_t{all, all, all};
    case ALG_BROADCAST:
        return route_t{root, all & ~root, all & ~root};
    case ALG_REDUCE:
        return team.nranks == 2 ? route_t{all, root, 0} : route_t{all, all & ~root, root};
    default:
        return route_direct(team, call);
    }
}

#endif
