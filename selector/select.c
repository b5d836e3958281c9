/* SPDX-License-Identifier: Apache-2.0 */
/* select.c - the choice, by binary search in the plan's bands: the same on every rank, except for the blocks of
 * unaligned buffers (alg_algorithm_t). */
#include "selector/cost.h"

static bool fits(const sel_plan_t *plan, const alg_algorithm_t *algorithm, const sel_query_t *query, uint64_t bytes)
{
    return algorithm->memory == plan->topology.memory &&
           bytes <= algorithm->max_bytes(&plan->map, sel_team_ranks(&plan->topology), query->type);
}

/* A collective's bands from that of `bytes` on; none if it has no algorithm, or the scratch is too small. */
typedef struct bands {
    const sel_band_t *first, *end;
} bands_t;

static bands_t find_bands(const sel_plan_t *plan, alg_collective_t collective, uint64_t bytes)
{
    const uint32_t first = collective > 0 ? plan->bands_end[collective - 1] : 0, end = plan->bands_end[collective];
    uint32_t low = first, high = end; /* the first band begins at 0 */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (bytes >= plan->band[middle].from_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return (bands_t){&plan->band[low > first ? low - 1 : end], &plan->band[end]};
}

/* The rule of the call's band. If the call does not fit the rule's algorithm (one-shot and two-shot need a quarter more
 * room for integers), the rule of the next larger band with another algorithm. NULL: neither fits, or the real NCCL
 * gets the size. */
static const sel_rule_t *rule_with_room(const sel_plan_t *plan, bands_t bands, uint32_t kind, const sel_query_t *query,
                                        uint64_t bytes)
{
    const sel_rule_t *rule = &plan->rule[bands.first->rule_of[kind]], *larger = rule;
    if (!rule->algorithm)
        return NULL;
    if (fits(plan, rule->algorithm, query, bytes))
        return rule;
    for (const sel_band_t *band = bands.first + 1; band < bands.end && larger->algorithm == rule->algorithm; band++)
        larger = &plan->rule[band->rule_of[kind]];
    return larger->algorithm && fits(plan, larger->algorithm, query, bytes) ? larger : NULL;
}

/* For plans that never forward: the first algorithm that fits. The registry lists those for short calls first. */
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

/* Lowers blocks to the user's limit, and by `shape`. */
static uint32_t shaped(const sel_plan_t *plan, const alg_algorithm_t *algorithm, uint32_t blocks, uint64_t bytes,
                       uint32_t *threads)
{
    if (plan->settings.max_blocks && blocks > plan->settings.max_blocks)
        blocks = plan->settings.max_blocks;
    algorithm->shape(bytes, sel_team_ranks(&plan->topology), &blocks, threads);
    return blocks;
}

static sel_choice_t take(const sel_plan_t *plan, const alg_algorithm_t *algorithm, uint32_t blocks, uint32_t threads,
                         const sel_query_t *query, uint64_t bytes)
{
    sel_choice_t choice = {.algorithm = algorithm, .threads = threads, .reason = SEL_TAKEN};
    const bool slow = query->slow || query->op == ALG_PREMUL_SUM;
    const uint32_t least = slow ? algorithm->unaligned_blocks : 0;
    choice.aligned_blocks = shaped(plan, algorithm, blocks, bytes, &choice.threads);
    choice.blocks = blocks >= least ? choice.aligned_blocks : shaped(plan, algorithm, least, bytes, &choice.threads);
    return choice;
}

/* `rule` is NULL, selects the real NCCL, or does not fit. */
static sel_choice_t choose_without_rule(const sel_plan_t *plan, const sel_rule_t *rule, const sel_query_t *query,
                                        uint64_t bytes)
{
    const sel_reason_t reason = !rule ? SEL_FORWARD_TABLE : rule->algorithm ? SEL_FORWARD_TOO_LARGE : rule->reason;
    if (plan->own_only && reason != SEL_FORWARD_POLICY) {
        const alg_algorithm_t *algorithm = any_own(plan, query, bytes);
        const sel_choice_t grid = sel_usual_grid(&plan->topology, query->collective, bytes);
        if (algorithm)
            return take(plan, algorithm, grid.blocks, grid.threads, query, bytes);
    }
    return forward(reason);
}

sel_choice_t sel_choose(const sel_plan_t *plan, const sel_query_t *query)
{
    if ((unsigned)query->collective >= ALG_COLLECTIVE_COUNT || !(plan->collectives >> query->collective & 1))
        return forward(SEL_FORWARD_COLLECTIVE);
    const bool fp8 = query->type == ALG_FLOAT8_E4M3 || query->type == ALG_FLOAT8_E5M2;
    if (fp8 && alg_collective_reduces(query->collective) && !sel_link_on_cpu(plan->topology.link) &&
        plan->topology.arch < 90)
        return forward(SEL_FORWARD_TYPE); /* the real NCCL reports why */
    const uint64_t width =
        alg_type_bytes(query->type) * alg_collective_blocks(query->collective, plan->topology.nranks);
    if (query->count > UINT64_MAX / width)
        return forward(SEL_FORWARD_TOO_LARGE);
    const uint64_t bytes = query->count * width;

    const uint32_t kind = sel_kind(query->type);
    const bands_t bands = find_bands(plan, query->collective, bytes);
    const bool any = bands.first < bands.end;
    const sel_rule_t *rule = any ? rule_with_room(plan, bands, kind, query, bytes) : NULL;
    sel_choice_t choice;
    if (rule) {
        choice = take(plan, rule->algorithm, rule->blocks, rule->threads, query, bytes);
    } else {
        rule = any ? &plan->rule[bands.first->rule_of[kind]] : NULL;
        choice = choose_without_rule(plan, rule, query, bytes);
    }
    choice.source = rule ? rule->source : NULL;
    return choice;
}
