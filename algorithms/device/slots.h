/*
 * slots.h - mailboxes of vectors in a half of scratch.
 *
 * A region of nranks slots of `vectors` vectors lies at the same offset in every
 * rank's scratch. A peer puts into its slot, the owner takes; the owner's own
 * slot stays unused, which costs memory and saves instructions. What slots_take reads
 * it re-arms at once, which is the rule of algorithm.h that all users of the
 * halves live by.
 */
#ifndef SHUNT_SLOTS_H
#define SHUNT_SLOTS_H

#include "algorithms/device/epoch.h"
#include "algorithms/device/reduce.h"

typedef struct slots {
    uint64_t data;    /* offset in scratch of slot 0 */
    uint64_t escape;  /* offset of the escape words (MARK_ESCAPE), one a vector, after all data */
    uint32_t vectors; /* of one slot */
} slots_t;

/* Scratch that a region takes. */
LANE_HOST_FN uint64_t slots_bytes(mark_t mark, uint32_t slots, uint32_t vectors)
{
    const uint64_t all = (uint64_t)slots * vectors;
    return all * VEC + (mark == MARK_ESCAPE ? (all * 4 + VEC - 1) / VEC * VEC : 0);
}

LANE_FN slots_t slots_at(uint64_t offset, uint32_t slots, uint32_t vectors)
{
    return slots_t{offset, offset + (uint64_t)slots * vectors * VEC, vectors};
}

/* Make x fit to be put; returns its escape word. What is not an integer has been cleaned before (input.h). */
template <mark_t MARK> LANE_FN uint32_t slots_seal(vec16_t &x)
{
    return MARK == MARK_ESCAPE ? mark_clean<MARK>(x) : 0;
}

/* x, this rank's vector v, to its slot in the scratch of one peer. */
template <mark_t MARK>
LANE_FN void slots_put_one(const slots_t &s, const alg_team_t &team, uint32_t peer, uint32_t v, const vec16_t &x,
                           uint32_t escape)
{
    const uint32_t at = team.rank * s.vectors + v;
    lane_put(team.scratch[peer] + s.data + (uint64_t)at * VEC, x);
    if (MARK == MARK_ESCAPE)
        lane_put_word(team.scratch[peer] + s.escape + (uint64_t)at * 4, escape);
}

/* x, this rank's vector v, to its slot in the scratch of every peer. */
template <mark_t MARK, int N>
LANE_FN void slots_put(const slots_t &s, const alg_team_t &team, uint32_t v, const vec16_t &x, uint32_t escape)
{
    LANE_UNROLL
    for (uint32_t i = 1; i < N; i++) {
        if (i < team.nranks)
            slots_put_one<MARK>(s, team, ring_next(team, i), v, x, escape);
    }
}

/* Wait for B vectors v, v + stride, ... of every slot r with `wanted >> r & 1`, into x; re-arm them.
 * All are polled in one go, so their loads are in flight together. False: the wait was broken. */
template <mark_t MARK, int N, int B>
LANE_FN bool slots_take(lane_t &lane, const alg_team_t &team, const slots_t &s, uint32_t wanted, uint32_t v,
                        uint32_t stride, vec16_t x[B][N])
{
    uint8_t *const data = team.scratch[team.rank] + s.data;
    uint8_t *const words = team.scratch[team.rank] + s.escape;
    uint32_t escape[B][N];
    for (;;) {
        LANE_UNROLL
        for (uint32_t i = 0; i < B * N; i++) {
            const uint32_t b = i / N, r = i % N, at = r * s.vectors + v + b * stride;
            if (!(wanted >> r & 1))
                continue;
            x[b][r] = lane_poll(data + (uint64_t)at * VEC);
            if (MARK == MARK_ESCAPE)
                escape[b][r] = lane_poll_word(words + (uint64_t)at * 4);
        }
        bool all = true;
        LANE_UNROLL
        for (uint32_t i = 0; i < B * N; i++) {
            const uint32_t b = i / N, r = i % N;
            if (wanted >> r & 1)
                all = all && mark_arrived<MARK>(x[b][r]) && (MARK != MARK_ESCAPE || escape[b][r] != SENTINEL);
        }
        if (all)
            break;
        if (lane_stop(lane, team))
            return false;
    }
    LANE_UNROLL
    for (uint32_t i = 0; i < B * N; i++) {
        const uint32_t b = i / N, r = i % N, at = r * s.vectors + v + b * stride;
        if (!(wanted >> r & 1))
            continue;
        lane_rearm(data + (uint64_t)at * VEC);
        if (MARK == MARK_ESCAPE) {
            lane_rearm_word(words + (uint64_t)at * 4);
            mark_unescape(x[b][r], escape[b][r]);
        }
    }
    return true;
}

/* All ranks but this one, a bit each. */
LANE_FN uint32_t slots_peers(const alg_team_t &team)
{
    return ((1u << team.nranks) - 1) & ~(1u << team.rank);
}

#endif
