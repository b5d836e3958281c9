/* SPDX-License-Identifier: Apache-2.0 */
/* places.h - where short calls lie in the scratch, so that one kernel can serve several (list.h) while another rank
 * makes them one by one.
 *
 * A call of up to places_room bytes uses one of PLACES places, in turn by its number; longer and rooted ones use the
 * halves. A kernel sends the data of all of its calls, at most PLACES_LIST, before it reads any. There are twice as
 * many places, so no rank overwrites data that a peer has yet to read (docs/lab/proofs.md). */
#ifndef SHUNT_PLACES_H
#define SHUNT_PLACES_H

#include "algorithms/device/epoch.h"
#include "algorithms/device/kernel_call.h"
#include "algorithms/device/slots.h"

enum { PLACES = 32, PLACES_LIST = 16 };
static_assert((PLACES & (PLACES - 1)) == 0, "PLACES is not a power of two");
static_assert(PLACES >= 2 * PLACES_LIST, "a place is used again before all have read it");

/* Most bytes of a rank's block that fit a place, with escape words; 0: none fit. */
static inline uint64_t places_room(const alg_team_t *team)
{
    const uint64_t vector = slots_bytes(MARK_ESCAPE, team->nranks - 1, 4) / 4;
    return team->nranks < 2 ? 0 : team->places_bytes / PLACES / vector / 4 * 4 * VEC;
}

static inline bool places_serve(const alg_team_t *team, const alg_call_t *call)
{
    return call->count * alg_type_bytes(call->type) <= places_room(team);
}

static inline turns_t places_turns(const alg_team_t *team)
{
    return {(uint32_t)((team->places_offset - team->half_offset) / VEC), (uint32_t)(team->places_bytes / PLACES / VEC),
            PLACES - 1};
}

static inline turns_t places_or_halves(const alg_team_t *team, const alg_call_t *call)
{
    return places_serve(team, call) ? places_turns(team) : turns_t{0, (uint32_t)(team->half_bytes / VEC), 1};
}

/* Offset of the call's slots from half 0, in bytes. */
LANE_FN uint64_t turns_at(const turns_t &turns, uint64_t epoch)
{
    return (uint64_t)(turns.first + ((uint32_t)(epoch / EPOCH_UNIT) & turns.mask) * turns.step) * VEC;
}

LANE_FN uint64_t turns_held(const turns_t &turns)
{
    return turns.first | turns.step | turns.mask;
}

#endif
