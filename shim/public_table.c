/*
 * public_table.c - the functions of shunt.h about tables and those who make them.
 */
/* Before any other header: the names of shunt.h can be seen from outside. */
#pragma GCC visibility push(default)
#include "shunt.h"
#pragma GCC visibility pop

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "selector/topology.h"
#include "shim/comm.h"
#include "shim/host.h"
#include "shim/link.h"
#include "shim/nccl_env.h"
#include "shim/settings.h"
#include "shim/table_load.h"

/* The GPU that a made-up communicator is of, where none answers: that of the built-in rows. */
enum { TABLE_ARCH = 90, TABLE_MULTIPROCESSORS = 132 };

static sel_topology_t made_up_topology(uint32_t nranks, sel_link_t link)
{
    sel_topology_t topology = {.link = link, .nranks = nranks};
    shim_gpu_t gpu = {.arch = TABLE_ARCH, .multiprocessors = TABLE_MULTIPROCESSORS};
    sel_gpu_kind_t kind;
    if (link == SEL_LINK_HOST)
        return topology;
    if (!shim_host_mode() && shim_link_gpu(0, &gpu, &kind) == 0) {
        const char *nvls = shim_nccl_env("NCCL_NVLS_ENABLE");
        topology.multicast = gpu.multicast && !(nvls != NULL && strcmp(nvls, "0") == 0);
        topology.fingerprint = sel_fingerprint(&gpu.fingerprint, 1);
    }
    topology.arch = gpu.arch;
    topology.multiprocessors = gpu.multiprocessors;
    return topology;
}

static sel_plan_t *made_up_plan(uint32_t nranks, sel_link_t link)
{
    sel_plan_t *plan = malloc(sizeof(*plan));
    if (plan == NULL)
        return NULL;
    const shim_settings_t *own = shim_settings();
    const sel_topology_t topology = made_up_topology(nranks, link);
    sel_settings_t settings = {
        .scratch_bytes = own->scratch_bytes, .max_blocks = own->max_ctas, .deterministic = own->deterministic};
    snprintf(settings.policy, sizeof(settings.policy), "%s", own->algo);
    shim_table_wanted(nranks, topology.fingerprint, &settings.tuned);
    sel_plan_init(plan, &topology, &settings);
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

int shunt_table_row(uint32_t nranks, uint32_t link, int captured, uint32_t index, char *text, size_t capacity)
{
    if (nranks == 0 || nranks > ALG_MAX_RANKS || link >= SEL_LINK_COUNT || text == NULL || capacity == 0)
        return -1;
    sel_plan_t *plan = made_up_plan(nranks, (sel_link_t)link);
    if (plan == NULL)
        return -1;
    sel_row_t row;
    bool found = sel_plan_row(plan, sel_context(ALG_BFLOAT16, captured != 0), index, &row);
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

int shunt_choose(ncclComm_t handle, uint64_t count, int type, int captured, shunt_decision_t *decision)
{
    if (decision == NULL || decision->size == 0 || type < 0 || type >= ALG_TYPE_COUNT)
        return -1;
    const shim_comm_t *comm = shim_comm_find(handle);
    if (comm == NULL || atomic_load(&comm->phase) != SHIM_COMM_ATTACHED)
        return -1;
    const sel_query_t query = {
        .collective = ALG_ALL_REDUCE, .type = (alg_type_t)type, .count = count, .captured = captured != 0};
    const sel_choice_t choice = sel_choose(comm->plan, &query);
    const shunt_decision_t full = {.size = decision->size,
                                   .taken = choice.algorithm != NULL,
                                   .collective = "allreduce",
                                   .algorithm = choice.algorithm != NULL ? choice.algorithm->name : "nccl",
                                   .reason = sel_reason_text(choice.reason),
                                   .bytes = count * alg_type_bytes(query.type),
                                   .blocks = choice.blocks,
                                   .threads = choice.threads};
    memcpy(decision, &full, full.size < sizeof(full) ? full.size : sizeof(full));
    return 0;
}

const char *shunt_algorithm(uint32_t index)
{
    return index < alg_registry_count ? alg_registry[index]->name : NULL;
}

/* The same plan with another policy; NULL without memory. */
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
