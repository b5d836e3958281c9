/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h - the predicted time of a collective on machines that were not measured. */
#ifndef SHUNT_COST_H
#define SHUNT_COST_H

#include "selector/selector.h"

/* Sizes at which the model is evaluated, each for sizes up to the next: two per octave, 1 KiB to 1 GiB. */
enum { SEL_COST_BOUNDS = 41 };
uint64_t sel_cost_bound(uint32_t index);

/* The model's fastest algorithm at the end of the band of `bytes`, of those that fit the scratch. NULL unless it has a
 * clear lead over the real NCCL at both ends. */
sel_choice_t sel_cost_choose(const sel_topology_t *topology, const alg_map_t *map, alg_collective_t collective,
                             uint64_t bytes);

/* Parts of the model. Times in us. */

/* The fastest algorithm that takes less than *time; sets *time to its time. NULL: none. */
const alg_algorithm_t *sel_cost_fastest(const sel_topology_t *topology, const alg_map_t *map,
                                        alg_collective_t collective, uint64_t bytes, double *time);
/* The real NCCL's time divided by the required lead; 0: unknown. */
double sel_cost_to_beat(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes);
/* The real NCCL's start over PCIe; 0: unknown. */
double sel_cost_pcie_start(alg_collective_t collective, double nranks);
/* Through pinned memory (cost_pinned.c). Unless `only` is NULL, considers no other algorithm. */
const alg_algorithm_t *sel_cost_pinned_fastest(const sel_topology_t *topology, const alg_map_t *map,
                                               alg_collective_t collective, uint64_t bytes, const alg_algorithm_t *only,
                                               double *time);
double sel_cost_pinned_nccl(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes);

#endif
