/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice for each collective, with a registry of all algorithms: how bytes are counted, which calls a policy and a
 * row apply to, the built-in rows, and what is served if nothing may be forwarded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "selector/selector.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* ---- The registry --------------------------------------------------------------------- */

static uint64_t half(const alg_map_t *map, uint32_t nranks, alg_type_t type)
{
    (void)nranks;
    (void)type;
    return map->half_bytes;
}

static uint64_t all(const alg_map_t *map, uint32_t nranks, alg_type_t type)
{
    (void)map;
    (void)nranks;
    (void)type;
    return UINT64_MAX;
}

static void any_shape(uint64_t bytes, uint32_t nranks, uint32_t *blocks, uint32_t *threads)
{
    (void)bytes;
    (void)nranks;
    (void)blocks;
    (void)threads;
}

#define OF(label, c, limit) .name = label, .collective = c, .max_bytes = limit, .shape = any_shape
#define ONE(label, c, limit, ...)                    \
    &(const alg_algorithm_t)                         \
    {                                                \
        OF(label, c, limit), .cost = { __VA_ARGS__ } \
    }
#define PAIR(c, load) ONE("push", c, all, load, 0, 0.74, 1), ONE("staged", c, all, 0)
#define BULK(c)                                    \
    &(const alg_algorithm_t)                       \
    {                                              \
        OF("bulk", c, all), .unaligned_blocks = 32 \
    }

const alg_algorithm_t *const alg_registry[] = {
    ONE("oneshot", ALG_ALL_REDUCE, half, ALG_LOAD_TO_EACH, 0, 0.74, 1),
    ONE("twoshot", ALG_ALL_REDUCE, half, ALG_LOAD_TWICE, 0.9, 0.79, 2),
    ONE("staged", ALG_ALL_REDUCE, all, ALG_LOAD_TWICE, 7, 0.82, 2),
    PAIR(ALG_REDUCE_SCATTER, ALG_LOAD_BLOCKS),
    BULK(ALG_REDUCE_SCATTER),
    PAIR(ALG_REDUCE, ALG_LOAD_TO_EACH),
    ONE("twoshot", ALG_REDUCE, all, ALG_LOAD_WHOLE, 0.9, 0.74, 2),
    PAIR(ALG_ALL_GATHER, ALG_LOAD_BLOCKS),
    BULK(ALG_ALL_GATHER),
    PAIR(ALG_ALL_TO_ALL, ALG_LOAD_BLOCKS),
    BULK(ALG_ALL_TO_ALL),
    PAIR(ALG_BROADCAST, ALG_LOAD_TO_EACH),
    ONE("twoshot", ALG_BROADCAST, all, ALG_LOAD_WHOLE, 0.9, 0.74, 2),
    PAIR(ALG_GATHER, ALG_LOAD_BLOCKS),
    ONE("staged", ALG_SCATTER, all, 0), /* it has no push */
    ONE("pairs", ALG_SEND_RECV, all, ALG_LOAD_WHOLE, 0, 0.74, 1),
    BULK(ALG_SEND_RECV),
    ONE("staged", ALG_SEND_RECV, all, 0),
};
const uint32_t alg_registry_count = sizeof alg_registry / sizeof alg_registry[0];
const alg_algorithm_t alg_network[ALG_SEND_RECV] = {{OF("network", ALG_ALL_REDUCE, all)}};

const alg_algorithm_t *alg_find(alg_collective_t collective, const char *name)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i]->collective == collective && strcmp(alg_registry[i]->name, name) == 0)
            return alg_registry[i];
    }
    return NULL;
}

/* ---- Plans ---------------------------------------------------------------------------- */

static const sel_topology_t four = {.link = SEL_LINK_NVSWITCH, .nranks = 4, .arch = 90, .multiprocessors = 132};
static sel_plan_t plan;

static void plan_of(const sel_topology_t *topology, const char *policy, const sel_tuned_t *tuned)
{
    sel_settings_t settings = {.scratch_bytes = 80u << 20};
    snprintf(settings.policy, sizeof settings.policy, "%s", policy);
    if (tuned)
        settings.tuned = *tuned;
    sel_plan_init(&plan, topology, &settings);
}

static sel_choice_t choose(alg_collective_t collective, alg_type_t type, uint64_t bytes)
{
    const uint64_t element = alg_type_bytes(type) * alg_collective_blocks(collective, plan.topology.nranks);
    const sel_query_t query = {collective, type, ALG_SUM, bytes / element, false};
    return sel_choose(&plan, &query);
}

static void expect(alg_collective_t collective, uint64_t bytes, const char *name)
{
    const sel_choice_t choice = choose(collective, ALG_INT8, bytes);
    const char *found = choice.algorithm ? choice.algorithm->name : "nccl";
    if (strcmp(found, name) != 0 || (choice.algorithm && choice.algorithm->collective != collective))
        fail_msg("%s, %llu bytes: %s, not %s", alg_collective_name(collective), (unsigned long long)bytes, found, name);
}

/* Check that a call has at most the threads of 32 large blocks, in blocks of any size: they determine its share of a
 * GPU. */
static void expect_few_threads(alg_collective_t collective, uint64_t bytes)
{
    const sel_choice_t choice = choose(collective, ALG_INT8, bytes);
    assert_true(choice.blocks > 0 && choice.blocks * choice.threads <= 32 * 1024);
}

/* The algorithms for short messages, except all-reduce's. */
static const char *one_crossing(int collective)
{
    return collective == ALG_SCATTER ? "staged" : collective == ALG_SEND_RECV ? "pairs" : "push";
}

static void bytes_of_the_larger_buffer(void **state)
{
    (void)state;
    plan_of(&four, "0-64K=push;64K-=nccl", NULL);
    for (int c = 1; c < ALG_SCATTER; c++) {
        const uint64_t blocks = alg_collective_blocks((alg_collective_t)c, 4);
        sel_query_t query = {(alg_collective_t)c, ALG_FLOAT32, ALG_SUM, 64 * KIB / 4 / blocks, false};
        assert_null(sel_choose(&plan, &query).algorithm);
        query.count--;
        assert_string_equal(sel_choose(&plan, &query).algorithm->name, "push");
        query.count = UINT64_MAX / 8;
        assert_int_equal(sel_choose(&plan, &query).reason, blocks > 1 ? SEL_FORWARD_TOO_LARGE : SEL_FORWARD_POLICY);
    }
}

static void built_in_rows(void **state)
{
    (void)state;
    static const alg_collective_t blocks[] = {ALG_REDUCE_SCATTER, ALG_ALL_GATHER, ALG_ALL_TO_ALL, ALG_GATHER};
    static const alg_collective_t messages[] = {ALG_BROADCAST, ALG_REDUCE};
    for (uint32_t n = 2; n <= 4; n++) {
        sel_topology_t topology = four;
        topology.nranks = n;
        plan_of(&topology, "", NULL);
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
            const bool bulk = blocks[i] != ALG_GATHER;
            expect(blocks[i], 1024, "push");
            expect(blocks[i], 30 * MIB, "push");
            expect(blocks[i], 160 * MIB, bulk ? "bulk" : "nccl");
            expect(blocks[i], UINT64_MAX / 2, bulk ? "bulk" : "nccl");
            expect_few_threads(blocks[i], MIB);
        }
        for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
            expect(messages[i], 1 * MIB, "push");
            expect(messages[i], 4 * MIB, n == 2 ? "push" : "twoshot");
            expect(messages[i], 25 * MIB, "nccl");
            expect(messages[i], 128 * MIB, "nccl");
            expect_few_threads(messages[i], MIB);
        }
        expect(ALG_ALL_REDUCE, 1024, "oneshot");
        expect(ALG_SCATTER, 1024, "nccl"); /* the row's algorithm does not exist */
        expect(ALG_SEND_RECV, 1024, "pairs");
        expect(ALG_SEND_RECV, 8 * MIB, "pairs");
        expect(ALG_SEND_RECV, 48 * MIB, n == 2 ? "pairs" : "nccl"); /* long ones lose where a rank has several */
        expect(ALG_SEND_RECV, UINT64_MAX, n == 2 ? "bulk" : "nccl");
    }
}

static void unaligned_buffers(void **state)
{
    (void)state;
    sel_topology_t two = four;
    two.nranks = 2;
    plan_of(&two, "0-1M=push:8x512;1M-=bulk:20x512", NULL);
    sel_query_t query = {ALG_ALL_GATHER, ALG_INT8, ALG_SUM, MIB, false};
    assert_int_equal(sel_choose(&plan, &query).blocks, 20);
    query.op = ALG_PREMUL_SUM;
    assert_int_equal(sel_choose(&plan, &query).blocks, 32);
    query.op = ALG_SUM;
    query.slow = true;
    assert_int_equal(sel_choose(&plan, &query).blocks, 32);
    query.count = MIB / 4;
    assert_int_equal(sel_choose(&plan, &query).blocks, 8); /* push does not care */
    query.count = MIB;
    plan.settings.max_blocks = 24;
    assert_int_equal(sel_choose(&plan, &query).blocks, 24);
    plan_of(&two, "bulk:48x512", NULL);
    assert_int_equal(sel_choose(&plan, &query).blocks, 48);
}

static void aligned_calls(void **state)
{
    (void)state;
    uint8_t *const base = (uint8_t *)4096;
    const alg_call_t aligned = {
        .collective = ALG_ALL_TO_ALL, .input = base, .output = base + 16, .count = 8, .type = ALG_FLOAT16};
    alg_call_t call = aligned;
    assert_true(alg_call_is_aligned(&call));
    call.input = base + 8;
    assert_false(alg_call_is_aligned(&call));
    call = aligned;
    call.output = base + 2;
    assert_false(alg_call_is_aligned(&call));
    call = aligned;
    call.count = 7; /* so is the second block */
    assert_false(alg_call_is_aligned(&call));
    call.collective = ALG_ALL_REDUCE; /* it has one */
    assert_true(alg_call_is_aligned(&call));
}

/* Three collectives are forwarded with multicast, which makes the real NCCL faster for them. */
static void multicast(void **state)
{
    (void)state;
    sel_topology_t topology = four;
    topology.multicast = true;
    plan_of(&topology, "", NULL);
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        const bool helped = c == ALG_ALL_REDUCE || c == ALG_REDUCE_SCATTER || c == ALG_ALL_GATHER;
        const bool late = c == ALG_BROADCAST || c == ALG_REDUCE || c == ALG_SCATTER || /* it has no push here */
                          c == ALG_SEND_RECV || c == ALG_GATHER;
        expect((alg_collective_t)c, 64 * MIB, helped || late ? "nccl" : "bulk");
    }
}

static void policies(void **state)
{
    (void)state;
    plan_of(&four, "staged", NULL); /* all have it */
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++)
        expect((alg_collective_t)c, 1024, "staged");
    plan_of(&four, "0-64M=push", NULL); /* not all */
    expect(ALG_ALL_REDUCE, 1024, "oneshot");
    expect(ALG_BROADCAST, MIB, "push");
    expect(ALG_SCATTER, 64 * MIB, "nccl"); /* it has none here */
    plan_of(&four, "^push", NULL);
    expect(ALG_ALL_REDUCE, 1024, "oneshot");
    expect(ALG_ALL_GATHER, 1024, "nccl");
    expect(ALG_REDUCE, 256 * KIB, "nccl");
    plan_of(&four, "allgather:^push;reduce:nccl;4K-=staged:5x64;all:0-1K=staged", NULL);
    expect(ALG_ALL_GATHER, 2048, "nccl");
    expect(ALG_ALL_GATHER, 1000, "staged");
    expect(ALG_REDUCE, 2048, "nccl");
    expect(ALG_REDUCE, 4096, "staged");
    expect(ALG_REDUCE, 1000, "staged");
    assert_int_equal(choose(ALG_REDUCE, ALG_INT8, 4096).blocks, 5);
    expect(ALG_BROADCAST, 4096, "push");
    expect(ALG_ALL_REDUCE, 2048, "oneshot");
    expect(ALG_ALL_REDUCE, 1000, "staged");
    plan_of(&four, "nccl", NULL);
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++)
        assert_int_equal(choose((alg_collective_t)c, ALG_INT8, 1024).reason, SEL_FORWARD_POLICY);
    char fault[160] = "";
    assert_false(sel_policy_check("scatter:push", fault, sizeof fault));
    assert_string_equal(fault, "column 9: expected an algorithm (staged), builtin or nccl");
    assert_false(sel_policy_check("fast", fault, sizeof fault));
    assert_string_equal(
        fault, "column 1: expected an algorithm (oneshot, twoshot, staged, push, bulk, pairs), builtin or nccl");
    assert_true(sel_policy_check("reducescatter:push;reduce:staged;alltoall:0-1K=push", fault, sizeof fault));
}

static uint8_t index_of(alg_collective_t collective, const char *name)
{
    uint8_t i = 0;
    while (alg_registry[i] != alg_find(collective, name))
        i++;
    return i;
}

/* A row applies only to its collective; a row with another collective's algorithm applies to none. */
static void tuned_rows(void **state)
{
    (void)state;
    const uint32_t class_hash = sel_class_hash("nvswitch-sm90-4");
    const sel_tuned_row_t row = {
        .to_bytes = UINT64_MAX, .class_hash = class_hash, .kinds = SEL_ANY_KIND, .blocks = 3, .threads = 64};
    sel_tuned_t tuned = {.rows = 4, .row = {row, row, row, row}};
    tuned.row[0].collective = ALG_ALL_GATHER;
    tuned.row[0].algorithm = index_of(ALG_ALL_GATHER, "staged");
    tuned.row[1].collective = ALG_REDUCE;
    tuned.row[1].algorithm = SEL_NCCL;
    tuned.row[2].collective = ALG_ALL_TO_ALL;
    tuned.row[2].algorithm = index_of(ALG_ALL_GATHER, "staged");
    tuned.row[3].collective = 77;
    tuned.row[3].algorithm = SEL_NCCL;
    plan_of(&four, "", &tuned);
    expect(ALG_ALL_GATHER, 1024, "staged");
    assert_int_equal(choose(ALG_ALL_GATHER, ALG_FLOAT64, 1024).blocks, 3);
    expect(ALG_REDUCE, 1024, "nccl");
    expect(ALG_ALL_TO_ALL, 1024, "push");
    expect(ALG_ALL_REDUCE, 1024, "oneshot");
}

/* A message's bytes decide its route, since its two ends may have different types with the same number of bytes. */
static void bytes_decide_a_messages_route(void **state)
{
    (void)state;
    sel_tuned_row_t row = {.from_bytes = 1024,
                           .to_bytes = 2048,
                           .class_hash = sel_class_hash("nvswitch-sm90-4"),
                           .collective = ALG_SEND_RECV,
                           .kinds = (uint8_t)(1 << sel_kind(ALG_UINT8)),
                           .algorithm = SEL_NCCL};
    sel_tuned_t tuned = {.rows = 2, .row = {row, row}};
    tuned.row[1].from_bytes = 4096;
    tuned.row[1].to_bytes = 8192;
    tuned.row[1].kinds = (uint8_t)(1 << sel_kind(ALG_FLOAT64));
    plan_of(&four, "sendrecv:16K-=nccl", &tuned);
    for (alg_type_t type = 0; type < ALG_TYPE_COUNT; type++) {
        for (uint64_t bytes = 8; bytes <= 64 * KIB; bytes += 8) {
            const sel_choice_t one = choose(ALG_SEND_RECV, type, bytes), other = choose(ALG_SEND_RECV, ALG_INT8, bytes);
            assert_true(one.algorithm == other.algorithm && one.blocks == other.blocks && one.reason == other.reason);
        }
        assert_null(choose(ALG_SEND_RECV, type, 1024).algorithm);
        assert_non_null(choose(ALG_SEND_RECV, type, 4096).algorithm);
        assert_null(choose(ALG_SEND_RECV, type, 16 * KIB).algorithm);
    }
}

/* The CPU device and a deterministic plan serve every collective at every size. */
static void nothing_forwarded(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= ALG_MAX_RANKS; n++) {
        const sel_topology_t cpu = {.link = SEL_LINK_CPU, .nranks = n}, pcie = {.link = SEL_LINK_PCIE, .nranks = n};
        plan_of(&cpu, "", NULL);
        for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
            expect((alg_collective_t)c, 1008, c == ALG_ALL_REDUCE ? "oneshot" : one_crossing(c));
            const bool message = c == ALG_SEND_RECV;
            expect((alg_collective_t)c, 2 * MIB, c == ALG_ALL_REDUCE ? "staged" : message ? "bulk" : one_crossing(c));
            assert_int_equal(choose((alg_collective_t)c, ALG_INT8, 2 * MIB).blocks, message ? 2 : 1);
        }
        const sel_settings_t settings = {.scratch_bytes = 80u << 20, .deterministic = 1};
        sel_plan_init(&plan, &pcie, &settings);
        for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
            assert_int_equal(choose((alg_collective_t)c, ALG_INT8, 1008).reason, SEL_TAKEN);
            assert_int_equal(choose((alg_collective_t)c, ALG_INT8, 1024 * MIB).reason, SEL_TAKEN);
        }
    }
}

/* In a deterministic plan calls that the table forwards are served by the fastest algorithm; a switch with multicast
 * changes nothing. */
static void deterministic(void **state)
{
    (void)state;
    const sel_settings_t settings = {.scratch_bytes = 80u << 20, .deterministic = 1};
    sel_topology_t wide = four;
    wide.multicast = true;
    sel_plan_init(&plan, &wide, &settings);
    expect(ALG_ALL_REDUCE, 8 * MIB, "twoshot");
    expect(ALG_ALL_REDUCE, 1024 * MIB, "staged");
    expect(ALG_REDUCE, 1 * MIB, "push");
    expect(ALG_REDUCE, 64 * MIB, "twoshot"); /* in one crossing the root's link carries it n-1 times */
    assert_int_equal(choose(ALG_REDUCE, ALG_BFLOAT16, 64 * MIB).threads, 512); /* as in the row before */
    expect(ALG_REDUCE_SCATTER, 1024 * MIB, "bulk");
    plan_of(&wide, "", NULL);
    expect(ALG_REDUCE, 64 * MIB, "nccl");
}

/* Types that no kernel adds on old GPUs are still moved. */
static void old_gpus(void **state)
{
    (void)state;
    sel_topology_t topology = four;
    topology.arch = 80;
    plan_of(&topology, "staged", NULL);
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++)
        assert_int_equal(choose((alg_collective_t)c, ALG_FLOAT8_E5M2, 1024).reason,
                         alg_collective_reduces((alg_collective_t)c) ? SEL_FORWARD_TYPE : SEL_TAKEN);
    const sel_query_t none = {ALG_COLLECTIVE_COUNT, ALG_INT8, ALG_SUM, 1024, false};
    assert_int_equal(sel_choose(&plan, &none).reason, SEL_FORWARD_COLLECTIVE);
}

/* Without measurements short messages in one crossing are taken, long ones never, and none on unequal links. */
static void predictions(void **state)
{
    (void)state;
    for (uint32_t n = 5; n <= ALG_MAX_RANKS; n++) {
        sel_topology_t topology = four;
        topology.nranks = n;
        plan_of(&topology, "", NULL);
        for (int c = 1; c < ALG_SCATTER; c++) {
            sel_row_t row;
            expect((alg_collective_t)c, 1024 * MIB, "nccl");
            if (n < 8 && c != ALG_BROADCAST && c != ALG_REDUCE)
                continue; /* blocks of uneven sizes take longer */
            assert_true(sel_plan_row(&plan, (alg_collective_t)c, 0, 0, &row));
            assert_string_equal(row.rule.source, "predicted");
            expect((alg_collective_t)c, 840, "push");
        }
        expect(ALG_ALL_REDUCE, 42 * KIB, "oneshot");
        expect(ALG_BROADCAST, 4 * MIB, "nccl"); /* two-shot has not run on more than two */
        expect(ALG_ALL_GATHER, 840 * KIB, n == 8 ? "push" : "nccl");
    }
    const sel_topology_t unknown = {.link = SEL_LINK_BRIDGES, .nranks = 4, .arch = 90, .fingerprint = 7};
    const sel_tuned_t measured = {.machine = 7, .link = {20000, 4, 1500, SEL_LINK_BRIDGES}};
    for (int c = 1; c < ALG_SCATTER; c++) {
        plan_of(&unknown, "", NULL);
        expect((alg_collective_t)c, 1024, "nccl");
        plan_of(&unknown, "", &measured);
        expect((alg_collective_t)c, 1024, "push");
        expect((alg_collective_t)c, 16 * MIB, "nccl");
    }
}

/* The longest policy and tables for all collectives together fit a plan, and its rows cover every size. */
static void the_most(void **state)
{
    (void)state;
    sel_tuned_t tuned = {.rows = SEL_TUNED_ROWS};
    for (uint32_t i = 0; i < SEL_TUNED_ROWS; i++)
        tuned.row[i] = (sel_tuned_row_t){
            .from_bytes = 3 * i + 1,
            .to_bytes = 3 * i + 1,
            .class_hash = sel_class_hash("nvswitch-sm90-4"),
            .collective = (uint8_t)(i % ALG_COLLECTIVE_COUNT),
            .kinds = i % ALG_COLLECTIVE_COUNT == ALG_SEND_RECV ? (uint8_t)SEL_ANY_KIND : (uint8_t)(1 << i % SEL_KINDS),
            .blocks = (uint16_t)(i + 1),
            .threads = 32,
            .algorithm = index_of((alg_collective_t)(i % ALG_COLLECTIVE_COUNT), "staged")};
    plan_of(&four,
            "1M-2M=staged:1x32;3M-4M=staged:2x32;5M-6M=staged:3x32;7M-8M=staged:4x32;9M-10M=staged:5x32;"
            "11M-12M=staged:6x32;13M-14M=staged:7x32;15M-16M=staged:8x32;17M-18M=staged:9x32;19M-20M=staged:10x32",
            &tuned);
    assert_true(plan.bands <= SEL_BANDS && plan.rules <= SEL_RULES);
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        for (uint32_t kind = 0; kind < SEL_KINDS; kind++) {
            uint64_t next = 0;
            sel_row_t row;
            for (uint32_t i = 0; sel_plan_row(&plan, (alg_collective_t)c, kind, i, &row); i++) {
                assert_true(row.from_bytes == next && row.to_bytes >= next);
                next = row.to_bytes + 1;
            }
            assert_true(next == 0);
        }
    }
    for (uint32_t i = 0; i < SEL_TUNED_ROWS; i++) {
        const sel_tuned_row_t *row = &tuned.row[i];
        sel_row_t found = {0};
        for (uint32_t k = 0; found.to_bytes < row->from_bytes; k++)
            assert_true(sel_plan_row(&plan, (alg_collective_t)row->collective, i % SEL_KINDS, k, &found));
        assert_int_equal(found.rule.blocks, row->blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_the_larger_buffer),
        cmocka_unit_test(built_in_rows),
        cmocka_unit_test(unaligned_buffers),
        cmocka_unit_test(aligned_calls),
        cmocka_unit_test(multicast),
        cmocka_unit_test(policies),
        cmocka_unit_test(tuned_rows),
        cmocka_unit_test(bytes_decide_a_messages_route),
        cmocka_unit_test(nothing_forwarded),
        cmocka_unit_test(deterministic),
        cmocka_unit_test(old_gpus),
        cmocka_unit_test(predictions),
        cmocka_unit_test(the_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
