/* SPDX-License-Identifier: Apache-2.0 */
/* public_table.c - functions of shunt.h about algorithm tables. */
/* See public.c. */
#pragma GCC visibility push(default)
#include "shunt.h"
#pragma GCC visibility pop

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "selector/topology/topology.h"
#include "shim/base/settings.h"
#include "shim/comm/comm.h"
#include "shim/setup/table_load.h"

static sel_plan_t *made_up_plan(const sel_topology_t *topology)
{
    sel_plan_t *plan = malloc(sizeof(*plan));
    if (plan == NULL)
        return NULL;
    const shim_settings_t *own = shim_settings();
    sel_settings_t settings = {
        .scratch_bytes = own->scratch_bytes, .max_blocks = own->max_ctas, .deterministic = own->deterministic};
    snprintf(settings.policy, sizeof(settings.policy), "%s", own->algo);
    shim_table_wanted(topology->nranks, topology->fingerprint, &settings.tuned);
    sel_plan_init(plan, topology, &settings);
    if (sel_plan_prefers_pinned(plan)) { /* as set-up does */
        sel_topology_t pinned = *topology;
        pinned.memory = ALG_MEMORY_PINNED;
        pinned.peers = true;
        sel_plan_init(plan, &pinned, &settings);
    }
    return plan;
}

static void row_text(const sel_row_t *row, char *text, size_t capacity)
{
    char to[24] = "";
    if (row->to_bytes != UINT64_MAX)
        snprintf(to, sizeof(to), "%llu", (unsigned long long)row->to_bytes);
    const sel_rule_t *rule = &row->rule;
    if (rule->algorithm == NULL) {
        snprintf(text, capacity, "%llu-%s nccl (%s)", (unsigned long long)row->from_bytes, to, rule->source);
        return;
    }
    snprintf(text, capacity, "%llu-%s %s, at most %u blocks of %u threads (%s)", (unsigned long long)row->from_bytes,
             to, rule->algorithm->name, rule->blocks, rule->threads, rule->source);
}

/* False for an unfilled structure or one of an older header. */
static bool facts_topology(const shunt_communicator_t *facts, sel_topology_t *topology)
{
    char name[sizeof(facts->class_name)];
    if (facts == NULL || facts->size < sizeof(*facts))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)sizeof(name) - 1, facts->class_name);
    if (!sel_topology_parse(name, topology) || topology->nranks == 0 || topology->nranks > ALG_MAX_RANKS)
        return false;
    topology->fingerprint = facts->machine;
    return true;
}

static alg_collective_t find_collective(const char *name)
{
    return name != NULL ? alg_collective_find(name) : ALG_COLLECTIVE_COUNT;
}

int shunt_table_row(const shunt_communicator_t *facts, const char *collective, uint32_t index, char *text,
                    size_t capacity)
{
    sel_topology_t topology;
    const alg_collective_t asked = find_collective(collective);
    bool valid = text != NULL && capacity > 0 && asked < ALG_COLLECTIVE_COUNT && facts_topology(facts, &topology);
    sel_plan_t *plan = valid ? made_up_plan(&topology) : NULL;
    if (plan == NULL)
        return -1;
    sel_row_t row;
    bool found = sel_plan_row(plan, asked, sel_kind(ALG_BFLOAT16), index, &row);
    if (found)
        row_text(&row, text, capacity);
    free(plan);
    return found ? 0 : -1;
}

int shunt_communicator(ncclComm_t handle, shunt_communicator_t *facts)
{
    if (facts == NULL || facts->size == 0)
        return -1;
    shim_comm_t *comm = shim_comm_acquire(handle);
    if (comm == NULL)
        return -1;
    shunt_communicator_t full = {.size = facts->size};
    if (atomic_load(&comm->phase) == SHIM_COMM_ATTACHED) {
        const sel_topology_t *topology = &comm->plan->topology;
        full.ranks = topology->nranks;
        full.machine = topology->fingerprint;
        sel_topology_class(topology, full.class_name);
    }
    shim_comm_release(comm);
    memcpy(facts, &full, full.size < sizeof(full) ? full.size : sizeof(full));
    return 0;
}

static void choose(const shim_comm_t *comm, alg_collective_t asked, alg_type_t type, uint64_t count,
                   shunt_decision_t *decision)
{
    const sel_query_t query = {.collective = asked, .type = type, .count = count};
    const uint32_t blocks = alg_collective_blocks(asked, comm->nranks);
    const sel_choice_t choice = sel_choose(comm->plan, &query);
    const shunt_decision_t full = {.size = decision->size,
                                   .taken = choice.algorithm != NULL,
                                   .collective = alg_collective_name(asked),
                                   .algorithm = choice.algorithm != NULL ? choice.algorithm->name : "nccl",
                                   .reason = sel_reason_text(choice.reason),
                                   .bytes = count * blocks * alg_type_bytes(type),
                                   .blocks = choice.blocks,
                                   .threads = choice.threads};
    memcpy(decision, &full, full.size < sizeof(full) ? full.size : sizeof(full));
}

int shunt_choose(ncclComm_t handle, const char *collective, uint64_t count, int type, shunt_decision_t *decision)
{
    const alg_collective_t asked = find_collective(collective);
    if (decision == NULL || decision->size == 0 || type < 0 || type >= ALG_TYPE_COUNT || asked == ALG_COLLECTIVE_COUNT)
        return -1;
    shim_comm_t *comm = shim_comm_acquire(handle);
    if (comm == NULL)
        return -1;
    const bool attached = atomic_load(&comm->phase) == SHIM_COMM_ATTACHED;
    if (attached)
        choose(comm, asked, (alg_type_t)type, count, decision);
    shim_comm_release(comm);
    return attached ? 0 : -1;
}

const char *shunt_algorithm(const char *collective, uint32_t index)
{
    const alg_collective_t asked = find_collective(collective);
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i]->collective == asked && index-- == 0)
            return alg_registry[i]->name;
    }
    return NULL;
}

static sel_plan_t *plan_with(const sel_plan_t *plan, const char *policy)
{
    sel_plan_t *other = malloc(sizeof(*other));
    sel_settings_t settings = plan->settings;
    snprintf(settings.policy, sizeof(settings.policy), "%s", policy);
    if (other != NULL)
        sel_plan_init(other, &plan->topology, &settings);
    return other;
}

int shunt_set_policy(ncclComm_t handle, const char *policy)
{
    shim_comm_t *comm = policy != NULL && sel_policy_check(policy, NULL, 0) ? shim_comm_acquire(handle) : NULL;
    if (comm == NULL)
        return -1;
    sel_plan_t *plan = NULL;
    if (atomic_load(&comm->phase) == SHIM_COMM_ATTACHED)
        plan = plan_with(comm->plan, policy);
    if (plan != NULL) {
        sel_plan_t *before = comm->plan;
        comm->plan = plan;
        free(before);
    }
    shim_comm_release(comm);
    return plan != NULL ? 0 : -1;
}

int shunt_table_path(uint64_t machine, char *path, size_t capacity)
{
    return path != NULL && shim_table_path(machine, path, capacity) ? 0 : -1;
}
