/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines from files in NCCL's format: the class of all GPUs and of some, the port near each GPU, and that written
 * files are read back unchanged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "selector/topology/topology.h"

typedef struct expected {
    const char *file, *class;
    const char *near[8]; /* a GPU's port; NULL: none */
} expected_t;

static const expected_t MACHINES[] = {
    {"nvswitch-8-nics-8",
     "nvswitch-sm90-8",
     {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"}},
    {"h200-4", "nvswitch-sm90-4", {NULL}}, /* a real machine: 4 GPUs of a virtual machine */
    {"nvswitch-hidden-8", "nvswitch-sm100-8", {"eth0", "eth0", "eth0", "eth0", "eth0", "eth0", "eth0", "eth0"}},
    {"nvswitch-lame-4", "bridges-sm90-4", {NULL}},
    {"pcie-switch-4", "pcie-sm80-4", {"mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0"}},
    {"bridges-2x2", "bridges-sm80-4", {NULL}},
    {"sockets-2x4", "sys-sm89-8", {"mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0", "mlx5_0"}},
    {"mesh-4", "mesh-sm80-l4-4", {NULL}},
    /* Described by data sheets (docs/lab/estimates.md). */
    {"h100-8", "nvswitch-sm90-8-mc", {NULL}},
    {"a100-8", "nvswitch-sm80-8", {NULL}},
    {"a100-4", "mesh-sm80-l4-4", {NULL}},
    {"h20-8", "nvswitch-sm90-m78-8-mc", {NULL}},
    {"h800-8", "nvswitch-sm90-l8-8-mc", {NULL}},
    {"b200-8", "nvswitch-sm100-8-mc", {NULL}},
    {"l40s-8", "sys-sm89-8", {NULL}},
    {"pro6000-4", "phb-sm120-4", {NULL}},
    {"cube-8", "bridges-sm70-8", {"mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1", "mlx5_2", "mlx5_2", "mlx5_3", "mlx5_3"}},
    {"nics-near-far", "pcie-sm90-2", {"mlx5_2", "mlx5_2"}},
};
enum { MACHINE_COUNT = sizeof MACHINES / sizeof MACHINES[0] };

static sel_machine_t machine, again; /* too large for a stack */

static void load(const char *name)
{
    char file[512], fault[256] = "";
    snprintf(file, sizeof file, SHUNT_MACHINES "/%s.xml", name);
    if (!sel_machine_load(&machine, file, fault, sizeof fault))
        fail_msg("%s", fault);
}

/* "all", or the digits of some GPUs. */
static const char *class_of(const char *which, sel_topology_t *topology)
{
    static char class[SEL_CLASS_BYTES];
    uint32_t gpu[SEL_MAX_GPUS], count = 0;
    if (strcmp(which, "all") == 0) {
        for (; count < machine.gpus; count++)
            gpu[count] = count;
    }
    for (const char *c = which; count < SEL_MAX_GPUS && *c >= '0' && *c <= '9'; c++)
        gpu[count++] = (uint32_t)(*c - '0');
    *topology = sel_machine_topology(&machine, gpu, count);
    sel_topology_class(topology, class);
    return class;
}

static void classes(void **state)
{
    (void)state;
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        sel_topology_t topology;
        load(MACHINES[i].file);
        assert_string_equal(class_of("all", &topology), MACHINES[i].class);
    }
}

static void near_ports(void **state)
{
    (void)state;
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        load(MACHINES[i].file);
        for (uint32_t g = 0; g < machine.gpus; g++) {
            const int32_t near = sel_nic_near(&machine, g);
            const char *name = near < 0 ? "none" : machine.nic[near].name;
            const char *wanted = MACHINES[i].near[g] ? MACHINES[i].near[g] : "none";
            if (strcmp(name, wanted) != 0)
                fail_msg("%s: GPU %u has %s, not %s", MACHINES[i].file, g, name, wanted);
        }
    }
}

/* Communicators of some of a machine's GPUs have their own class, but the same fingerprint. */
static void subsets(void **state)
{
    (void)state;
    static const struct {
        const char *file, *gpus, *class;
    } cases[] = {
        {"nvswitch-8-nics-8", "07", "nvswitch-sm90-2"},
        {"nvswitch-lame-4", "013", "nvswitch-sm90-3"},
        {"nvswitch-lame-4", "12", "bridges-sm90-2"},
        {"bridges-2x2", "01", "mesh-sm80-l12-2"},
        {"bridges-2x2", "12", "sys-sm80-2"},
        {"bridges-2x2", "012", "bridges-sm80-3"},
        {"sockets-2x4", "0123", "phb-sm89-4"},
        {"sockets-2x4", "4567", "phb-sm89-4"},
        {"sockets-2x4", "34", "sys-sm89-2"},
        {"cube-8", "03", "mesh-sm70-l2-2"},
        {"cube-8", "0123", "bridges-sm70-4"},
        {"cube-8", "05", "sys-sm70-2"},
        {"cube-8", "06", "sys-sm70-2"},
        {"mesh-4", "13", "mesh-sm80-l4-2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sel_topology_t all, some;
        load(cases[i].file);
        class_of("all", &all);
        assert_string_equal(class_of(cases[i].gpus, &some), cases[i].class);
        if (strcmp(cases[i].file, "nvswitch-lame-4") != 0)
            assert_true(some.fingerprint == all.fingerprint);
    }
}

static void expect_gpus(uint32_t a, uint32_t b, sel_path_t path, uint32_t lanes)
{
    uint32_t got = 0;
    assert_int_equal(sel_gpu_path(&machine, a, b, &got), path);
    assert_int_equal(got, lanes);
}

static void ways(void **state)
{
    (void)state;
    load("nvswitch-8-nics-8");
    expect_gpus(0, 7, SEL_PATH_NVSWITCH, 18);
    assert_int_equal(sel_nic_path(&machine, 0, 0), SEL_PATH_PIX);
    assert_int_equal(sel_nic_path(&machine, 0, 1), SEL_PATH_PHB);
    assert_int_equal(sel_nic_path(&machine, 0, 7), SEL_PATH_SYS);
    assert_int_equal(machine.nic[3].mbps, 400000);
    assert_string_equal(machine.cpu[1].set, "ffffffff,ffff0000,00000000");
    load("cube-8");
    expect_gpus(0, 3, SEL_PATH_NVLINK, 2);
    expect_gpus(0, 1, SEL_PATH_NVLINK, 1);
    expect_gpus(0, 7, SEL_PATH_SYS, 0);
    load("nics-near-far");
    expect_gpus(0, 1, SEL_PATH_PXB, 0);
    assert_int_equal(sel_nic_path(&machine, 0, 0), SEL_PATH_PIX);
    assert_int_equal(sel_nic_path(&machine, 0, 2), SEL_PATH_PXB);
    assert_int_equal(sel_nic_path(&machine, 0, 3), SEL_PATH_SYS);
    load("nvswitch-hidden-8");
    assert_int_equal(machine.nics, 2); /* one interface, below each NUMA node */
    assert_int_equal(sel_nic_path(&machine, 0, 0), SEL_PATH_PHB);
    assert_int_equal(sel_nic_path(&machine, 7, 0), SEL_PATH_SYS);
}

static char *print(void (*how)(const sel_machine_t *, FILE *), const sel_machine_t *what, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    how(what, out);
    fclose(out);
    return text;
}

static void round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < MACHINE_COUNT; i++) {
        char fault[256] = "";
        size_t bytes = 0, bytes_again = 0;
        load(MACHINES[i].file);
        for (uint32_t g = 0; g < machine.gpus; g++) { /* not in NCCL's own files */
            memset(machine.gpu[g].kind.name, 0, sizeof machine.gpu[g].kind.name);
            snprintf(machine.gpu[g].kind.name, sizeof machine.gpu[g].kind.name, "NVIDIA GPU");
            machine.gpu[g].kind.multiprocessors = 132;
            machine.gpu[g].kind.memory_bytes = UINT64_C(150754820096);
            machine.gpu[g].kind.driver = 13000;
            machine.gpu[g].multicast = 3;
        }
        char *text = print(sel_machine_print_xml, &machine, &bytes);
        if (!sel_machine_parse(&again, "text", text, bytes, fault, sizeof fault))
            fail_msg("%s", fault);
        assert_memory_equal(&machine, &again, sizeof machine);
        char *text_again = print(sel_machine_print_xml, &again, &bytes_again);
        assert_string_equal(text, text_again);
        free(text);
        free(text_again);
    }
}

static void printed_for_users(void **state)
{
    (void)state;
    size_t bytes = 0;
    load("nics-near-far");
    char *text = print(sel_machine_print, &machine, &bytes);
    assert_non_null(strstr(text, "   0      .   PXB   PIX    PXB    PXB*   SYS \n"));
    assert_non_null(strstr(text, "mlx5_0 port 1, down, 400 Gb/s, NUMA node 0"));
    assert_non_null(strstr(text, "Class of 2 GPUs: pcie-sm90-2, machine "));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes), cmocka_unit_test(near_ports), cmocka_unit_test(subsets),
        cmocka_unit_test(ways),    cmocka_unit_test(round_trip), cmocka_unit_test(printed_for_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
