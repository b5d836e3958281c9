/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Class names, the link of a combination of parts, and the facts in a fingerprint.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "selector/topology/topology.h"

static void names(void **state)
{
    (void)state;
    static const struct {
        sel_topology_t topology;
        const char *name;
    } cases[] = {
        {{.link = SEL_LINK_CPU, .nranks = 4}, "host-4"},
        {{.link = SEL_LINK_NVSWITCH, .nranks = 4, .arch = 90}, "nvswitch-sm90-4"},
        {{.link = SEL_LINK_NVSWITCH, .nranks = 8, .arch = 100, .multicast = true}, "nvswitch-sm100-8-mc"},
        {{.link = SEL_LINK_MESH, .nranks = 4, .arch = 80}, "mesh-sm80-4"},
        {{.link = SEL_LINK_MESH, .nranks = 4, .arch = 80, .lanes = 4}, "mesh-sm80-l4-4"},
        {{.link = SEL_LINK_NVSWITCH, .nranks = 8, .arch = 90, .multiprocessors = 78}, "nvswitch-sm90-m78-8"},
        {{.link = SEL_LINK_NVSWITCH, .nranks = 8, .arch = 90, .lanes = 8}, "nvswitch-sm90-l8-8"},
        {{.link = SEL_LINK_NVSWITCH, .nranks = 8, .arch = 120, .multiprocessors = 188, .lanes = 18, .multicast = true},
         "nvswitch-sm120-m188-l18-8-mc"},
        {{.link = SEL_LINK_BRIDGES, .nranks = 4, .arch = 80}, "bridges-sm80-4"},
        {{.link = SEL_LINK_PCIE, .nranks = 2, .arch = 89}, "pcie-sm89-2"},
        {{.link = SEL_LINK_PHB, .nranks = 2, .arch = 89}, "phb-sm89-2"},
        {{.link = SEL_LINK_SYS, .nranks = 8, .arch = 80}, "sys-sm80-8"},
        {{.link = SEL_LINK_SYS, .memory = ALG_MEMORY_PINNED, .nranks = 4, .arch = 89}, "shm-sm89-4"},
        {{.link = SEL_LINK_SYS, .memory = ALG_MEMORY_PINNED, .nranks = 4, .arch = 89, .peers = true}, "shm-sm89-4-p2p"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[SEL_CLASS_BYTES];
        sel_topology_class(&cases[i].topology, name);
        assert_string_equal(name, cases[i].name);
        sel_topology_t back;
        assert_true(sel_topology_parse(cases[i].name, &back));
        assert_memory_equal(&back, &cases[i].topology, sizeof back);
    }
    static const char *const bad[] = {"",
                                      "host",
                                      "host-",
                                      "host-4-mc",
                                      "nvswitch-4",
                                      "sm90-4",
                                      "pcie-sm-",
                                      "pcie-sm80-4-",
                                      "pcie-sm080-4",
                                      "pcie-sm80--4",
                                      "host-+4",
                                      "pcie-sm80-4-mcx",
                                      "nvswitchsm90-4",
                                      "nvswitch-sm90-m132-4",
                                      "nvswitch-sm90-l18-4",
                                      "nvswitch-sm90-m0-4",
                                      "nvswitch-sm90-m-4",
                                      "nvswitch-sm90-l8-m78-4",
                                      "phb-sm89-m78-4",
                                      "shm-sm90-l8-4",
                                      "phb-sm89-4-p2p",
                                      "host-4-p2p",
                                      "host-4 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sel_topology_t back;
        if (sel_topology_parse(bad[i], &back))
            fail_msg("'%s' is a class", bad[i]);
    }
    char name[SEL_CLASS_BYTES];
    sel_topology_class(
        &(sel_topology_t){.link = SEL_LINK_NVSWITCH, .nranks = UINT32_MAX, .arch = UINT32_MAX, .multicast = true},
        name);
    assert_true(strlen(name) < sizeof name);
}

static void expect_join(sel_reach_t a, sel_reach_t b, sel_reach_t both)
{
    const sel_reach_t ab = sel_reach_join(a, b), ba = sel_reach_join(b, a);
    assert_int_equal(ab.link, both.link);
    assert_int_equal(ab.lanes, both.lanes);
    assert_int_equal(ba.link, both.link);
    assert_int_equal(ba.lanes, both.lanes);
    assert_int_equal(ab.far, ba.far);
}

static void joins(void **state)
{
    (void)state;
    static const sel_reach_t all[] = {
        {.link = SEL_LINK_NVSWITCH, .lanes = 18},
        {.link = SEL_LINK_NVSWITCH, .lanes = 17},
        {.link = SEL_LINK_MESH, .lanes = 4},
        {.link = SEL_LINK_MESH, .lanes = 18},
        {.link = SEL_LINK_BRIDGES},
        {.link = SEL_LINK_PCIE},
        {.link = SEL_LINK_PHB},
        {.link = SEL_LINK_SYS},
    };
    enum { ALL = sizeof all / sizeof all[0], UNEQUAL = 4 };
    for (size_t a = 0; a < ALL; a++) {
        for (size_t b = 0; b < ALL; b++) {
            const bool nvlink = a < UNEQUAL + 1 || b < UNEQUAL + 1;
            expect_join(all[a], all[b], a == b ? all[a] : nvlink ? all[UNEQUAL] : all[a > b ? a : b]);
            for (size_t c = 0; c < ALL; c++) { /* in any order */
                const sel_reach_t last = sel_reach_join(all[a], sel_reach_join(all[b], all[c]));
                expect_join(sel_reach_join(all[a], all[b]), all[c], last);
                assert_int_equal(sel_reach_join(sel_reach_join(all[a], all[b]), all[c]).far, last.far);
            }
        }
    }
    const sel_reach_t untold = {.link = SEL_LINK_NVSWITCH}; /* a rank whose driver does not report the number */
    expect_join(untold, all[0], all[0]);
    expect_join(sel_reach_join(untold, all[0]), all[1], all[UNEQUAL]);
    expect_join(untold, all[2], all[UNEQUAL]);
    expect_join(untold, untold, untold);

    /* With bridges, the farthest of the other pairs stays known. */
    const sel_reach_t phb = sel_reach_join(all[2], all[6]), sys = sel_reach_join(all[7], phb);
    assert_int_equal(phb.far, SEL_LINK_PHB);
    assert_int_equal(sys.far, SEL_LINK_SYS);
    assert_int_equal(sel_reach_join(phb, sys).far, SEL_LINK_SYS);
    assert_int_equal(sel_reach_join(phb, all[2]).far, SEL_LINK_PHB);
    assert_int_equal(sel_reach_join(all[2], all[3]).far, SEL_LINK_CPU);
}

static void fingerprints(void **state)
{
    (void)state;
    const sel_gpu_kind_t h200 = {"NVIDIA H200", 90, 132, UINT64_C(150754820096), 18, 12080};
    const uint64_t one = sel_gpu_fingerprint(&h200);
    sel_gpu_kind_t other = h200;
    other.memory_bytes -= 4096;
    assert_true(sel_gpu_fingerprint(&other) == one);
    snprintf(other.name, sizeof other.name, "NVIDIA H100");
    const uint64_t two = sel_gpu_fingerprint(&other);
    assert_true(two != one);
    static const size_t words[] = {offsetof(sel_gpu_kind_t, arch), offsetof(sel_gpu_kind_t, multiprocessors),
                                   offsetof(sel_gpu_kind_t, nvlinks), offsetof(sel_gpu_kind_t, driver)};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        other = h200;
        ++*(uint32_t *)((char *)&other + words[i]);
        assert_true(sel_gpu_fingerprint(&other) != one);
    }
    other = h200;
    other.memory_bytes /= 2;
    assert_true(sel_gpu_fingerprint(&other) != one);

    const uint64_t equal = sel_fingerprint((uint64_t[]){one}, 1);
    assert_true(equal != 0 && sel_fingerprint((uint64_t[]){one, one, one, one}, 4) == equal);
    const uint64_t mixed = sel_fingerprint((uint64_t[]){one, two}, 2);
    assert_true(mixed != equal && sel_fingerprint((uint64_t[]){two, one, one}, 3) == mixed);
    assert_true(sel_fingerprint((uint64_t[]){UINT64_MAX, UINT64_MAX}, 2) != equal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(joins),
        cmocka_unit_test(fingerprints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
