/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the plan of a communicator. Only `decide` knows the order of the sources of rules (docs/tuning.md). Sizes
 * without a rule are forwarded. */
#include "selector/built_in.h"
#include "selector/cost.h"
#include "selector/memory.h"
#include "selector/policy.h"
#include "selector/topology/topology.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* The built-in rows were measured without multicast, with which NCCL moves large messages faster. How much was not
 * measured: above this size only a tuned table or SHUNT_ALGO selects Shunt. */
#define MULTICAST_MOST_BYTES (4 * MIB)

typedef struct sources {
    const sel_plan_t *plan;
    policy_t policy;
    alg_collective_t collective;
    const sel_tuned_row_t *tuned[SEL_TUNED_ROWS];
    uint32_t tuned_rows;
    bool old; /* the tuned rows were measured with another NCCL */
    const sel_built_in_t *built_in[SEL_BUILT_IN_MOST];
    uint32_t built_in_rows;
} sources_t;

bool sel_tuned_is_ours(const sel_plan_t *plan)
{
    const sel_tuned_t *tuned = &plan->settings.tuned;
    return tuned->forced || tuned->machine == plan->topology.fingerprint;
}

/* Uses the table's figures if they were measured on the same kind of links, and on at least as many GPUs; behind
 * NVSwitch any number will do, since a GPU's rate does not depend on it. Figures of older tables name no links
 * (SEL_LINK_CPU): they are used only behind NVSwitch, the fastest. Impossible values from another process are ignored.
 */
static void find_measured(sel_plan_t *plan)
{
    const sel_topology_t *topology = &plan->topology;
    const bool ours = sel_tuned_is_ours(plan), switched = topology->link == SEL_LINK_NVSWITCH;
    const sel_measured_t *link = &plan->settings.tuned.link;
    const bool same = link->link == topology->link || (switched && link->link == SEL_LINK_CPU);
    const bool found = ours && link->bytes_per_us > 0 && link->gpus >= 2 && same;
    plan->topology.measured = found && (switched || topology->nranks <= link->gpus) ? *link : (sel_measured_t){0};
    const sel_pinned_measured_t *pinned = &plan->settings.tuned.pinned;
    const bool both = pinned->store_bytes_per_us > 0 && pinned->load_bytes_per_us > 0 && pinned->gpus >= 2;
    const bool enough = pinned->link == topology->link && topology->nranks <= pinned->gpus;
    plan->topology.pinned = ours && both && enough ? *pinned : (sel_pinned_measured_t){0};
}

static void find_tuned(sources_t *sources)
{
    const sel_topology_t *topology = &sources->plan->topology;
    const sel_tuned_t *tuned = &sources->plan->settings.tuned;
    char name[SEL_CLASS_BYTES];
    sel_topology_class(topology, name);
    const uint32_t hash = sel_class_hash(name);
    sources->tuned_rows = 0;
    if (!sel_tuned_is_ours(sources->plan))
        return;
    for (uint32_t i = 0; i < tuned->rows && i < SEL_TUNED_ROWS; i++) {
        const sel_tuned_row_t *row = &tuned->row[i];
        const bool known = row->algorithm == SEL_NCCL || (row->algorithm < alg_registry_count &&
                                                          alg_registry[row->algorithm]->collective == row->collective &&
                                                          alg_registry[row->algorithm]->memory == topology->memory);
        if (row->collective == sources->collective && row->class_hash == hash && known)
            sources->tuned[sources->tuned_rows++] = row;
    }
}

static void find_built_in(sources_t *sources)
{
    sel_topology_t topology = sources->plan->topology;
    char name[SEL_CLASS_BYTES];
    topology.multicast = false; /* see MULTICAST_MOST_BYTES */
    sel_topology_class(&topology, name);
    if (topology.memory == ALG_MEMORY_PINNED) /* of any architecture; see is_sure */
        snprintf(name, sizeof name, "shm-%u", topology.nranks);
    if (topology.memory == ALG_MEMORY_NETWORK)
        snprintf(name, sizeof name, "network-%ux%u", topology.nodes, sel_team_ranks(&topology));
    const char *class_name = topology.link == SEL_LINK_CPU ? "host" : name;
    sources->built_in_rows = 0;
    if (topology.peers) /* the rows were measured against NCCL without peer access */
        return;
    for (uint32_t i = 0; i < sel_built_in_count && sources->built_in_rows < SEL_BUILT_IN_MOST; i++) {
        const sel_built_in_t *row = &sel_built_in[i];
        if (row->collective == sources->collective && strcmp(row->class_name, class_name) == 0)
            sources->built_in[sources->built_in_rows++] = row;
    }
}

static const policy_item_t *policy_item(const sources_t *sources, uint64_t bytes)
{
    const sel_plan_t *plan = sources->plan;
    const bool cpu = plan->topology.link == SEL_LINK_CPU;
    const policy_item_t *last = NULL;
    for (uint32_t i = 0; i < sources->policy.items; i++) {
        const policy_item_t *item = &sources->policy.item[i];
        if (!(item->collectives >> sources->collective & 1) || bytes < item->from || bytes > item->to ||
            (cpu && item->what == POLICY_NCCL))
            continue; /* the CPU device cannot forward */
        if (item->what == POLICY_ALGORITHM &&
            alg_find(sources->collective, item->algorithm)->memory != plan->topology.memory)
            continue; /* meant for other communicators */
        last = item;
    }
    return last;
}

static bool from_policy(const sources_t *sources, const policy_item_t *item, uint64_t bytes, sel_rule_t *rule)
{
    if (!item || item->what == POLICY_BUILTIN)
        return false;
    const sel_choice_t usual = sel_usual_grid(&sources->plan->topology, sources->collective, bytes);
    rule->algorithm = item->what == POLICY_ALGORITHM ? alg_find(sources->collective, item->algorithm) : NULL;
    rule->blocks = item->blocks ? item->blocks : (uint16_t)usual.blocks;
    rule->threads = item->threads ? item->threads : (uint16_t)usual.threads;
    rule->reason = SEL_FORWARD_POLICY;
    rule->source = "policy";
    return true;
}

sel_measurement_t sel_plan_measurement(const sel_plan_t *plan)
{
    const sel_tuned_t *tuned = &plan->settings.tuned;
    char name[SEL_CLASS_BYTES];
    sel_topology_class(&plan->topology, name);
    const uint32_t hash = sel_class_hash(name);
    if (!sel_tuned_is_ours(plan))
        return SEL_NOT_MEASURED;
    for (uint32_t i = 0; i < SEL_MEASURED_CLASSES; i++) {
        if (tuned->measured[i] == hash)
            return !(tuned->old >> i & 1)  ? SEL_MEASURED
                   : tuned->known >> i & 1 ? SEL_MEASURED_EARLIER
                                           : SEL_MEASURED_OTHER;
    }
    for (uint32_t i = 0; i < tuned->rows && i < SEL_TUNED_ROWS; i++) {
        if (tuned->row[i].class_hash == hash)
            return SEL_MEASURED; /* tables of earlier versions have no more information */
    }
    return SEL_NOT_MEASURED;
}

/* A row that selects Shunt and was measured with another NCCL applies only where the model also predicts a lead. */
static bool holds(const sources_t *sources, const sel_tuned_row_t *row, uint64_t bytes)
{
    const sel_plan_t *plan = sources->plan;
    return !sources->old || row->algorithm == SEL_NCCL ||
           sel_cost_choose(&plan->topology, &plan->map, sources->collective, bytes).algorithm;
}

static bool from_tuned(const sources_t *sources, uint32_t kind, uint64_t bytes, sel_rule_t *rule)
{
    for (uint32_t i = sources->tuned_rows; i-- > 0;) {
        const sel_tuned_row_t *row = sources->tuned[i];
        if (bytes < row->from_bytes || bytes > row->to_bytes || !(row->kinds >> kind & 1) ||
            !holds(sources, row, bytes))
            continue;
        rule->algorithm = row->algorithm == SEL_NCCL ? NULL : alg_registry[row->algorithm];
        rule->blocks = row->blocks;
        rule->threads = row->threads;
        rule->source = "tuned table";
        return true;
    }
    return false;
}

static bool multicast_may_win(const sources_t *sources, uint64_t bytes)
{
    const alg_collective_t collective = sources->collective;
    return !sources->plan->own_only && sources->plan->topology.multicast && bytes > MULTICAST_MOST_BYTES &&
           (collective == ALG_ALL_REDUCE || collective == ALG_REDUCE_SCATTER || collective == ALG_ALL_GATHER);
}

/* Of the rows of pinned memory, measured on sm_90, other architectures use those with the lead of an estimate. */
static bool is_sure(const sel_topology_t *topology, const sel_built_in_t *row)
{
    return topology->memory != ALG_MEMORY_PINNED || topology->arch == 90 || strcmp(row->algorithm, "shm-oneshot") == 0;
}

static bool from_built_in(const sources_t *sources, uint64_t bytes, sel_rule_t *rule)
{
    uint32_t i = 0;
    while (i < sources->built_in_rows && bytes > sources->built_in[i]->to_bytes)
        i++;
    if (i == sources->built_in_rows || multicast_may_win(sources, bytes))
        return false;
    const sel_built_in_t *row = sources->built_in[i];
    if (!is_sure(&sources->plan->topology, row))
        return false;
    rule->algorithm = alg_find(sources->collective, row->algorithm);
    rule->blocks = row->blocks;
    rule->threads = row->threads;
    rule->source = row->source;
    if (rule->algorithm && rule->algorithm->memory != sources->plan->topology.memory)
        return false; /* a row for another memory */
    return rule->algorithm || strcmp(row->algorithm, "nccl") == 0;
}

/* For classes without measurements. */
static bool from_model(const sources_t *sources, uint64_t bytes, sel_rule_t *rule)
{
    if (sources->built_in_rows || multicast_may_win(sources, bytes))
        return false;
    const sel_choice_t choice =
        sel_cost_choose(&sources->plan->topology, &sources->plan->map, sources->collective, bytes);
    rule->algorithm = choice.algorithm;
    rule->blocks = (uint16_t)choice.blocks;
    rule->threads = (uint16_t)choice.threads;
    rule->source = "predicted";
    return choice.algorithm != NULL;
}

/* For plans that never forward: the model's fastest algorithm, with the grid of its last built-in row for smaller
 * messages, else the usual grid. */
static void from_ours(const sources_t *sources, uint64_t bytes, sel_rule_t *rule)
{
    double time = HUGE_VAL;
    const sel_plan_t *plan = sources->plan;
    const sel_choice_t usual = sel_usual_grid(&plan->topology, sources->collective, bytes);
    rule->algorithm = sel_cost_fastest(&plan->topology, &plan->map, sources->collective, bytes, &time);
    if (!rule->algorithm)
        return;
    rule->blocks = (uint16_t)usual.blocks;
    rule->threads = (uint16_t)usual.threads;
    rule->source = "predicted";
    for (uint32_t i = 0; i < sources->built_in_rows; i++) {
        const sel_built_in_t *row = sources->built_in[i];
        if (row->to_bytes < bytes && strcmp(row->algorithm, rule->algorithm->name) == 0) {
            rule->blocks = row->blocks;
            rule->threads = row->threads;
            rule->source = row->source;
        }
    }
}

static bool excluded(const policy_t *policy, const alg_algorithm_t *algorithm)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i] == algorithm)
            return policy->excluded >> i & 1;
    }
    return false;
}

/* Whole warps, and at most the threads that the kernel was built for. */
static uint16_t whole_warps(uint32_t threads)
{
    threads = (threads + 31) / 32 * 32;
    return (uint16_t)(threads < 32 ? 32 : threads > SEL_MOST_THREADS ? SEL_MOST_THREADS : threads);
}

/* More are no faster, with so many blocks (selector/measured/slim-2-h100.csv). Bulk's number is fixed. */
static uint32_t most_threads(const sel_rule_t *rule, uint32_t blocks)
{
    if (strcmp(rule->algorithm->name, "bulk") == 0)
        return rule->threads;
    return strcmp(rule->algorithm->name, "push") == 0 && blocks >= 32 ? 512 : SEL_MOST_THREADS;
}

/* A call's time rests on blocks and threads together. Doubled, since a block's room is a power of two (share.c). */
static void cap_blocks(const sel_plan_t *plan, sel_rule_t *rule)
{
    const uint32_t most = plan->settings.max_blocks, all = (uint32_t)rule->threads * rule->blocks;
    if (!most || rule->blocks <= most)
        return;
    while (rule->threads && 2u * rule->threads <= most_threads(rule, most) && 2u * rule->threads * most <= all)
        rule->threads *= 2;
    rule->blocks = (uint16_t)most;
}

static sel_rule_t decide(const sources_t *sources, uint32_t kind, uint64_t bytes)
{
    static const sel_rule_t nobody = {NULL, 0, 0, SEL_FORWARD_TABLE, "no row"};
    const policy_item_t *item = policy_item(sources, bytes);
    sel_rule_t rule = nobody;
    if (!from_policy(sources, item, bytes, &rule) && (item || !from_tuned(sources, kind, bytes, &rule)) &&
        !from_built_in(sources, bytes, &rule) && !from_model(sources, bytes, &rule))
        rule = nobody;
    if (!rule.algorithm && sources->plan->own_only && rule.reason == SEL_FORWARD_TABLE)
        from_ours(sources, bytes, &rule);
    if (rule.algorithm && excluded(&sources->policy, rule.algorithm)) {
        rule.algorithm = NULL;
        rule.source = "policy";
    }
    if (!rule.algorithm) {
        rule.blocks = rule.threads = 0;
        return rule;
    }
    rule.reason = SEL_TAKEN;
    rule.blocks = rule.blocks ? rule.blocks : 1;
    if (sources->plan->topology.link == SEL_LINK_CPU)
        return rule;
    if (!item || !item->threads)
        cap_blocks(sources->plan, &rule);
    rule.threads = whole_warps(rule.threads);
    return rule;
}

static int compare_bytes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

enum { MOST_CUTS = 3 + 2 * (POLICY_MAX_ITEMS + SEL_TUNED_ROWS) + SEL_BUILT_IN_MOST + SEL_COST_BOUNDS };

/* Possible beginnings of bands. */
typedef struct cuts {
    uint32_t count;
    uint64_t at[MOST_CUTS];
} cuts_t;

static void add_bounds(cuts_t *cuts, uint64_t from, uint64_t to)
{
    cuts->at[cuts->count++] = from;
    if (to != UINT64_MAX)
        cuts->at[cuts->count++] = to + 1;
}

/* Boundaries of all sources, sorted; some occur twice. */
static void find_cuts(const sources_t *sources, cuts_t *cuts)
{
    cuts->count = 0;
    add_bounds(cuts, 0, MULTICAST_MOST_BYTES);
    cuts->at[cuts->count++] = sel_usual_few(sources->collective) + 1;
    for (uint32_t i = 0; i < sources->policy.items; i++) {
        if (sources->policy.item[i].collectives >> sources->collective & 1)
            add_bounds(cuts, sources->policy.item[i].from, sources->policy.item[i].to);
    }
    for (uint32_t i = 0; i < sources->tuned_rows; i++)
        add_bounds(cuts, sources->tuned[i]->from_bytes, sources->tuned[i]->to_bytes);
    for (uint32_t i = 0; i < sources->built_in_rows; i++) {
        if (sources->built_in[i]->to_bytes != UINT64_MAX)
            cuts->at[cuts->count++] = sources->built_in[i]->to_bytes + 1;
    }
    for (uint32_t i = 0; i < SEL_COST_BOUNDS && (!sources->built_in_rows || sources->old || sources->plan->own_only);
         i++)
        cuts->at[cuts->count++] = sel_cost_bound(i);
    qsort(cuts->at, cuts->count, sizeof cuts->at[0], compare_bytes);
}

/* Tuned rows belong to one collective; the other cuts may occur in each. */
_Static_assert(ALG_COLLECTIVE_COUNT *(MOST_CUTS - 2 * SEL_TUNED_ROWS) + 2 * SEL_TUNED_ROWS <= SEL_BANDS,
               "a plan may have more bands");
/* Policy items without a grid, and the model, add one rule per algorithm (at most 32 of one memory) and usual grid. Two
 * more rules stand for no algorithm and excluded ones. */
_Static_assert(ALG_COLLECTIVE_COUNT *(POLICY_MAX_ITEMS + SEL_BUILT_IN_MOST) + SEL_TUNED_ROWS + 2 * 2 * 32 + 2 <=
                   SEL_RULES,
               "a plan may have more rules");

static bool same(const sel_rule_t *a, const sel_rule_t *b)
{
    return a->algorithm == b->algorithm && a->blocks == b->blocks && a->threads == b->threads &&
           a->reason == b->reason && strcmp(a->source, b->source) == 0;
}

static uint16_t rule_index(sel_plan_t *plan, const sel_rule_t *rule)
{
    for (uint32_t i = plan->rules; i-- > 0;) { /* most rules equal the last one */
        if (same(&plan->rule[i], rule))
            return (uint16_t)i;
    }
    plan->rule[plan->rules] = *rule;
    return (uint16_t)plan->rules++;
}

/* Sender and receiver may use different types for a message's bytes, but must choose alike. */
static uint32_t kind_asked(alg_collective_t collective, uint32_t kind)
{
    return collective == ALG_SEND_RECV ? sel_kind(ALG_UINT8) : kind;
}

static void add_collective(sel_plan_t *plan, sources_t *sources, alg_collective_t collective)
{
    cuts_t cuts;
    sources->collective = collective;
    find_tuned(sources);
    find_built_in(sources);
    find_cuts(sources, &cuts);
    const uint32_t first = plan->bands;
    for (uint32_t i = 0; i < cuts.count; i++) {
        if (i > 0 && cuts.at[i] == cuts.at[i - 1])
            continue;
        sel_band_t *band = &plan->band[plan->bands];
        band->from_bytes = cuts.at[i];
        for (uint32_t kind = 0; kind < SEL_KINDS; kind++) {
            const sel_rule_t rule = decide(sources, kind_asked(collective, kind), band->from_bytes);
            band->rule_of[kind] = rule_index(plan, &rule);
        }
        plan->bands += plan->bands == first || memcmp(band->rule_of, band[-1].rule_of, sizeof band->rule_of) != 0;
    }
}

static uint32_t find_collectives(alg_memory_t memory)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i]->memory == memory)
            found |= UINT32_C(1) << alg_registry[i]->collective;
    }
    return found;
}

/* Between nodes the CPU device has one algorithm per collective for all sizes, and none for messages. */
static void plan_network(sel_plan_t *plan)
{
    plan->own_only = true;
    for (uint32_t c = 0; c < ALG_SEND_RECV; c++) {
        const alg_algorithm_t *algorithm = c == ALG_ALL_REDUCE ? alg_find(ALG_ALL_REDUCE, "exchange") : &alg_network[c];
        const sel_rule_t rule = {
            .algorithm = algorithm, .blocks = 1, .threads = 1, .reason = SEL_TAKEN, .source = "several nodes"};
        const uint16_t index = rule_index(plan, &rule);
        for (uint32_t kind = 0; kind < SEL_KINDS; kind++)
            plan->band[c].rule_of[kind] = index;
        plan->collectives |= UINT32_C(1) << c;
        plan->bands_end[c] = plan->bands = c + 1;
    }
    plan->bands_end[ALG_SEND_RECV] = plan->bands;
    (void)alg_map_init(&plan->map, plan->settings.scratch_bytes);
}

void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings)
{
    memset(plan, 0, sizeof *plan);
    plan->topology = *topology;
    plan->settings = *settings;
    plan->settings.policy[SEL_POLICY_BYTES - 1] = '\0';
    if (topology->link == SEL_LINK_NETWORK) {
        plan_network(plan);
        return;
    }
    find_measured(plan);
    const sel_measurement_t measurement = sel_plan_measurement(plan);
    sources_t sources = {.plan = plan, .old = measurement == SEL_MEASURED_OTHER || measurement == SEL_MEASURED_EARLIER};
    /* The policy may be another rank's: a policy that does not parse counts as empty on every rank. */
    if (!policy_parse(plan->settings.policy, &sources.policy, NULL, 0))
        memset(&sources.policy, 0, sizeof sources.policy);
    plan->excluded = sources.policy.excluded;
    plan->own_only = topology->link == SEL_LINK_CPU || settings->deterministic;
    plan->collectives = find_collectives(topology->memory);
    const bool room = topology->memory == ALG_MEMORY_PINNED ? alg_map_init_shm(&plan->map, settings->scratch_bytes)
                                                            : alg_map_init(&plan->map, settings->scratch_bytes);
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        if (room && plan->collectives >> c & 1)
            add_collective(plan, &sources, (alg_collective_t)c);
        plan->bands_end[c] = plan->bands;
    }
}

bool sel_plan_serves(const sel_plan_t *plan)
{
    bool serves = plan->own_only || plan->settings.policy[0];
    for (uint32_t i = 0; i < plan->rules && !serves; i++)
        serves = plan->rule[i].algorithm != NULL;
    return serves;
}

bool sel_plan_row(const sel_plan_t *plan, alg_collective_t collective, uint32_t kind, uint32_t index, sel_row_t *row)
{
    uint32_t first = collective > 0 ? plan->bands_end[collective - 1] : 0;
    const uint32_t last = plan->bands_end[collective];
    for (uint32_t seen = 0; first < last; seen++) {
        const uint16_t rule = plan->band[first].rule_of[kind];
        uint32_t end = first + 1;
        while (end < last && plan->band[end].rule_of[kind] == rule)
            end++;
        if (seen == index) {
            const uint64_t to = end < last ? plan->band[end].from_bytes - 1 : UINT64_MAX;
            *row = (sel_row_t){plan->band[first].from_bytes, to, plan->rule[rule]};
            return true;
        }
        first = end;
    }
    return false;
}
