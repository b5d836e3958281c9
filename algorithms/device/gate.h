/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.h - before the kernel of a long call: one warp waits until every rank has
 * come to the call.
 *
 * A kernel that waits for a late rank holds all its multiprocessors, which the
 * program's own kernels could use meanwhile. The gate holds one warp. It costs some
 * 2 us, so only long calls have one: all ranks alike, by the call's bytes.
 */
#ifndef SHUNT_GATE_H
#define SHUNT_GATE_H

#include "algorithms/device/epoch.h"

/* Bytes that a rank sends to each other one, or one of them to all: from here on the gate is less than 2% of the call.
 */
static const uint64_t GATE_LEAST_BYTES = 24 << 20;

/* The number of the coming call, raised at each peer: no call passes before all have come, so none is more than one
 * ahead. */
LANE_FN void gate_wait(lane_t lane, const alg_team_t &team)
{
    lane_begin((uintptr_t)team.own, 0);
    const uint64_t epoch = epoch_read(team), value = epoch_base(epoch) + 1;
    const uint32_t peer = lane.thread;
    if (epoch_stopped(epoch) || peer >= team.nranks || peer == team.rank)
        return;
    lane_raise(team.scratch[peer] + ALG_GATE_OFFSET + 8 * team.rank, value);
    lane_wait_begins(lane);
    while (lane_flag(team.scratch[team.rank] + ALG_GATE_OFFSET + 8 * peer) - value >= 2 * EPOCH_UNIT) {
        if (lane_stop(lane, team))
            return;
    }
}

#endif
