/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice: valid and invalid policies, plans from the built-in table and from a policy, caps, calls that do not fit,
 * calls that are never forwarded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "selector/selector.h"

static const sel_topology_t four = {.link = SEL_LINK_NVSWITCH, .nranks = 4, .arch = 90, .multiprocessors = 132};

static sel_plan_t plan_of(const sel_topology_t *topology, const char *policy, uint32_t max_blocks, bool deterministic)
{
    sel_settings_t settings = {.scratch_bytes = 80u << 20, .max_blocks = max_blocks, .deterministic = deterministic};
    snprintf(settings.policy, sizeof settings.policy, "%s", policy);
    sel_plan_t plan;
    sel_plan_init(&plan, topology, &settings);
    return plan;
}

static sel_choice_t choose(const sel_plan_t *plan, alg_type_t type, uint64_t count)
{
    const sel_query_t query = {ALG_ALL_REDUCE, type, ALG_SUM, count, false};
    return sel_choose(plan, &query);
}

static const char *name_of(const sel_plan_t *plan, uint64_t bytes)
{
    const sel_choice_t choice = choose(plan, ALG_INT8, bytes);
    return choice.algorithm ? choice.algorithm->name : "nccl";
}

static void good_policies(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "nccl",
                                       "oneshot",
                                       "^staged",
                                       "allreduce:0-64K=oneshot;64K-2M=twoshot;2M-=nccl",
                                       "0-1g=twoshot;^oneshot",
                                       "oneshot:32x128;1M-=twoshot:1024x512",
                                       "builtin;0-4K=builtin",
                                       "allreduce:nccl;",
                                       "allreduce:",
                                       "allreduce:oneshot;allgather:nccl;all:64M-=builtin;reduce:1M-=nccl"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(sel_policy_check(good[i], NULL, 0));
}

static void bad_policies(void **state)
{
    (void)state;
    static const struct {
        const char *policy, *fault;
    } bad[] = {
        {"fastest", "column 1: expected an algorithm"},
        {"0-64K", "column 6: expected '='"},
        {"0=oneshot", "column 2: expected '-'"},
        {"64K-64K=oneshot", "column 8: expected an upper bound"},
        {"^nccl", "column 2: expected an algorithm (oneshot"},
        {"0-99999999999999999999=nccl", "column"},
        {"0-x=nccl", "column 3: expected a size"},
        {"oneshot twoshot", "column 1: expected an algorithm"},
        {"^;", "column 2: expected an algorithm"},
        {"^builtin", "column 2: expected an algorithm"},
        {"oneshot:", "column 9: expected blocks"},
        {"oneshot:0x32", "column 9: expected blocks"},
        {"oneshot:1025x32", "column 9: expected blocks"},
        {"oneshot:99999999999x32", "column 9: expected blocks"},
        {"oneshot:32", "column 11: expected 'x'"},
        {"oneshot:32x", "column 12: expected threads"},
        {"oneshot:32x1025", "column 12: expected threads"},
        {"oneshot:32x64x", "column 14: expected ';'"},
        {"nccl:32x64", "column 5: expected ';'"},
        {"allreduce", "column 1: expected an algorithm (oneshot"},
        {"allreduce=oneshot", "column 1: expected an algorithm"},
        {"broad:nccl", "column 1: expected an algorithm"},
        {"allsend:nccl", "column 1: expected an algorithm"},
        {"allgather:oneshot", "column 11: expected an algorithm"},
        {"alltoall:^twoshot", "column 11: expected an algorithm"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char fault[120] = "";
        assert_false(sel_policy_check(bad[i].policy, fault, sizeof fault));
        if (strncmp(fault, bad[i].fault, strlen(bad[i].fault)) != 0)
            fail_msg("%s: %s", bad[i].policy, fault);
    }
    char many[SEL_POLICY_BYTES + 8];
    memset(many, ';', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    assert_false(sel_policy_check(many, NULL, 0));
    assert_false(sel_policy_check(
        "nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl;nccl", NULL, 0));
}

/* Arbitrary bytes as a policy cause no crash, and a refusal names a fault. */
static void noise(void **state)
{
    (void)state;
    static const char alphabet[] = "allreduce:push;0123-=;^KMG oneshotwstagdc\xff";
    srand(5);
    for (int i = 0; i < 200000; i++) {
        char text[40], fault[80] = "";
        const int length = rand() % (int)sizeof text;
        for (int k = 0; k < length; k++)
            text[k] = alphabet[(size_t)rand() % (sizeof alphabet - 1)];
        text[length ? length - 1 : 0] = '\0';
        if (!sel_policy_check(text, fault, sizeof fault))
            assert_true(fault[0] != '\0');
    }
}

/* A plan's rows cover every size once, in ascending order. */
static void plans_are_whole(void **state)
{
    (void)state;
    static const char *const policies[] = {"", "0-64K=oneshot;64K-2M=twoshot;2M-=nccl", "^twoshot", "nccl"};
    for (uint32_t n = 2; n <= ALG_MAX_RANKS; n++) {
        for (int link = 0; link < SEL_LINK_COUNT; link++) {
            for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
                const sel_topology_t topology = {.link = (sel_link_t)link, .nranks = n, .arch = 90};
                const sel_plan_t plan = plan_of(&topology, policies[p], 0, false);
                for (uint32_t kind = 0; kind < SEL_KINDS; kind++) {
                    uint64_t next = 0;
                    sel_row_t row;
                    for (uint32_t i = 0; sel_plan_row(&plan, ALG_ALL_REDUCE, kind, i, &row); i++) {
                        assert_int_equal(row.from_bytes, next);
                        assert_true(row.to_bytes >= next);
                        next = row.to_bytes + 1;
                    }
                    assert_int_equal(next, 0);
                }
            }
        }
    }
}

static void built_in_table(void **state)
{
    (void)state;
    const sel_plan_t plan = plan_of(&four, "", 0, false);
    assert_string_equal(name_of(&plan, 1), "oneshot");
    assert_string_equal(name_of(&plan, 1 << 20), "twoshot");
    assert_string_equal(name_of(&plan, 1 << 30), "nccl");
    assert_int_equal(choose(&plan, ALG_INT8, 1 << 30).reason, SEL_FORWARD_TABLE);
    sel_topology_t multicast = four;
    multicast.multicast = true;
    const sel_plan_t careful = plan_of(&multicast, "", 0, false);
    assert_string_equal(name_of(&plan, 8 << 20), "twoshot");
    assert_string_equal(name_of(&careful, 4 << 20), "twoshot");
    assert_string_equal(name_of(&careful, 8 << 20), "nccl");
    const sel_topology_t unequal = {.link = SEL_LINK_BRIDGES, .nranks = 4, .arch = 90};
    const sel_plan_t none = plan_of(&unequal, "", 0, false);
    assert_string_equal(name_of(&none, 1024), "nccl");
}

static void policy_wins(void **state)
{
    (void)state;
    sel_plan_t plan = plan_of(&four, "0-64K=twoshot;64K-2M=oneshot;2M-=nccl", 0, false);
    assert_string_equal(name_of(&plan, 65535), "twoshot");
    assert_string_equal(name_of(&plan, 65536), "oneshot");
    assert_string_equal(name_of(&plan, 2 << 20), "nccl");
    assert_int_equal(choose(&plan, ALG_INT8, 2 << 20).reason, SEL_FORWARD_POLICY);
    plan = plan_of(&four, "0-4K=nccl", 0, false);
    assert_string_equal(name_of(&plan, 4095), "nccl");
    assert_string_equal(name_of(&plan, 4096), "oneshot");
    plan = plan_of(&four, "^oneshot", 0, false);
    assert_string_equal(name_of(&plan, 4096), "nccl");
    plan = plan_of(&four, "rubbish from another version", 0, false); /* as if empty, on every rank alike */
    assert_string_equal(name_of(&plan, 4096), "oneshot");
}

/* The grid is the policy's or the default one, with whole warps on a GPU and one thread on the CPU device. */
static void grids(void **state)
{
    (void)state;
    sel_plan_t plan = plan_of(&four, "twoshot:24x256", 0, false);
    sel_choice_t choice = choose(&plan, ALG_INT8, 1 << 20);
    assert_int_equal(choice.blocks, 24);
    assert_int_equal(choice.threads, 256);
    plan = plan_of(&four, "twoshot:24x100", 0, false);
    assert_int_equal(choose(&plan, ALG_INT8, 1 << 20).threads, 128);
    plan = plan_of(&four, "twoshot", 0, false);
    assert_int_equal(choose(&plan, ALG_INT8, 1 << 20).blocks, 32);
    assert_int_equal(choose(&plan, ALG_INT8, 4 << 20).blocks, 64);
    const sel_topology_t cpu = {.link = SEL_LINK_CPU, .nranks = 2};
    plan = plan_of(&cpu, "twoshot", 0, false);
    choice = choose(&plan, ALG_INT8, 1 << 20);
    assert_int_equal(choice.blocks, 1);
    assert_int_equal(choice.threads, 1);
}

static uint8_t index_of(const char *name)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (strcmp(alg_registry[i]->name, name) == 0)
            return (uint8_t)i;
    }
    return SEL_NCCL;
}

static sel_plan_t tuned_plan(const sel_topology_t *topology, const char *policy, const sel_tuned_t *tuned)
{
    sel_settings_t settings = {.scratch_bytes = 80u << 20, .tuned = *tuned};
    snprintf(settings.policy, sizeof settings.policy, "%s", policy);
    sel_plan_t plan;
    sel_plan_init(&plan, topology, &settings);
    return plan;
}

/* The order of precedence is: policy, tuned table, built-in rows, cost model, the real NCCL. */
static void precedence(void **state)
{
    (void)state;
    const uint32_t class_hash = sel_class_hash("nvswitch-sm90-4");
    sel_tuned_t tuned = {.machine = 7, .rows = 2};
    tuned.row[0] = (sel_tuned_row_t){.to_bytes = 65535,
                                     .class_hash = class_hash,
                                     .kinds = SEL_ANY_KIND,
                                     .blocks = 16,
                                     .threads = 256,
                                     .algorithm = index_of("twoshot")};
    tuned.row[1] = (sel_tuned_row_t){.from_bytes = 1 << 20,
                                     .to_bytes = UINT64_MAX,
                                     .class_hash = class_hash,
                                     .kinds = SEL_ANY_KIND,
                                     .algorithm = SEL_NCCL};
    sel_topology_t topology = four;
    topology.fingerprint = 7;
    sel_plan_t plan = tuned_plan(&topology, "", &tuned);
    assert_string_equal(name_of(&plan, 65535), "twoshot");
    assert_string_equal(name_of(&plan, 65536), "oneshot"); /* built in */
    assert_string_equal(name_of(&plan, (1 << 20) - 1), "twoshot");
    assert_string_equal(name_of(&plan, 1 << 20), "nccl");
    plan = tuned_plan(&topology, "0-1K=oneshot;2M-=staged", &tuned);
    assert_string_equal(name_of(&plan, 1023), "oneshot");
    assert_string_equal(name_of(&plan, 1024), "twoshot");
    assert_string_equal(name_of(&plan, 1 << 20), "nccl");
    assert_string_equal(name_of(&plan, 2 << 20), "staged");
    plan = tuned_plan(&topology, "0-1K=builtin", &tuned);
    assert_string_equal(name_of(&plan, 1023), "oneshot");
    assert_string_equal(name_of(&plan, 1024), "twoshot");
    plan = tuned_plan(&topology, "^twoshot", &tuned);
    assert_string_equal(name_of(&plan, 1024), "nccl");

    topology.fingerprint = 8; /* another machine */
    plan = tuned_plan(&topology, "", &tuned);
    assert_string_equal(name_of(&plan, 1024), "oneshot");
    tuned.forced = 1;
    plan = tuned_plan(&topology, "", &tuned);
    assert_string_equal(name_of(&plan, 1024), "twoshot");
    topology.multicast = true; /* another class */
    plan = tuned_plan(&topology, "", &tuned);
    assert_string_equal(name_of(&plan, 1024), "oneshot");

    topology = four;
    topology.nranks = 8; /* not measured */
    plan = tuned_plan(&topology, "", &tuned);
    sel_row_t row;
    assert_true(sel_plan_row(&plan, ALG_ALL_REDUCE, 0, 0, &row));
    assert_string_equal(row.rule.source, "predicted");
    assert_string_equal(name_of(&plan, 1024), "oneshot");
    assert_string_equal(name_of(&plan, 1 << 30), "nccl");
}

/* The model uses a table's figures of the links under the same condition as the plan uses its rows. */
static void measured_links(void **state)
{
    (void)state;
    const sel_topology_t unequal = {.link = SEL_LINK_BRIDGES, .nranks = 4, .arch = 90, .fingerprint = 7};
    const sel_tuned_t ours = {.machine = 7, .link = {20000, 4, 1500, SEL_LINK_BRIDGES}};
    sel_tuned_t other = ours, empty = ours, foreign = ours;
    other.machine = 8;
    empty.link.bytes_per_us = 0;
    foreign.link.gpus = 1;
    sel_tuned_t forced = other;
    forced.forced = 1;
    const struct {
        const sel_tuned_t *tuned;
        const char *name, *source;
    } cases[] = {{&ours, "oneshot", "predicted"},
                 {&forced, "oneshot", "predicted"},
                 {&other, "nccl", "no row"},
                 {&empty, "nccl", "no row"},
                 {&foreign, "nccl", "no row"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sel_plan_t plan = tuned_plan(&unequal, "", cases[i].tuned);
        sel_row_t row;
        assert_true(sel_plan_row(&plan, ALG_ALL_REDUCE, 0, 0, &row));
        assert_string_equal(row.rule.source, cases[i].source);
        assert_string_equal(name_of(&plan, 1024), cases[i].name);
        const bool taken = strcmp(cases[i].source, "predicted") == 0;
        assert_int_equal(plan.topology.measured.bytes_per_us, taken ? 20000 : 0);
    }
}

/* Figures of other links, of unknown ones, or of fewer GPUs apply only if a switch gives each GPU its own links: a GPU
 * kind's file is found on every machine with such GPUs, and in every job. */
static void measured_elsewhere(void **state)
{
    (void)state;
    for (int on = SEL_LINK_CPU; on < SEL_LINK_NETWORK; on++) {
        for (int link = SEL_LINK_NVSWITCH; link < SEL_LINK_NETWORK; link++) {
            for (uint32_t nranks = 2; nranks <= ALG_MAX_RANKS; nranks++) {
                const sel_topology_t topology = {
                    .link = (sel_link_t)link, .nranks = nranks, .arch = 80, .fingerprint = 7};
                const sel_tuned_t tuned = {.machine = 7,
                                           .link = {90000, 4, 900, (uint32_t)on},
                                           .pinned = {20000, 20000, 4, 1600, (uint32_t)on, 0}};
                const sel_plan_t plan = tuned_plan(&topology, "", &tuned);
                const bool same = on == link && nranks <= 4;
                assert_int_equal(plan.topology.pinned.store_bytes_per_us, same ? 20000 : 0);
                const bool counts = same || (link == SEL_LINK_NVSWITCH && (on == link || on == SEL_LINK_CPU));
                assert_int_equal(plan.topology.measured.bytes_per_us, counts ? 90000 : 0);
            }
        }
    }
}

/* No communicator is set up if every size is forwarded, except with a policy, which the program may change later. */
static void served(void **state)
{
    (void)state;
    const sel_topology_t unequal = {.link = SEL_LINK_BRIDGES, .nranks = 4, .arch = 80, .fingerprint = 7};
    const sel_topology_t cpu = {.link = SEL_LINK_CPU, .nranks = 4};
    sel_tuned_t none = {0}, row = {.machine = 7, .rows = 1};
    row.row[0] = (sel_tuned_row_t){.to_bytes = 1024,
                                   .class_hash = sel_class_hash("bridges-sm80-4"),
                                   .blocks = 16,
                                   .threads = 512,
                                   .collective = ALG_ALL_REDUCE,
                                   .algorithm = index_of("oneshot"),
                                   .kinds = SEL_ANY_KIND};
    const struct {
        const sel_topology_t *topology;
        const char *policy;
        const sel_tuned_t *tuned;
        bool serves;
    } cases[] = {{&unequal, "", &none, false},
                 {&unequal, "", &row, true},
                 {&unequal, "^oneshot", &row, true},
                 {&unequal, "builtin", &none, true},
                 {&unequal, "oneshot", &none, true},
                 {&four, "", &none, true},
                 {&cpu, "", &none, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sel_plan_t plan = tuned_plan(cases[i].topology, cases[i].policy, cases[i].tuned);
        assert_int_equal(sel_plan_serves(&plan), cases[i].serves);
    }
    const sel_plan_t always = plan_of(&unequal, "", 0, true); /* SHUNT_DETERMINISTIC */
    assert_true(sel_plan_serves(&always));
    row.row[0].algorithm = SEL_NCCL;
    row.row[0].blocks = row.row[0].threads = 0;
    const sel_plan_t tuned = tuned_plan(&unequal, "", &row);
    assert_false(sel_plan_serves(&tuned));
}

/* Each kind of type uses its own rows. */
static void kinds(void **state)
{
    (void)state;
    sel_tuned_t tuned = {.rows = 1};
    tuned.row[0] = (sel_tuned_row_t){.to_bytes = UINT64_MAX,
                                     .class_hash = sel_class_hash("nvswitch-sm90-4"),
                                     .kinds = (uint8_t)(1 << sel_kind(ALG_FLOAT16)),
                                     .blocks = 8,
                                     .threads = 64,
                                     .algorithm = index_of("staged")};
    const sel_plan_t plan = tuned_plan(&four, "", &tuned);
    assert_string_equal(choose(&plan, ALG_FLOAT16, 64).algorithm->name, "staged");
    assert_string_equal(choose(&plan, ALG_BFLOAT16, 64).algorithm->name, "staged");
    assert_string_equal(choose(&plan, ALG_FLOAT32, 64).algorithm->name, "oneshot");
    assert_string_equal(choose(&plan, ALG_INT32, 64).algorithm->name, "oneshot");
}

/* From a table of another NCCL, rows for NCCL apply, but Shunt's only if the model predicts the larger gain. */
static void another_nccl(void **state)
{
    (void)state;
    const sel_topology_t eight = {.link = SEL_LINK_NVSWITCH, .nranks = 8, .arch = 90, .fingerprint = 7};
    const uint32_t hash = sel_class_hash("nvswitch-sm90-8");
    sel_tuned_t tuned = {.machine = 7, .rows = 2, .measured = {1, hash}};
    tuned.row[0] = (sel_tuned_row_t){.to_bytes = UINT64_MAX,
                                     .class_hash = hash,
                                     .kinds = SEL_ANY_KIND,
                                     .blocks = 32,
                                     .threads = 512,
                                     .algorithm = index_of("twoshot")};
    tuned.row[1] = tuned.row[0];
    tuned.row[1].to_bytes = 2048;
    tuned.row[1].algorithm = SEL_NCCL;
    sel_plan_t plan = tuned_plan(&eight, "", &tuned);
    assert_int_equal(sel_plan_measurement(&plan), SEL_MEASURED);
    assert_string_equal(name_of(&plan, 1024), "nccl");
    assert_string_equal(name_of(&plan, 64 << 10), "twoshot");
    assert_string_equal(name_of(&plan, 8 << 20), "twoshot");
    tuned.old = 2;
    plan = tuned_plan(&eight, "", &tuned);
    assert_int_equal(sel_plan_measurement(&plan), SEL_MEASURED_OTHER);
    assert_string_equal(name_of(&plan, 1024), "nccl");
    assert_string_equal(name_of(&plan, 64 << 10), "twoshot");
    assert_string_equal(name_of(&plan, 8 << 20), "nccl");
    tuned.known = 2; /* measured with this one before: the same choices */
    plan = tuned_plan(&eight, "", &tuned);
    assert_int_equal(sel_plan_measurement(&plan), SEL_MEASURED_EARLIER);
    assert_string_equal(name_of(&plan, 8 << 20), "nccl");
    memset(tuned.measured, 0, sizeof tuned.measured);
    plan = tuned_plan(&eight, "", &tuned); /* its rows say that it was measured, not with what */
    assert_int_equal(sel_plan_measurement(&plan), SEL_MEASURED);
    tuned.machine = 8;
    plan = tuned_plan(&eight, "", &tuned);
    assert_int_equal(sel_plan_measurement(&plan), SEL_NOT_MEASURED);
}

/* Rows from another process with arbitrary contents do no harm. */
static void foreign_rows(void **state)
{
    (void)state;
    srand(11);
    for (int i = 0; i < 300; i++) {
        sel_tuned_t tuned = {.rows = i % 2 ? SEL_TUNED_ROWS : UINT32_MAX};
        for (uint32_t k = 0; k < SEL_TUNED_ROWS; k++) {
            uint8_t *bytes = (uint8_t *)&tuned.row[k];
            for (size_t b = 0; b < sizeof tuned.row[k]; b++)
                bytes[b] = (uint8_t)rand();
            tuned.row[k].class_hash = sel_class_hash("nvswitch-sm90-4");
            tuned.row[k].algorithm %= alg_registry_count + 2;
            if (k % 2)
                tuned.row[k].from_bytes %= tuned.row[k].to_bytes %= 1 << 20;
        }
        const sel_plan_t plan = tuned_plan(&four, "0-64K=oneshot;64K-2M=twoshot;2M-=nccl", &tuned);
        assert_true(plan.bands > 0 && plan.bands <= SEL_BANDS && plan.rules <= SEL_RULES);
        for (uint64_t bytes = 1; bytes < 1 << 21; bytes = bytes * 3 + 1) {
            const sel_choice_t choice = choose(&plan, ALG_INT8, bytes);
            if (choice.algorithm)
                assert_true(choice.blocks > 0 && choice.blocks <= UINT16_MAX && choice.threads % 32 == 0 &&
                            choice.threads > 0 && choice.threads <= SEL_MOST_THREADS);
        }
    }
}

static void expect_reductions_taken(const sel_topology_t *topology)
{
    const alg_collective_t reduces[] = {ALG_ALL_REDUCE, ALG_REDUCE_SCATTER, ALG_REDUCE};
    const sel_plan_t plan = plan_of(topology, "", 0, true);
    const uint64_t most = (UINT64_C(64) << 30) / topology->nranks; /* kernels count vectors in 32 bits */
    for (int i = 0; i < 3 * ALG_TYPE_COUNT; i++) {
        for (uint64_t count = 1; count < most / alg_type_bytes((alg_type_t)(i / 3)); count = 5 * count + 3) {
            const sel_query_t query = {reduces[i % 3], (alg_type_t)(i / 3), ALG_SUM, count, false};
            assert_int_equal(sel_choose(&plan, &query).reason, SEL_TAKEN);
        }
    }
}

/* With SHUNT_DETERMINISTIC every reduction of every type and size is taken, whatever the links, the memory and the
 * ranks. */
static void deterministic(void **state)
{
    (void)state;
    for (int link = SEL_LINK_CPU; link < SEL_LINK_NETWORK; link++) {
        for (uint32_t n = 2; n <= ALG_MAX_RANKS; n++) {
            sel_topology_t topology = {.link = (sel_link_t)link, .nranks = n, .arch = 90, .multicast = n % 2};
            expect_reductions_taken(&topology);
            topology.memory = ALG_MEMORY_PINNED;
            if (link != SEL_LINK_CPU) /* which has one memory */
                expect_reductions_taken(&topology);
        }
    }
}

static void nothing_forwarded(void **state)
{
    (void)state;
    sel_plan_t plan = plan_of(&four, "", 0, true);
    assert_string_equal(name_of(&plan, 24 << 20), "twoshot");
    assert_string_equal(name_of(&plan, 40 << 20), "staged"); /* also fits two-shot, which the model finds slower */
    assert_string_equal(name_of(&plan, 1 << 30), "staged");
    plan = plan_of(&four, "^oneshot", 0, true);
    assert_string_equal(name_of(&plan, 1024), "twoshot");
    const sel_topology_t cpu = {.link = SEL_LINK_CPU, .nranks = 8};
    plan = plan_of(&cpu, "nccl", 0, false);
    assert_string_equal(name_of(&plan, 1024), "oneshot"); /* the CPU device cannot forward */
    assert_string_equal(name_of(&plan, 1 << 30), "staged");
}

/* Measured figures of pinned memory are used under the same condition. */
static void measured_pinned(void **state)
{
    (void)state;
    const sel_topology_t cards = {
        .link = SEL_LINK_SYS, .memory = ALG_MEMORY_PINNED, .nranks = 4, .arch = 89, .fingerprint = 7};
    sel_tuned_t ours = {.machine = 7, .pinned = {26000, 24000, 4, 1800, SEL_LINK_SYS, 0}}, half = ours, other = ours,
                foreign = ours;
    half.pinned.load_bytes_per_us = 0;
    other.machine = 8;
    foreign.pinned.gpus = 1;
    const sel_tuned_t *const unfit[] = {&half, &other, &foreign};
    const sel_plan_t measured = tuned_plan(&cards, "", &ours), unmeasured = plan_of(&cards, "", 0, false);
    assert_string_equal(name_of(&measured, 32 << 10), "shm-twoshot");
    assert_string_equal(name_of(&unmeasured, 32 << 10), "nccl");
    assert_string_equal(name_of(&unmeasured, 1024), "shm-oneshot");
    for (size_t i = 0; i < sizeof unfit / sizeof unfit[0]; i++) {
        const sel_plan_t plan = tuned_plan(&cards, "", unfit[i]);
        assert_string_equal(name_of(&plan, 32 << 10), "nccl");
    }
}

/* An algorithm for one memory is not chosen for the other: neither by a row, nor by a policy, nor if none may be
 * forwarded. */
static void pinned_memory(void **state)
{
    (void)state;
    sel_topology_t topology = four;
    topology.link = SEL_LINK_PHB;
    topology.memory = ALG_MEMORY_PINNED;
    sel_plan_t plan = plan_of(&topology, "", 0, false);
    assert_string_equal(name_of(&plan, 1024), "shm-oneshot");
    assert_string_equal(name_of(&plan, 1 << 30), "nccl");
    for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
        const sel_query_t query = {(alg_collective_t)c, ALG_FLOAT32, ALG_SUM, 256, false};
        const bool short_start = c == ALG_ALL_REDUCE || c == ALG_REDUCE_SCATTER || c == ALG_ALL_GATHER;
        assert_true(sel_choose(&plan, &query).reason == SEL_TAKEN || !short_start); /* others may lack the lead */
    }
    plan = plan_of(&topology, "shm-staged;0-1K=oneshot", 0, false);
    assert_string_equal(name_of(&plan, 1024), "shm-staged");
    assert_string_equal(name_of(&plan, 1 << 30), "shm-staged");
    plan = plan_of(&topology, "", 0, true);
    assert_string_equal(name_of(&plan, 1 << 30), "shm-staged");
    plan = plan_of(&four, "shm-staged", 0, true);
    assert_string_equal(name_of(&plan, 1024), "oneshot");
    assert_string_equal(name_of(&plan, 1 << 30), "staged");
}

/* Of what was measured between two H200, other architectures take what had a clear lead. */
static void pinned_memory_elsewhere(void **state)
{
    (void)state;
    static const struct {
        uint32_t arch;
        const char *longer, *message;
    } cases[] = {{90, "shm-staged", "shm-pairs"}, {89, "nccl", "nccl"}, {120, "nccl", "nccl"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sel_topology_t topology = {
            .link = SEL_LINK_PHB, .memory = ALG_MEMORY_PINNED, .nranks = 2, .arch = cases[i].arch};
        const sel_plan_t plan = plan_of(&topology, "", 0, false), own = plan_of(&topology, "", 0, true);
        const sel_query_t message = {ALG_SEND_RECV, ALG_INT8, ALG_SUM, 4096, false};
        const sel_choice_t choice = sel_choose(&plan, &message);
        assert_string_equal(name_of(&plan, 256 << 10), "shm-oneshot");
        assert_string_equal(name_of(&plan, 4 << 20), cases[i].longer);
        assert_string_equal(choice.algorithm ? choice.algorithm->name : "nccl", cases[i].message);
        assert_string_equal(name_of(&own, 4 << 20), "shm-staged");
    }
}

/* Integers, for which the scratch has less room, are served like floats. */
static void less_room(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        sel_topology_t topology = four;
        topology.nranks = n;
        const sel_plan_t plan = plan_of(&topology, "", 0, false);
        for (uint64_t bytes = 1 << 20; bytes <= 24 << 20; bytes += 1 << 20) {
            assert_int_equal(choose(&plan, ALG_INT32, bytes / 4).reason, SEL_TAKEN);
            assert_int_equal(choose(&plan, ALG_FLOAT32, bytes / 4).reason, SEL_TAKEN);
        }
        assert_string_equal(choose(&plan, ALG_INT32, 3 << 20).algorithm->name, "twoshot");
        assert_string_equal(choose(&plan, ALG_FLOAT32, 3 << 20).algorithm->name, "twoshot");
        assert_string_equal(choose(&plan, ALG_INT32, 4 << 20).algorithm->name, n == 3 ? "staged" : "twoshot");
    }
}

/* A cap on the blocks leaves a row's product of blocks and threads, on which its time rests: of 16 MiB between two
 * H100, 128 blocks of 256 threads take 52 us, 16 of 256 153, 16 of 512 92 (selector/measured/slim-2-h100.csv). */
static void capped_blocks_have_more_threads(void **state)
{
    (void)state;
    const sel_topology_t two = {.link = SEL_LINK_NVSWITCH, .nranks = 2, .arch = 90, .multiprocessors = 132};
    static const struct {
        const char *policy;
        uint32_t most, blocks, threads;
    } cases[] = {{"", 0, 128, 256},
                 {"", 128, 128, 256},
                 {"", 64, 64, 512},
                 {"", 48, 48, 512},
                 {"", 32, 32, 1024},
                 {"", 4, 4, 1024},
                 {"twoshot:64x128", 16, 16, 128}}; /* a policy's threads are as it says */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sel_plan_t plan = plan_of(&two, cases[i].policy, cases[i].most, false);
        const sel_choice_t choice = choose(&plan, ALG_BFLOAT16, 8 << 20);
        assert_string_equal(choice.algorithm->name, "twoshot");
        assert_int_equal(choice.blocks, cases[i].blocks);
        assert_int_equal(choice.threads, cases[i].threads);
    }
    /* push: 32 blocks of 512 take 30 us, of 1024 36; 16 of 512 59, of 1024 40. */
    for (uint32_t most = 32; most >= 16; most /= 2) {
        const sel_plan_t capped = plan_of(&two, "", most, false);
        const sel_query_t query = {ALG_REDUCE_SCATTER, ALG_BFLOAT16, ALG_SUM, 8 << 20, false};
        const sel_choice_t choice = sel_choose(&capped, &query);
        assert_string_equal(choice.algorithm->name, "push");
        assert_int_equal(choice.blocks, most);
        assert_int_equal(choice.threads, most == 32 ? 512 : 1024);
    }
    const sel_topology_t cpu = {.link = SEL_LINK_CPU, .nranks = 2};
    const sel_plan_t plan = plan_of(&cpu, "", 1, false);
    sel_row_t row;
    assert_true(sel_plan_row(&plan, ALG_SEND_RECV, 0, 1, &row));
    assert_string_equal(row.rule.algorithm->name, "bulk");
    assert_int_equal(row.rule.threads, 1);
}

static void limits(void **state)
{
    (void)state;
    sel_plan_t plan = plan_of(&four, "", 3, false);
    assert_int_equal(choose(&plan, ALG_INT8, 1 << 20).blocks, 3);
    plan = plan_of(&four, "oneshot", 0, false);
    assert_int_equal(choose(&plan, ALG_INT8, 1 << 30).reason, SEL_FORWARD_TOO_LARGE);
    assert_int_equal(choose(&plan, ALG_FLOAT64, UINT64_MAX / 4).reason, SEL_FORWARD_TOO_LARGE);
    const sel_choice_t small = choose(&plan, ALG_FLOAT32, 1);
    assert_int_equal(small.blocks, 1);
    assert_int_equal(small.threads % 32, 0);
    sel_topology_t old = four;
    old.arch = 80;
    plan = plan_of(&old, "", 0, false);
    assert_int_equal(choose(&plan, ALG_FLOAT8_E4M3, 8).reason, SEL_FORWARD_TYPE);
    assert_int_equal(choose(&plan, ALG_BFLOAT16, 8).reason, SEL_TAKEN);
}

/* No launch has more threads than its kernel was compiled for: kernels that keep more values in registers have
 * fewer. */
static void shape_fits_kernels(void **state)
{
    (void)state;
    assert_true(alg_registry_count <= 64); /* sel_plan_t and a policy have a bit for each */
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        const char *name = alg_registry[i]->name;
        const bool few = strcmp(name, "staged") == 0 || strcmp(name, "pairs") == 0;
        /* Built for its roles, whatever the number of ranks. */
        const alg_collective_t collective = alg_registry[i]->collective;
        const uint32_t roles = strcmp(name, "bulk") != 0            ? 0
                               : alg_collective_reduces(collective) ? 800
                               : collective == ALG_SEND_RECV        ? 768
                                                                    : 544;
        for (uint32_t n = 2; n <= ALG_MAX_RANKS; n++) {
            for (uint64_t bytes = 1; bytes <= 1 << 30; bytes *= 4) {
                uint32_t blocks = 64, threads = SEL_MOST_THREADS;
                alg_registry[i]->shape(bytes, n, &blocks, &threads);
                assert_in_range(blocks, 1, 64);
                assert_in_range(threads, 64, roles > 0 ? roles : n > 4 || few ? 512 : 1024);
                assert_int_equal(threads % 32, 0);
            }
        }
    }
}

/* The largest message that an algorithm reports fits its scratch, for every type and number of ranks. */
static void scratch_holds_it(void **state)
{
    (void)state;
    alg_map_t map;
    assert_false(alg_map_init(&map, 1000));
    for (size_t bytes = 1 << 20; bytes <= 64 << 20; bytes *= 2) {
        assert_true(alg_map_init(&map, bytes));
        assert_true(map.staging_offset + map.staging_bytes <= map.total_bytes);
        for (int type = 0; type < ALG_TYPE_COUNT; type++) {
            for (uint32_t n = 2; n <= ALG_MAX_RANKS; n++) {
                const uint64_t vector = type < ALG_FLOAT16 ? 20 : 16; /* integers: an escape word beside each */
                const uint64_t one = alg_find(ALG_ALL_REDUCE, "oneshot")->max_bytes(&map, n, (alg_type_t)type);
                const uint64_t two = alg_find(ALG_ALL_REDUCE, "twoshot")->max_bytes(&map, n, (alg_type_t)type) / 4;
                assert_true(one / 16 * (n - 1) * vector <= map.half_bytes);
                assert_true(two / 16 / n * 2 * (n - 1) * vector <= map.half_bytes); /* a segment */
                assert_true(one > 0 && two > one / 2);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_policies),
        cmocka_unit_test(bad_policies),
        cmocka_unit_test(noise),
        cmocka_unit_test(plans_are_whole),
        cmocka_unit_test(built_in_table),
        cmocka_unit_test(policy_wins),
        cmocka_unit_test(measured_pinned),
        cmocka_unit_test(pinned_memory),
        cmocka_unit_test(pinned_memory_elsewhere),
        cmocka_unit_test(less_room),
        cmocka_unit_test(limits),
        cmocka_unit_test(nothing_forwarded),
        cmocka_unit_test(deterministic),
        cmocka_unit_test(shape_fits_kernels),
        cmocka_unit_test(scratch_holds_it),
        cmocka_unit_test(grids),
        cmocka_unit_test(capped_blocks_have_more_threads),
        cmocka_unit_test(precedence),
        cmocka_unit_test(kinds),
        cmocka_unit_test(another_nccl),
        cmocka_unit_test(foreign_rows),
        cmocka_unit_test(measured_links),
        cmocka_unit_test(measured_elsewhere),
        cmocka_unit_test(served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
