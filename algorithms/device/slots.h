/*
 * slots.h - mailboxes of vectors in a half of scratch.
 *
 * A region of `slots` x `vectors` vectors lies at the same offset in every
 * rank's scratch. A peer puts into it, the owner takes. What slots_take reads
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
    uint64_t vectors; /* of one slot */
} slots_t;

/* Scratch that a region takes. */
LANE_HOST_FN uint64_t slots_bytes(mark_t mark, uint64_t slots, uint64_t vectors)
{
    const uint64_t escape = mark == MARK_ESCAPE ? (slots * vectors * 4 + VEC - 1) / VEC * VEC : 0;
    return slots * vectors * VEC + escape;
}

LANE_FN slots_t slots_at(uint64_t offset, uint64_t slots, uint64_t vectors)
{
    return slots_t{offset, offset + slots * vectors * VEC, vectors};
}

/* Make x fit to be put; returns its escape word. What is not an integer has been cleaned before (input.h). */
template <mark_t MARK> LANE_FN uint32_t slots_seal(vec16_t &x)
{
    return MARK == MARK_ESCAPE ? mark_clean<MARK>(x) : 0;
}

/* Own vector v, sealed, to slot `slot` of a peer. */
template <mark_t MARK>
LANE_FN void slots_put(const slots_t &s, uint8_t *peer, uint32_t slot, uint64_t v, const vec16_t &x, uint32_t escape)
{
    const uint64_t i = slot * s.vectors + v;
    lane_put(peer + s.data + i * VEC, x);
    if (MARK == MARK_ESCAPE)
        lane_put_word(peer + s.escape + i * 4, escape);
}

/* Wait for vector v of every slot s in [0, n) for which `wanted >> s & 1`, into x[s]; re-arm them.
 * All of them are polled in one go, so their loads are in flight together. False: the wait was broken. */
template <mark_t MARK>
LANE_FN bool slots_take(lane_t &lane, const alg_team_t &team, const slots_t &s, uint32_t wanted, uint64_t v,
                        vec16_t x[ALG_MAX_RANKS])
{
    uint8_t *own = team.scratch[team.rank];
    uint8_t *const data = own + s.data + v * VEC;
    uint8_t *const words = own + s.escape + v * 4;
    uint32_t escape[ALG_MAX_RANKS];
    for (;;) {
        LANE_UNROLL
        for (uint32_t r = 0; r < ALG_MAX_RANKS; r++) {
            if (wanted >> r & 1) {
                x[r] = lane_poll(data + r * s.vectors * VEC);
                if (MARK == MARK_ESCAPE)
                    escape[r] = lane_poll_word(words + r * s.vectors * 4);
            }
        }
        bool all = true;
        LANE_UNROLL
        for (uint32_t r = 0; r < ALG_MAX_RANKS; r++) {
            if (wanted >> r & 1)
                all = all && mark_arrived<MARK>(x[r]) && (MARK != MARK_ESCAPE || escape[r] != SENTINEL);
        }
        if (all)
            break;
        if (lane_stop(lane, team))
            return false;
    }
    LANE_UNROLL
    for (uint32_t r = 0; r < ALG_MAX_RANKS; r++) {
        if (wanted >> r & 1) {
            lane_rearm(data + r * s.vectors * VEC);
            if (MARK == MARK_ESCAPE) {
                lane_rearm_word(words + r * s.vectors * 4);
                mark_unescape(x[r], escape[r]);
            }
        }
    }
    return true;
}

#endif
