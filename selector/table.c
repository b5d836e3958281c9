/*
 * table.c - the built-in table, and the plan of a communicator.
 *
 * A plan is made from everything that may have a say, and `decide` is the one
 * place that knows who goes first: the user's policy, then the tuned table, then
 * the rows below, then the cost model. Where none of them speaks, the real NCCL.
 */
#include "selector/cost.h"
#include "selector/policy.h"
#include "selector/table_file.h"

#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* The figures were taken without multicast. With it the real NCCL moves large messages up to 1.35 times
 * faster, which is more than our lead above this size; nobody but a tuned table knows better. */
#define MULTICAST_MOST_BYTES (4 * MIB)

/* The benchmark of a row: H200 over NVSwitch, multicast off. Grids were chosen from docs/results/sweep-h200.csv. */
#define H200(ranks) "docs/results/graph-" #ranks "-h200.csv"
#define STAGED(ranks) "docs/results/large-staged-" #ranks "-h200.csv"
#define TUNED "docs/results/tune-4-h200.csv"  /* what `shunt tune` found better there than the rows of before */
#define TRIED "docs/results/tried-6-h200.csv" /* and how its kernels compare there since */

/* Host device: a block is a thread; more of them only contend for cores. */
#define HOST(ranks)                                                                                      \
    {"host-" #ranks, ranks, SEL_ANY_CONTEXT, 0, 64 * KIB, "oneshot", 1, 1, "host device"},               \
        {"host-" #ranks, ranks, SEL_ANY_CONTEXT, 64 * KIB + 1, 1 * MIB, "twoshot", 1, 1, "host device"}, \
    {                                                                                                    \
        "host-" #ranks, ranks, SEL_ANY_CONTEXT, 1 * MIB + 1, UINT64_MAX, "staged", 1, 1, "host device"   \
    }

static const sel_file_row_t BUILT_IN[] = {
    HOST(2),
    HOST(3),
    HOST(4),
    HOST(5),
    HOST(6),
    HOST(7),
    HOST(8),

    /* Where the real NCCL's ring, on all multiprocessors that it likes, is ahead of 64 of ours, it has the call. */
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 0, 512 * KIB, "oneshot", 32, 1024, H200(2)},
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 512 * KIB + 1, 896 * KIB, "twoshot", 32, 1024, TUNED},
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 896 * KIB + 1, 1 * MIB, "twoshot", 32, 512, H200(2)},
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 1 * MIB + 1, 1536 * KIB, "oneshot", 64, 512, TUNED},
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 1536 * KIB + 1, 3584 * KIB, "twoshot", 64, 512, TRIED},
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 3584 * KIB + 1, 16 * MIB, "twoshot", 64, 1024, H200(2)},
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 16 * MIB + 1, 512 * MIB, "staged", 64, 512, STAGED(2)},
    {"nvswitch-sm90-2", 2, SEL_ANY_CONTEXT, 512 * MIB + 1, UINT64_MAX, "nccl", 0, 0, STAGED(2)},
    {"nvswitch-sm90-3", 3, SEL_ANY_CONTEXT, 0, 256 * KIB, "oneshot", 32, 1024, H200(3)},
    {"nvswitch-sm90-3", 3, SEL_ANY_CONTEXT, 256 * KIB + 1, 1 * MIB, "twoshot", 32, 1024, H200(3)},
    {"nvswitch-sm90-3", 3, SEL_ANY_CONTEXT, 1 * MIB + 1, 14 * MIB, "twoshot", 64, 512, H200(3)},
    {"nvswitch-sm90-3", 3, SEL_ANY_CONTEXT, 14 * MIB + 1, 24 * MIB, "staged", 48, 512, TUNED},
    {"nvswitch-sm90-3", 3, SEL_ANY_CONTEXT, 24 * MIB + 1, 128 * MIB, "staged", 64, 512, STAGED(3)},
    {"nvswitch-sm90-3", 3, SEL_ANY_CONTEXT, 128 * MIB + 1, UINT64_MAX, "nccl", 0, 0, STAGED(3)},
    {"nvswitch-sm90-4", 4, SEL_ANY_CONTEXT, 0, 192 * KIB, "oneshot", 32, 1024, H200(4)},
    {"nvswitch-sm90-4", 4, SEL_ANY_CONTEXT, 192 * KIB + 1, 1 * MIB, "twoshot", 32, 1024, H200(4)},
    {"nvswitch-sm90-4", 4, SEL_ANY_CONTEXT, 1 * MIB + 1, 12 * MIB, "twoshot", 64, 512, H200(4)},
    {"nvswitch-sm90-4", 4, SEL_ANY_CONTEXT, 12 * MIB + 1, 64 * MIB, "staged", 64, 512, H200(4)},
    {"nvswitch-sm90-4", 4, SEL_ANY_CONTEXT, 64 * MIB + 1, UINT64_MAX, "nccl", 0, 0, STAGED(4)},
};
enum { BUILT_IN_ROWS = sizeof BUILT_IN / sizeof BUILT_IN[0], BUILT_IN_MOST = 16 /* of one class */ };

/* ---- Who may have a say -------------------------------------------------------------- */

typedef struct sources {
    const sel_plan_t *plan;
    policy_t policy;
    const sel_tuned_row_t *tuned[SEL_TUNED_ROWS];
    uint32_t tuned_rows;
    const sel_file_row_t *built_in[BUILT_IN_MOST];
    uint32_t built_in_rows;
} sources_t;

/* Its loader refuses the table of another machine; this says it again where a communicator's GPUs are of
 * several kinds. */
static bool tuned_is_ours(const sel_plan_t *plan)
{
    const sel_tuned_t *tuned = &plan->settings.tuned;
    return tuned->forced || tuned->machine == plan->topology.fingerprint;
}

/* The links' figures; what cannot be, of another process, is left. */
static void find_measured(sel_plan_t *plan)
{
    const sel_measured_t *link = &plan->settings.tuned.link;
    const bool found = tuned_is_ours(plan) && link->bytes_per_us > 0 && link->gpus >= 2;
    plan->topology.measured = found ? *link : (sel_measured_t){0};
}

static void find_tuned(sources_t *sources)
{
    const sel_topology_t *topology = &sources->plan->topology;
    const sel_tuned_t *tuned = &sources->plan->settings.tuned;
    char name[SEL_CLASS_BYTES];
    sel_topology_class(topology, name);
    const uint32_t hash = sel_class_hash(name);
    if (!tuned_is_ours(sources->plan))
        return;
    for (uint32_t i = 0; i < tuned->rows && i < SEL_TUNED_ROWS; i++) {
        const sel_tuned_row_t *row = &tuned->row[i];
        if (row->class_hash == hash && (row->algorithm < alg_registry_count || row->algorithm == SEL_NCCL))
            sources->tuned[sources->tuned_rows++] = row;
    }
}

static void find_built_in(sources_t *sources)
{
    sel_topology_t topology = sources->plan->topology;
    char name[SEL_CLASS_BYTES];
    topology.multicast = false; /* see MULTICAST_MOST_BYTES */
    sel_topology_class(&topology, name);
    for (uint32_t i = 0; i < BUILT_IN_ROWS && sources->built_in_rows < BUILT_IN_MOST; i++) {
        if (strcmp(BUILT_IN[i].class_name, name) == 0)
            sources->built_in[sources->built_in_rows++] = &BUILT_IN[i];
    }
}

/* The policy's last item for a size, or NULL. */
static const policy_item_t *policy_item(const sources_t *sources, uint64_t bytes)
{
    const bool host = sources->plan->topology.link == SEL_LINK_HOST;
    const policy_item_t *last = NULL;
    for (uint32_t i = 0; i < sources->policy.items; i++) {
        const policy_item_t *item = &sources->policy.item[i];
        if (bytes < item->from || bytes > item->to || (host && item->what == POLICY_NCCL))
            continue; /* the host device has nothing to forward to */
        last = item;
    }
    return last;
}

static bool from_policy(const sources_t *sources, const policy_item_t *item, uint64_t bytes, sel_rule_t *rule)
{
    if (!item || item->what == POLICY_BUILTIN)
        return false;
    const sel_choice_t usual = sel_usual_grid(&sources->plan->topology, bytes);
    rule->algorithm = item->algorithm;
    rule->blocks = item->blocks ? item->blocks : (uint16_t)usual.blocks;
    rule->threads = item->threads ? item->threads : (uint16_t)usual.threads;
    rule->reason = SEL_FORWARD_POLICY;
    rule->source = "policy";
    return true;
}

static bool from_tuned(const sources_t *sources, uint32_t context, uint64_t bytes, sel_rule_t *rule)
{
    for (uint32_t i = sources->tuned_rows; i-- > 0;) {
        const sel_tuned_row_t *row = sources->tuned[i];
        if (bytes < row->from_bytes || bytes > row->to_bytes || !(row->contexts >> context & 1))
            continue;
        rule->algorithm = row->algorithm == SEL_NCCL ? NULL : alg_registry[row->algorithm];
        rule->blocks = row->blocks;
        rule->threads = row->threads;
        rule->source = "tuned table";
        return true;
    }
    return false;
}

static bool from_built_in(const sources_t *sources, uint32_t context, uint64_t bytes, sel_rule_t *rule)
{
    if (sources->plan->topology.multicast && bytes > MULTICAST_MOST_BYTES)
        return false;
    for (uint32_t i = 0; i < sources->built_in_rows; i++) {
        const sel_file_row_t *row = sources->built_in[i];
        if (bytes < row->from_bytes || bytes > row->to_bytes || !(row->contexts >> context & 1))
            continue;
        rule->algorithm = alg_find(ALG_ALL_REDUCE, row->algorithm);
        rule->blocks = row->blocks;
        rule->threads = row->threads;
        rule->source = row->source;
        return true;
    }
    return false;
}

/* For classes that nobody has measured. */
static bool from_model(const sources_t *sources, uint64_t bytes, sel_rule_t *rule)
{
    if (sources->built_in_rows || (sources->plan->topology.multicast && bytes > MULTICAST_MOST_BYTES))
        return false;
    const sel_choice_t choice = sel_cost_choose(&sources->plan->topology, &sources->plan->map, bytes);
    rule->algorithm = choice.algorithm;
    rule->blocks = (uint16_t)choice.blocks;
    rule->threads = (uint16_t)choice.threads;
    rule->source = "predicted";
    return choice.algorithm != NULL;
}

static bool excluded(const policy_t *policy, const alg_algorithm_t *algorithm)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i] == algorithm)
            return policy->excluded >> i & 1;
    }
    return false;
}

/* A kernel's block is whole warps, and no larger than it was built for. */
static uint16_t whole_warps(uint32_t threads)
{
    threads = (threads + 31) / 32 * 32;
    return (uint16_t)(threads < 32 ? 32 : threads > SEL_MOST_THREADS ? SEL_MOST_THREADS : threads);
}

/* The precedence. */
static sel_rule_t decide(const sources_t *sources, uint32_t context, uint64_t bytes)
{
    static const sel_rule_t nobody = {NULL, 0, 0, SEL_FORWARD_TABLE, "no row"};
    const policy_item_t *item = policy_item(sources, bytes);
    sel_rule_t rule = nobody;
    if (!from_policy(sources, item, bytes, &rule) && (item || !from_tuned(sources, context, bytes, &rule)) &&
        !from_built_in(sources, context, bytes, &rule) && !from_model(sources, bytes, &rule))
        return nobody;
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
    if (sources->plan->topology.link != SEL_LINK_HOST)
        rule.threads = whole_warps(rule.threads);
    return rule;
}

/* ---- The plan ------------------------------------------------------------------------- */

static int compare_bytes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void add_bounds(sel_plan_t *plan, uint64_t from, uint64_t to)
{
    plan->from_bytes[plan->bands++] = from;
    if (to != UINT64_MAX)
        plan->from_bytes[plan->bands++] = to + 1;
}

/* Wherever anyone's say begins or ends. */
static void cut_bands(sel_plan_t *plan, const sources_t *sources)
{
    add_bounds(plan, 0, MULTICAST_MOST_BYTES);
    for (uint32_t i = 0; i < sources->policy.items; i++)
        add_bounds(plan, sources->policy.item[i].from, sources->policy.item[i].to);
    for (uint32_t i = 0; i < sources->tuned_rows; i++)
        add_bounds(plan, sources->tuned[i]->from_bytes, sources->tuned[i]->to_bytes);
    for (uint32_t i = 0; i < sources->built_in_rows; i++)
        add_bounds(plan, sources->built_in[i]->from_bytes, sources->built_in[i]->to_bytes);
    for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++)
        add_bounds(plan, sel_cost_bound(i), UINT64_MAX);

    qsort(plan->from_bytes, plan->bands, sizeof plan->from_bytes[0], compare_bytes);
    uint32_t unique = 1;
    for (uint32_t i = 1; i < plan->bands; i++) {
        if (plan->from_bytes[i] != plan->from_bytes[unique - 1])
            plan->from_bytes[unique++] = plan->from_bytes[i];
    }
    plan->bands = unique;
}

_Static_assert(2 + 2 * (POLICY_MAX_ITEMS + SEL_TUNED_ROWS + BUILT_IN_MOST) + SEL_COST_BOUNDS <= SEL_BANDS,
               "a plan may have more bands");
/* A policy's item without a grid, and an excluded algorithm, may give a rule for each usual grid. */
_Static_assert(2 + 2 * POLICY_MAX_ITEMS + SEL_TUNED_ROWS + BUILT_IN_MOST + SEL_COST_BOUNDS <= SEL_RULES,
               "a plan may have more rules");
_Static_assert(SEL_RULES - 1 <= UINT8_MAX, "rules are named by a byte");

static bool same(const sel_rule_t *a, const sel_rule_t *b)
{
    return a->algorithm == b->algorithm && a->blocks == b->blocks && a->threads == b->threads &&
           a->reason == b->reason && strcmp(a->source, b->source) == 0;
}

static uint8_t rule_index(sel_plan_t *plan, const sel_rule_t *rule)
{
    for (uint32_t i = 0; i < plan->rules; i++) {
        if (same(&plan->rule[i], rule))
            return (uint8_t)i;
    }
    plan->rule[plan->rules] = *rule;
    return (uint8_t)plan->rules++;
}

void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings)
{
    memset(plan, 0, sizeof *plan);
    plan->topology = *topology;
    plan->settings = *settings;
    plan->settings.policy[SEL_POLICY_BYTES - 1] = '\0';
    find_measured(plan);
    sources_t sources = {.plan = plan};
    /* Settings of another rank may come here: what does not parse counts as empty, on every rank alike. */
    if (!policy_parse(plan->settings.policy, &sources.policy, NULL, 0))
        memset(&sources.policy, 0, sizeof sources.policy);
    plan->excluded = sources.policy.excluded;
    plan->own_only = topology->link == SEL_LINK_HOST || settings->deterministic;
    if (!alg_map_init(&plan->map, settings->scratch_bytes))
        return;

    find_tuned(&sources);
    find_built_in(&sources);
    cut_bands(plan, &sources);
    for (uint32_t context = 0; context < SEL_CONTEXTS; context++) {
        for (uint32_t band = 0; band < plan->bands; band++) {
            const sel_rule_t rule = decide(&sources, context, plan->from_bytes[band]);
            plan->rule_of[context][band] = rule_index(plan, &rule);
        }
    }
}

bool sel_plan_row(const sel_plan_t *plan, uint32_t context, uint32_t index, sel_row_t *row)
{
    const uint8_t *rule_of = plan->rule_of[context];
    uint32_t first = 0;
    for (uint32_t seen = 0; first < plan->bands; seen++) {
        uint32_t end = first + 1;
        while (end < plan->bands && rule_of[end] == rule_of[first])
            end++;
        if (seen == index) {
            const uint64_t to = end < plan->bands ? plan->from_bytes[end] - 1 : UINT64_MAX;
            *row = (sel_row_t){plan->from_bytes[first], to, plan->rule[rule_of[first]]};
            return true;
        }
        first = end;
    }
    return false;
}
