/*
 * select.c - the choice: a binary search in the plan's bands.
 *
 * Pure: the same plan and query give the same choice on every rank. The plan
 * comes from table.c; nothing here allocates, locks or asks the system.
 */
#include "selector/cost.h"

static bool fits(const sel_plan_t *plan, const alg_algorithm_t *algorithm, const sel_query_t *query, uint64_t bytes)
{
    return bytes <= algorithm->max_bytes(&plan->map, plan->topology.nranks, query->type);
}

/* The rule of the band that `bytes` lie in. Where its algorithm has no room for them (two-shot sends integers with a
 * quarter more), that of larger messages, if it has. NULL in a plan without bands: the scratch was too small for any
 * algorithm. */
static const sel_rule_t *find_rule(const sel_plan_t *plan, const sel_query_t *query, uint64_t bytes)
{
    const uint8_t *rule_of = plan->rule_of[sel_context(query->type, query->captured)];
    uint32_t low = 0, high = plan->bands; /* the first band begins at 0 */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (bytes >= plan->from_bytes[middle])
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    const sel_rule_t *rule = &plan->rule[rule_of[low - 1]], *larger = rule;
    if (!rule->algorithm || fits(plan, rule->algorithm, query, bytes))
        return rule;
    while (low < plan->bands && larger->algorithm == rule->algorithm)
        larger = &plan->rule[rule_of[low++]];
    return larger->algorithm && fits(plan, larger->algorithm, query, bytes) ? larger : rule;
}

/* Where nothing may be forwarded: the first algorithm, smallest messages first, that the message fits. */
static const alg_algorithm_t *any_own(const sel_plan_t *plan, const sel_query_t *query, uint64_t bytes)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        const alg_algorithm_t *algorithm = alg_registry[i];
        if (algorithm->collective == query->collective && !(plan->excluded >> i & 1) &&
            fits(plan, algorithm, query, bytes))
            return algorithm;
    }
    return NULL;
}

static sel_choice_t forward(sel_reason_t reason)
{
    return (sel_choice_t){.reason = reason};
}

static sel_choice_t take(const sel_plan_t *plan, const alg_algorithm_t *algorithm, uint32_t blocks, uint32_t threads,
                         uint64_t bytes)
{
    sel_choice_t choice = {.algorithm = algorithm, .blocks = blocks, .threads = threads, .reason = SEL_TAKEN};
    if (plan->settings.max_blocks && choice.blocks > plan->settings.max_blocks)
        choice.blocks = plan->settings.max_blocks;
    algorithm->shape(bytes, plan->topology.nranks, &choice.blocks, &choice.threads);
    return choice;
}

static sel_choice_t choose_by_rule(const sel_plan_t *plan, const sel_rule_t *rule, const sel_query_t *query,
                                   uint64_t bytes)
{
    sel_reason_t reason = rule ? rule->reason : SEL_FORWARD_TABLE;
    if (rule && rule->algorithm) {
        if (fits(plan, rule->algorithm, query, bytes))
            return take(plan, rule->algorithm, rule->blocks, rule->threads, bytes);
        reason = SEL_FORWARD_TOO_LARGE;
    }
    if (plan->own_only && reason != SEL_FORWARD_POLICY) {
        const alg_algorithm_t *algorithm = any_own(plan, query, bytes);
        const sel_choice_t grid = sel_usual_grid(&plan->topology, bytes);
        if (algorithm)
            return take(plan, algorithm, grid.blocks, grid.threads, bytes);
    }
    return forward(reason);
}

sel_choice_t sel_choose(const sel_plan_t *plan, const sel_query_t *query)
{
    if (query->collective != ALG_ALL_REDUCE)
        return forward(SEL_FORWARD_COLLECTIVE);
    const bool fp8 = query->type == ALG_FLOAT8_E4M3 || query->type == ALG_FLOAT8_E5M2;
    if (fp8 && plan->topology.link != SEL_LINK_HOST && plan->topology.arch < 90)
        return forward(SEL_FORWARD_TYPE); /* the real NCCL refuses it, and says so */
    const size_t width = alg_type_bytes(query->type);
    if (query->count > UINT64_MAX / width)
        return forward(SEL_FORWARD_TOO_LARGE);
    const uint64_t bytes = query->count * width;

    const sel_rule_t *rule = find_rule(plan, query, bytes);
    sel_choice_t choice = choose_by_rule(plan, rule, query, bytes);
    choice.source = rule ? rule->source : NULL;
    return choice;
}

const char *sel_reason_text(sel_reason_t reason)
{
    static const char *const text[SEL_REASON_COUNT] = {
        [SEL_TAKEN] = "taken: the choice of table or policy",
        [SEL_FORWARD_TABLE] = "forwarded: the table has no faster algorithm for this size",
        [SEL_FORWARD_POLICY] = "forwarded: SHUNT_ALGO says so",
        [SEL_FORWARD_TOO_LARGE] = "forwarded: more bytes than the scratch allows",
        [SEL_FORWARD_TYPE] = "forwarded: no kernel for this type on this device",
        [SEL_FORWARD_UNATTACHED] = "forwarded: the communicator is not attached",
        [SEL_FORWARD_COLLECTIVE] = "forwarded: no algorithm for this collective",
    };
    return (unsigned)reason < SEL_REASON_COUNT ? text[reason] : "?";
}
