/* SPDX-License-Identifier: Apache-2.0 */
/* peers.h - the order of a rank's peers. */
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

#endif
