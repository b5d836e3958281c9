/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.h - the predicted time of a collective on machines that were not
 * measured. Private to this room.
 */
#ifndef SHUNT_COST_H
#define SHUNT_COST_H

#include "selector/selector.h"

/* The model is evaluated at these sizes, each for all sizes up to the next: two per octave, from 1 KiB to 1 GiB. */
enum { SEL_COST_BOUNDS = 41 };
uint64_t sel_cost_bound(uint32_t index);

/* A default grid, for an algorithm without a measured one; `algorithm` is NULL. */
sel_choice_t sel_usual_grid(const sel_topology_t *topology, uint64_t bytes);
/* The algorithm that the model expects to be faster than the real NCCL, among those whose scratch holds the message;
 * NULL without a clear lead. */
sel_choice_t sel_cost_choose(const sel_topology_t *topology, const alg_map_t *map, alg_collective_t collective,
                             uint64_t bytes);
/* The same where they reach each other through the host's memory (cost_shm.c). */
const alg_algorithm_t *sel_cost_shm(const sel_topology_t *topology, const alg_map_t *map, alg_collective_t collective,
                                    uint64_t bytes);

#endif
