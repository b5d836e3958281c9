/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - selects GPU memory or pinned memory for a communicator over PCIe. Below one switch, stores to a peer are
 * the shortest path. Through a CPU's host bridge they may have a tenth of the rate of stores to pinned memory, so the
 * cost model decides. The plan, and so the result, is equal on all ranks. */
#include "selector/memory.h"

#include "selector/cost.h"
#include "selector/policy.h"
#include "selector/topology/topology.h"

/* Returns ALG_MEMORY_COUNT if SHUNT_ALGO does not decide. */
static alg_memory_t asked_memory(const policy_t *policy)
{
    for (uint32_t i = 0; i < policy->items; i++) {
        const policy_item_t *item = &policy->item[i];
        for (int c = 0; item->what == POLICY_ALGORITHM && c < ALG_COLLECTIVE_COUNT; c++) {
            const alg_algorithm_t *algorithm =
                item->collectives >> c & 1 ? alg_find((alg_collective_t)c, item->algorithm) : NULL;
            if (algorithm && algorithm->memory < ALG_MEMORY_COUNT)
                return algorithm->memory;
        }
    }
    return ALG_MEMORY_COUNT;
}

/* As while `shunt tune` measures: else rows of an earlier choice decide for ever. */
static bool skips_table(const policy_t *policy)
{
    const policy_item_t *item = &policy->item[0];
    return policy->items && item->what == POLICY_BUILTIN && item->collectives == (1u << ALG_COLLECTIVE_COUNT) - 1 &&
           item->from == 0 && item->to == UINT64_MAX;
}

/* The one measured last. ALG_MEMORY_COUNT: none has rows. */
static alg_memory_t tuned_memory(const sel_plan_t *plan, const sel_topology_t *pinned)
{
    char peer_class[SEL_CLASS_BYTES], pinned_class[SEL_CLASS_BYTES];
    sel_topology_class(&plan->topology, peer_class);
    sel_topology_class(pinned, pinned_class);
    const sel_tuned_t *tuned = &plan->settings.tuned;
    const uint32_t peer_hash = sel_class_hash(peer_class), pinned_hash = sel_class_hash(pinned_class);
    alg_memory_t last = ALG_MEMORY_COUNT;
    if (!sel_tuned_is_ours(plan) || tuned->rows > SEL_TUNED_ROWS)
        return last;
    for (uint32_t i = 0; i < tuned->rows; i++) {
        const uint32_t hash = tuned->row[i].class_hash;
        last = hash == peer_hash ? ALG_MEMORY_PEER : hash == pinned_hash ? ALG_MEMORY_PINNED : last;
    }
    for (uint32_t i = 0; i < SEL_MEASURED_CLASSES && last < ALG_MEMORY_COUNT; i++) { /* in order */
        const uint32_t hash = tuned->measured[i];
        last = hash == peer_hash ? ALG_MEMORY_PEER : hash == pinned_hash ? ALG_MEMORY_PINNED : last;
    }
    return last;
}

static double time_of(const sel_topology_t *topology, const alg_map_t *map, uint64_t bytes, double most)
{
    (void)sel_cost_fastest(topology, map, ALG_ALL_REDUCE, bytes, &most);
    return most;
}

/* Whether pinned memory is faster for all-reduces on average, without sizes that the real NCCL gets either way. */
static bool predicted_faster(const sel_plan_t *plan, const sel_topology_t *pinned)
{
    alg_map_t map;
    double ratio = 1;
    if (!alg_map_init_shm(&map, plan->settings.scratch_bytes))
        return false;
    for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++) {
        const uint64_t bytes = sel_cost_bound(i);
        const double most = sel_cost_to_beat(&plan->topology, ALG_ALL_REDUCE, bytes);
        if (most > 0)
            ratio *= time_of(&plan->topology, &plan->map, bytes, most) / time_of(pinned, &map, bytes, most);
    }
    return ratio > 1;
}

bool sel_plan_prefers_pinned(const sel_plan_t *plan)
{
    sel_topology_t pinned = plan->topology;
    if (pinned.link < SEL_LINK_PCIE || pinned.link == SEL_LINK_NETWORK || pinned.memory != ALG_MEMORY_PEER)
        return false;
    pinned.memory = ALG_MEMORY_PINNED;
    pinned.peers = true;
    policy_t policy;
    if (!policy_parse(plan->settings.policy, &policy, NULL, 0))
        policy.items = 0;
    alg_memory_t wanted = asked_memory(&policy);
    if (wanted == ALG_MEMORY_COUNT && !skips_table(&policy))
        wanted = tuned_memory(plan, &pinned);
    return wanted < ALG_MEMORY_COUNT ? wanted == ALG_MEMORY_PINNED : predicted_faster(plan, &pinned);
}
