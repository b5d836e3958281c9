/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs that reach each other over PCIe, without NVLink: what is served without `shunt tune`, compared with times that
 * others published, and through which memory.
 *
 * usage: pcie_test RESULTS_FOLDER
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "selector/cost.h"
#include "selector/topology/topology.h"

enum { LINE_BYTES = 512 };

static const char *folder;
static sel_plan_t plan;

/* The communicator, with the memory that its set-up would choose. */
static sel_topology_t over_pcie(sel_link_t link, uint32_t ranks, const sel_tuned_t *tuned)
{
    sel_topology_t topology = {.link = link, .nranks = ranks, .arch = 89, .fingerprint = 7};
    sel_settings_t settings = {.scratch_bytes = 80u << 20};
    if (tuned)
        settings.tuned = *tuned;
    sel_plan_init(&plan, &topology, &settings);
    if (sel_plan_prefers_pinned(&plan)) {
        topology.memory = ALG_MEMORY_PINNED;
        topology.peers = true;
        sel_plan_init(&plan, &topology, &settings);
    }
    return plan.topology;
}

static double predicted(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes)
{
    double time = INFINITY;
    (void)sel_cost_fastest(topology, &plan.map, collective, bytes, &time);
    return time;
}

/* An all-reduce of 4 KB, as in a decode step, is taken on any number of GPUs without settings. Long messages are
 * forwarded until `shunt tune` has run. */
static void untuned_pcie(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= ALG_MAX_RANKS; ranks++) {
        for (int link = SEL_LINK_PCIE; link <= SEL_LINK_SYS; link++) {
            const sel_topology_t topology = over_pcie((sel_link_t)link, ranks, NULL);
            for (int c = 0; c < ALG_COLLECTIVE_COUNT; c++) {
                const sel_query_t often = {(alg_collective_t)c, ALG_INT8, ALG_SUM, 2048, false};
                const sel_query_t large = {(alg_collective_t)c, ALG_INT8, ALG_SUM, 1 << 20, false};
                assert_true(sel_choose(&plan, &often).algorithm || c != ALG_ALL_REDUCE);
                assert_null(sel_choose(&plan, &large).algorithm);
            }
            /* Through host bridges, stores to several GPUs at once collapse; below a switch they do not. */
            const bool pinned = link == SEL_LINK_SYS || (link == SEL_LINK_PHB && ranks > 2);
            assert_int_equal(topology.memory, pinned ? ALG_MEMORY_PINNED : ALG_MEMORY_PEER);
        }
    }
}

/* The predicted time of each taken call is at most half of NCCL's published time (over pinned memory, 1/1.15 of it),
 * and not below that of published kernels like Shunt's. */
static void near_the_published(void **state)
{
    (void)state;
    char line[LINE_BYTES], link[8], collective[24];
    int rows = 0, taken = 0;
    char path[LINE_BYTES];
    snprintf(path, sizeof path, "%s/published-pcie.csv", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned ranks;
        unsigned long long bytes;
        double nccl_us, other_us = 0;
        if (sscanf(line, "%*[^,],%*[^,],%u,%7[^,],%23[^,],%llu,%lf,%lf", &ranks, link, collective, &bytes, &nccl_us,
                   &other_us) < 5)
            continue;
        rows++;
        sel_topology_t topology = {.link = SEL_LINK_SYS, .memory = ALG_MEMORY_PINNED, .nranks = ranks, .arch = 89};
        const bool shm = strcmp(link, "shm") == 0;
        const alg_collective_t which = alg_collective_find(collective);
        if (shm)
            assert_true(alg_map_init_shm(&plan.map, 80u << 20));
        else
            topology = over_pcie(link[0] == 's'   ? SEL_LINK_SYS
                                 : link[1] == 'h' ? SEL_LINK_PHB
                                                  : SEL_LINK_PCIE,
                                 ranks, NULL);
        if (!sel_cost_choose(&topology, &plan.map, which, bytes).algorithm)
            continue;
        taken++;
        const double ours = predicted(&topology, which, bytes);
        if (ours > nccl_us / (shm ? 1.15 : 2) || (other_us > 0 && ours < other_us))
            fail_msg("%u ranks, %s, %s of %llu bytes: %.1f us predicted, %.1f published for NCCL, %.1f for others",
                     ranks, link, collective, bytes, ours, nccl_us, other_us);
    }
    fclose(file);
    assert_true(rows >= 15 && taken >= 6);
}

/* Rows of `shunt tune` have priority, with the memory in which they were measured. Without rows, the model uses its
 * figures. */
static void tuned_pcie(void **state)
{
    (void)state;
    /* Stores to peers as slow as on some boards; then as fast as below a switch, and pinned memory slow. */
    for (uint32_t link = SEL_LINK_PCIE; link <= SEL_LINK_SYS; link++) {
        const sel_tuned_t slow = {
            .machine = 7, .link = {2600, 4, 1500, link}, .pinned = {26000, 24000, 4, 1700, link, 0}};
        const sel_tuned_t fast = {
            .machine = 7, .link = {24000, 4, 1200, link}, .pinned = {6000, 6000, 4, 2000, link, 0}};
        assert_int_equal(over_pcie((sel_link_t)link, 4, &slow).memory, ALG_MEMORY_PINNED);
        assert_non_null(sel_cost_choose(&plan.topology, &plan.map, ALG_ALL_REDUCE, 16 << 10).algorithm);
        assert_int_equal(over_pcie((sel_link_t)link, 4, &fast).memory, ALG_MEMORY_PEER);
        for (int pinned = 0; pinned < 2; pinned++) {
            sel_tuned_t rows = pinned ? fast : slow;
            char name[SEL_CLASS_BYTES];
            snprintf(name, sizeof name, "%s-sm89-4%s", pinned ? "shm" : sel_link_text((sel_link_t)link),
                     pinned ? "-p2p" : "");
            rows.rows = 1;
            rows.row[0] = (sel_tuned_row_t){.to_bytes = UINT64_MAX,
                                            .class_hash = sel_class_hash(name),
                                            .algorithm = SEL_NCCL,
                                            .kinds = SEL_ANY_KIND};
            assert_int_equal(over_pcie((sel_link_t)link, 4, &rows).memory,
                             pinned ? ALG_MEMORY_PINNED : ALG_MEMORY_PEER);
            rows.machine = 8; /* another machine's */
            assert_int_equal(over_pcie((sel_link_t)link, 4, &rows).memory, over_pcie((sel_link_t)link, 4, NULL).memory);
            rows.machine = 7;
            rows.row[0].class_hash = sel_class_hash("shm-sm89-4"); /* against NCCL without peer access, as for a program
                                                                      with NCCL_P2P_DISABLE=1 */
            assert_int_equal(over_pcie((sel_link_t)link, 4, &rows).memory,
                             pinned ? ALG_MEMORY_PEER : ALG_MEMORY_PINNED);
        }
    }
}

/* Of two memories with rows the one measured last is used. `builtin`, by which `shunt tune` measures, leaves the memory
 * to the figures of the links: rows of a quick run that had none must not decide for ever. */
static void measured_again(void **state)
{
    (void)state;
    const uint32_t peer = sel_class_hash("pcie-sm89-4"), pinned = sel_class_hash("shm-sm89-4-p2p");
    sel_settings_t settings = {
        .scratch_bytes = 80u << 20,
        .tuned = {
            .machine = 7,
            .rows = 2,
            .link = {24000, 4, 1200, SEL_LINK_PCIE},
            .pinned = {6000, 6000, 4, 2000, SEL_LINK_PCIE, 0},
            .row = {{.to_bytes = UINT64_MAX, .algorithm = SEL_NCCL, .kinds = SEL_ANY_KIND, .class_hash = peer},
                    {.to_bytes = UINT64_MAX, .algorithm = SEL_NCCL, .kinds = SEL_ANY_KIND, .class_hash = pinned}}}};
    const sel_topology_t topology = {.link = SEL_LINK_PCIE, .nranks = 4, .arch = 89, .fingerprint = 7};
    for (int last = 0; last < 2; last++) {
        settings.tuned.measured[0] = last ? peer : pinned;
        settings.tuned.measured[1] = last ? pinned : peer;
        sel_plan_init(&plan, &topology, &settings);
        assert_int_equal(sel_plan_prefers_pinned(&plan), last);
    }
    static const struct {
        const char *policy;
        bool pinned;
    } cases[] = {{"builtin", false}, {"0-1=builtin", true}, {"allreduce:builtin", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(settings.policy, sizeof settings.policy, "%s", cases[i].policy);
        sel_plan_init(&plan, &topology, &settings);
        assert_int_equal(sel_plan_prefers_pinned(&plan), cases[i].pinned);
    }
}

/* An algorithm in a policy determines the memory, except over NVLink. */
static void asked_memory(void **state)
{
    (void)state;
    static const struct {
        const char *policy;
        bool pinned;
    } cases[] = {{"", false},
                 {"oneshot", false},
                 {"shm-oneshot", true},
                 {"nccl", false},
                 {"0-4K=shm-staged", true},
                 {"64K-=nccl;allgather:shm-oneshot", true},
                 {"^shm-oneshot", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sel_settings_t settings = {.scratch_bytes = 80u << 20};
        sel_topology_t topology = {.link = SEL_LINK_PCIE, .nranks = 4, .arch = 89};
        snprintf(settings.policy, sizeof settings.policy, "%s", cases[i].policy);
        sel_plan_init(&plan, &topology, &settings);
        assert_int_equal(sel_plan_prefers_pinned(&plan), cases[i].pinned);
        topology.link = SEL_LINK_NVSWITCH;
        sel_plan_init(&plan, &topology, &settings);
        assert_false(sel_plan_prefers_pinned(&plan));
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s RESULTS_FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(untuned_pcie),   cmocka_unit_test(near_the_published), cmocka_unit_test(tuned_pcie),
        cmocka_unit_test(measured_again), cmocka_unit_test(asked_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
