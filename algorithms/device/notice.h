/* SPDX-License-Identifier: Apache-2.0 */
/* notice.h - a notice tells a peer that this rank is in the call, although it sends the peer no data. Without notices a
 * root that hears nothing from a slow peer could store into a half that the peer still reads (algorithm.h).
 *
 * A notice is a vector of zeros in the call's half at the peer. In rooted/ each rank sends a notice to every peer. */
#ifndef SHUNT_NOTICE_H
#define SHUNT_NOTICE_H

#include "algorithms/device/epoch.h"
#include "algorithms/device/mark.h"
#include "algorithms/device/peers.h"

LANE_HOST_FN uint64_t notice_bytes(uint32_t nranks)
{
    return (uint64_t)(nranks - 1) * VEC;
}

typedef struct notices {
    uint64_t at;       /* offset in the scratch, before the call's half is added */
    uint32_t to, from; /* ranks (bits) that get a notice from this rank; that send it one */
} notices_t;

/* sent, received: ranks (bits) that get data from this rank; that send data to it. */
LANE_FN notices_t notices_make(const alg_team_t &team, uint64_t at, uint32_t sent, uint32_t received)
{
    const uint32_t others = ((1u << team.nranks) - 1) & ~(1u << team.rank);
    return notices_t{at, others & ~sent, others & ~received};
}

LANE_FN void notices_send(const lane_t &lane, const alg_team_t &team, const notices_t &n)
{
    if (lane.block != 0)
        return;
    for (uint32_t r = lane.thread; r < team.nranks; r += lane.threads) {
        if (n.to >> r & 1)
            lane_put(team.scratch[r] + n.at + other_place(team.rank, r) * VEC, vec16_t{{0, 0, 0, 0}});
    }
}

/* Waits for the notices and re-arms them, since they would look like data of a later call. */
LANE_FN bool notices_take(lane_t &lane, const alg_team_t &team, const notices_t &n)
{
    if (lane.block != 0)
        return true;
    for (uint32_t r = lane.thread; r < team.nranks; r += lane.threads) {
        if (!(n.from >> r & 1))
            continue;
        uint8_t *word = team.scratch[team.rank] + n.at + other_place(r, team.rank) * VEC;
        lane_wait_begins(lane);
        while (!mark_arrived<MARK_ESCAPE>(lane_poll(word))) {
            if (lane_stop(lane, team))
                return false;
        }
        lane_rearm(word);
    }
    return true;
}

#endif
