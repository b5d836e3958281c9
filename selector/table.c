/*
 * table.c - the built-in table, and the plan of a communicator made from it.
 *
 * Every row names the benchmark that set it. Sizes that no row covers go to
 * the real NCCL.
 */
#include "selector/policy.h"
#include "selector/selector.h"

#include <stdlib.h>
#include <string.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* The figures were taken without multicast. With it the real NCCL moves large messages up to 1.35 times
 * faster, which is more than our lead above this size. */
#define MULTICAST_MOST_BYTES (4 * MIB)

typedef struct table_row {
    sel_link_t link;
    uint8_t least_ranks, most_ranks;
    uint64_t to_bytes; /* inclusive; from where the row above it with the same key ends */
    const char *algorithm;
    uint16_t blocks, threads;
    const char *source;
} table_row_t;

/* The benchmark of a row: H200 over NVSwitch, multicast off. Grids were chosen from docs/results/sweep-h200.csv. */
#define H200(ranks) "docs/results/graph-" #ranks "-h200.csv"

static const table_row_t TABLE[] = {
    /* Host device: a block is a thread; more of them only contend for cores. */
    {SEL_LINK_HOST, 2, 8, 64 * KIB, "oneshot", 1, 1, "host device"},
    {SEL_LINK_HOST, 2, 8, 1 * MIB, "twoshot", 1, 1, "host device"},
    {SEL_LINK_HOST, 2, 8, UINT64_MAX, "staged", 1, 1, "host device"},

    /* Larger messages go to the real NCCL, whose ring is ahead from there on. */
    {SEL_LINK_NVSWITCH, 2, 2, 512 * KIB, "oneshot", 32, 512, H200(2)},
    {SEL_LINK_NVSWITCH, 2, 2, 1 * MIB, "twoshot", 32, 512, H200(2)},
    {SEL_LINK_NVSWITCH, 2, 2, 8 * MIB, "twoshot", 64, 512, H200(2)},
    {SEL_LINK_NVSWITCH, 2, 2, 16 * MIB, "staged", 64, 512, H200(2)},
    {SEL_LINK_NVSWITCH, 3, 3, 384 * KIB, "oneshot", 32, 512, H200(3)},
    {SEL_LINK_NVSWITCH, 3, 3, 1 * MIB, "twoshot", 32, 512, H200(3)},
    {SEL_LINK_NVSWITCH, 3, 3, 8 * MIB, "twoshot", 64, 512, H200(3)},
    {SEL_LINK_NVSWITCH, 4, 4, 256 * KIB, "oneshot", 32, 512, H200(4)},
    {SEL_LINK_NVSWITCH, 4, 4, 1 * MIB, "twoshot", 32, 512, H200(4)},
    {SEL_LINK_NVSWITCH, 4, 4, 8 * MIB, "twoshot", 64, 512, H200(4)},
    /* From the cost models of the algorithms' files, with the constants of four GPUs; kept well inside. */
    {SEL_LINK_NVSWITCH, 5, 8, 64 * KIB, "oneshot", 32, 512, "predicted"},
    {SEL_LINK_NVSWITCH, 5, 8, 1 * MIB, "twoshot", 32, 512, "predicted"},
};

static bool applies(const table_row_t *row, const sel_topology_t *topology)
{
    return row->link == topology->link && topology->nranks >= row->least_ranks && topology->nranks <= row->most_ranks;
}

/* The built-in row for a size, or NULL. Rows of one key stand in order of size. */
static const table_row_t *built_in(const sel_topology_t *topology, uint64_t bytes)
{
    if (topology->multicast && bytes > MULTICAST_MOST_BYTES)
        return NULL;
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (applies(&TABLE[i], topology) && bytes <= TABLE[i].to_bytes)
            return &TABLE[i];
    }
    return NULL;
}

static int compare_bytes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Every size at which a row or an item begins, sorted; begins[0] is 0. */
static uint32_t collect_bounds(const sel_topology_t *topology, const policy_t *policy, uint64_t begins[SEL_MAX_ROWS])
{
    uint32_t n = 0;
    begins[n++] = 0;
    begins[n++] = MULTICAST_MOST_BYTES + 1;
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (applies(&TABLE[i], topology) && TABLE[i].to_bytes != UINT64_MAX)
            begins[n++] = TABLE[i].to_bytes + 1;
    }
    for (uint32_t i = 0; i < policy->items; i++) {
        begins[n++] = policy->item[i].from;
        if (policy->item[i].to != UINT64_MAX)
            begins[n++] = policy->item[i].to + 1;
    }
    qsort(begins, n, sizeof begins[0], compare_bytes);
    uint32_t unique = 1;
    for (uint32_t i = 1; i < n; i++) {
        if (begins[i] != begins[unique - 1])
            begins[unique++] = begins[i];
    }
    return unique;
}

_Static_assert(2 + sizeof TABLE / sizeof TABLE[0] + 2 * POLICY_MAX_ITEMS <= SEL_MAX_ROWS, "a plan may overflow");

static uint32_t excluded_bit(const alg_algorithm_t *algorithm)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i] == algorithm)
            return 1u << i;
    }
    return 0;
}

/* What holds for sizes from `from` to the next bound. */
static sel_row_t make_row(const sel_plan_t *plan, const policy_t *policy, uint64_t from)
{
    const bool host = plan->topology.link == SEL_LINK_HOST;
    sel_row_t row = {.from_bytes = from, .blocks = plan->own_blocks, .threads = plan->own_threads};
    const table_row_t *base = built_in(&plan->topology, from);
    row.source = base ? base->source : "no row";
    row.reason = SEL_FORWARD_TABLE;
    if (base) {
        row.algorithm = alg_find(ALG_ALL_REDUCE, base->algorithm);
        row.blocks = base->blocks;
        row.threads = base->threads;
    }
    for (uint32_t i = 0; i < policy->items; i++) {
        const policy_item_t *item = &policy->item[i];
        if (from < item->from || from > item->to || (host && item->algorithm == NULL))
            continue; /* the host device has nothing to forward to */
        row.algorithm = item->algorithm;
        row.source = "policy";
        row.reason = SEL_FORWARD_POLICY;
    }
    if (row.algorithm && (policy->excluded & excluded_bit(row.algorithm))) {
        row.algorithm = NULL;
        row.source = "policy";
        row.reason = SEL_FORWARD_TABLE;
    }
    if (row.algorithm)
        row.reason = SEL_TAKEN;
    return row;
}

/* The next row of a plan, or more of the last one. */
static void append(sel_plan_t *plan, int captured, const sel_row_t *row)
{
    sel_row_t *last = plan->rows[captured] ? &plan->row[captured][plan->rows[captured] - 1] : NULL;
    if (last && last->algorithm == row->algorithm && last->blocks == row->blocks && last->threads == row->threads &&
        last->reason == row->reason && strcmp(last->source, row->source) == 0)
        last->to_bytes = row->to_bytes;
    else
        plan->row[captured][plan->rows[captured]++] = *row;
}

void sel_plan_init(sel_plan_t *plan, const sel_topology_t *topology, const sel_settings_t *settings)
{
    policy_t policy = {0};
    memset(plan, 0, sizeof *plan);
    plan->topology = *topology;
    plan->settings = *settings;
    plan->settings.policy[SEL_POLICY_BYTES - 1] = '\0';
    /* Settings of another rank may come here: what does not parse counts as empty, on every rank alike. */
    if (!policy_parse(plan->settings.policy, &policy, NULL, 0))
        memset(&policy, 0, sizeof policy);
    plan->excluded = policy.excluded;
    plan->own_only = topology->link == SEL_LINK_HOST || settings->deterministic;
    plan->own_blocks = topology->link == SEL_LINK_HOST ? 1 : 32;
    plan->own_threads = topology->link == SEL_LINK_HOST ? 1 : 512;
    if (!alg_map_init(&plan->map, settings->scratch_bytes))
        return;

    uint64_t begins[SEL_MAX_ROWS];
    const uint32_t n = collect_bounds(topology, &policy, begins);
    for (int captured = 0; captured < 2; captured++) {
        for (uint32_t i = 0; i < n; i++) {
            sel_row_t row = make_row(plan, &policy, begins[i]);
            row.to_bytes = i + 1 < n ? begins[i + 1] - 1 : UINT64_MAX;
            append(plan, captured, &row);
        }
    }
}
