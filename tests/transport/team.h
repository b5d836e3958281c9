/* SPDX-License-Identifier: Apache-2.0 */
/*
 * team.h - build a scratch with other ranks, stage by stage, as in the set-up of a
 * communicator. For bodies of children.h: 0, or the line that failed.
 */
#ifndef SHUNT_TESTS_TEAM_H
#define SHUNT_TESTS_TEAM_H

#include "algorithms/scratch.h"
#include "children.h"

typedef struct team_plan {
    net_key_t key; /* of this round */
    alg_device_t device;
    net_memory_kind_t kind;
    int devices; /* rank r uses ordinal r % devices (CUDA) */
    alg_set_t set;
    uint64_t id; /* for a new scratch */
    alg_map_t map;
} team_plan_t;

/* Make or reuse the scratch of `rank` and prove it. *reused tells the two apart. */
int team_build(const team_plan_t *plan, uint32_t rank, uint32_t nranks, alg_scratch_t **scratch, bool *reused);
/* All ranks post an offer and get all others'; `round` names the exchange. */
int team_exchange(const team_plan_t *plan, const char *round, uint32_t rank, uint32_t nranks,
                  const uint8_t offer[NET_OFFER_BYTES], uint8_t offers[][NET_OFFER_BYTES]);
/* A barrier of all ranks: `round` names it. */
int team_meet(const team_plan_t *plan, const char *round, uint32_t rank, uint32_t nranks);

#endif
