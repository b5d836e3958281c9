/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that results from the answers of the fake NVML (fake_nvml.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "selector/topology/topology.h"

static sel_machine_t machine;

static void expect_reach(const char *from, const char *to, int answer, sel_link_t link, uint32_t lanes)
{
    sel_reach_t reach = {.link = SEL_LINK_CPU};
    assert_int_equal(sel_nvml_reach(from, to, &reach), answer);
    assert_int_equal(reach.link, link);
    assert_int_equal(reach.lanes, lanes);
}

static const char *class_of_all(const char *scene)
{
    static char class[SEL_CLASS_BYTES];
    uint32_t all[SEL_MAX_GPUS];
    setenv("FAKE_NVML", scene, 1);
    machine = (sel_machine_t){0};
    sel_machine_add_gpus(&machine, "/nonexistent");
    for (uint32_t i = 0; i < machine.gpus; i++)
        all[i] = i;
    const sel_topology_t topology = sel_machine_topology(&machine, all, machine.gpus);
    sel_topology_class(&topology, class);
    return class;
}

static void switches(void **state)
{
    (void)state;
    assert_string_equal(class_of_all("switch"), "nvswitch-sm90-4");
    const sel_gpu_t *gpu = &machine.gpu[1];
    assert_string_equal(machine.pci[gpu->pci].bus, "0000:11:00.0");
    assert_string_equal(gpu->kind.name, "NVIDIA Made-Up");
    assert_int_equal(gpu->index, 1);
    assert_int_equal(gpu->kind.memory_bytes >> 30, 80);
    assert_int_equal(gpu->kind.nvlinks, 18);
    assert_int_equal(gpu->nvlinks.targets, 4);
    assert_string_equal(gpu->nvlinks.to[0].target, "0000:05:00.0");
    assert_int_equal(gpu->nvlinks.to[0].count, 5);
    assert_int_equal(gpu->nvlinks.to[3].count, 4);
    expect_reach("0000:10:00.0", "0000:13:00.0", 1, SEL_LINK_NVSWITCH, 18);
    expect_reach("0000:10:00.0", "0000:99:00.0", -1, SEL_LINK_CPU, 0);
    assert_ptr_equal(sel_nvml_links("0000:10:00.0"), sel_nvml_links("0000:10:00.0"));
    assert_null(sel_nvml_links("0000:99:00.0"));
}

static void lame(void **state)
{
    (void)state;
    assert_string_equal(class_of_all("lame"), "bridges-sm90-4");
    expect_reach("0000:20:00.0", "0000:22:00.0", 1, SEL_LINK_NVSWITCH, 18);
    expect_reach("0000:22:00.0", "0000:20:00.0", 1, SEL_LINK_NVSWITCH, 17);
}

static void hidden(void **state)
{
    (void)state;
    assert_string_equal(class_of_all("hidden"), "nvswitch-sm90-4");
    assert_int_equal(machine.gpu[0].nvlinks.targets, 1);
    assert_string_equal(machine.gpu[0].nvlinks.to[0].target, "fffffff:ffff:ff");
}

static void bridges(void **state)
{
    (void)state;
    assert_string_equal(class_of_all("bridges"), "bridges-sm80-4");
    expect_reach("0000:40:00.0", "0000:41:00.0", 1, SEL_LINK_MESH, 12);
    expect_reach("0000:40:00.0", "0000:42:00.0", 0, SEL_LINK_CPU, 0);
}

/* NVLink without reported links gets the class that it had before there were classes of links. */
static void mute(void **state)
{
    (void)state;
    setenv("FAKE_NVML", "mute", 1);
    expect_reach("0000:50:00.0", "0000:51:00.0", 1, SEL_LINK_NVSWITCH, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(switches), cmocka_unit_test(lame), cmocka_unit_test(hidden),
        cmocka_unit_test(bridges),  cmocka_unit_test(mute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
