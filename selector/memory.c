/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - selects GPU memory or host memory for a communicator over PCIe. Below one switch, stores to a peer are the
 * shortest path. Through a CPU's host bridge they may have a tenth of the rate of stores to host memory: the cost model
 * decides. The plan, and so the result, is the same on all ranks. */
#include "selector/memory.h"

#include "selector/cost.h"
#include "selector/policy.h"
#include "selector/topology/topology.h"

/* ALG_MEMORY_COUNT: SHUNT_ALGO does not decide. */
static alg_memory_t asked_memory(const sel_plan_t *plan)
{
    policy_t policy;
    if (!policy_parse(plan->settings.policy, &policy, NULL, 0))
        return ALG_MEMORY_COUNT;
    for (uint32_t i = 0; i < policy.items; i++) {
        const policy_item_t *item = &policy.item[i];
        for (int c = 0; item->what == POLICY_ALGORITHM && c < ALG_COLLECTIVE_COUNT; c++) {
            const alg_algorithm_t *algorithm =
                item->collectives >> c & 1 ? alg_find((alg_collective_t)c, item->algorithm) : NULL;
            if (algorithm && algorithm->memory < ALG_MEMORY_COUNT)
                return algorithm->memory;
        }
    }
    return ALG_MEMORY_COUNT;
}

/* ALG_MEMORY_COUNT: `shunt tune` wrote no rows. */
static alg_memory_t tuned_memory(const sel_plan_t *plan, const sel_topology_t *host)
{
    char peer_class[SEL_CLASS_BYTES], host_class[SEL_CLASS_BYTES];
    sel_topology_class(&plan->topology, peer_class);
    sel_topology_class(host, host_class);
    const sel_tuned_t *tuned = &plan->settings.tuned;
    const uint32_t peer_hash = sel_class_hash(peer_class), host_hash = sel_class_hash(host_class);
    for (uint32_t i = sel_tuned_is_ours(plan) && tuned->rows <= SEL_TUNED_ROWS ? tuned->rows : 0; i-- > 0;) {
        if (tuned->row[i].class_hash == peer_hash)
            return ALG_MEMORY_PEER;
        if (tuned->row[i].class_hash == host_hash)
            return ALG_MEMORY_SHM;
    }
    return ALG_MEMORY_COUNT;
}

static double time_of(const sel_topology_t *topology, const alg_map_t *map, uint64_t bytes, double most)
{
    (void)sel_cost_fastest(topology, map, ALG_ALL_REDUCE, bytes, &most);
    return most;
}

/* Compares all-reduces of all sizes, except those that the real NCCL gets either way. */
static bool predicted_faster(const sel_plan_t *plan, const sel_topology_t *host)
{
    alg_map_t map;
    double ratio = 1;
    if (!alg_map_init_shm(&map, plan->settings.scratch_bytes))
        return false;
    for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++) {
        const uint64_t bytes = sel_cost_bound(i);
        const double most = sel_cost_to_beat(&plan->topology, ALG_ALL_REDUCE, bytes);
        if (most > 0)
            ratio *= time_of(&plan->topology, &plan->map, bytes, most) / time_of(host, &map, bytes, most);
    }
    return ratio > 1;
}

bool sel_plan_prefers_host(const sel_plan_t *plan)
{
    sel_topology_t host = plan->topology;
    if (host.link < SEL_LINK_PCIE || host.link == SEL_LINK_NETWORK || host.memory != ALG_MEMORY_PEER)
        return false;
    host.memory = ALG_MEMORY_SHM;
    host.peers = true;
    const alg_memory_t asked = asked_memory(plan);
    const alg_memory_t settled = asked < ALG_MEMORY_COUNT ? asked : tuned_memory(plan, &host);
    return settled < ALG_MEMORY_COUNT ? settled == ALG_MEMORY_SHM : predicted_faster(plan, &host);
}
