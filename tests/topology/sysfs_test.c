/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake /sys, without NVML: switches are found behind their ports, root ports are skipped; NUMA nodes, RDMA ports, and
 * missing files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "selector/topology/topology.h"

static sel_machine_t machine, again;
static char sys[64] = "/tmp/shunt-sysfs-XXXXXX";

/* Make a file with one line, and its folders. */
static void file(const char *line, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", sys, name);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "%s\n", line);
    fclose(out);
}

static void folder_link(const char *folder, const char *name)
{
    char to[512], path[512];
    snprintf(to, sizeof to, "%s/%s", sys, folder);
    snprintf(path, sizeof path, "%s/%s", sys, name);
    assert_int_equal(symlink(to, path), 0);
}

/* Make a PCI device; the last part of its folder is its address. */
static void device(const char *folder, const char *class, const char *vendor, const char *numa, const char *speed)
{
    static const char *const names[] = {"class", "vendor", "numa_node", "max_link_speed", "max_link_width"};
    const char *const lines[] = {class, vendor, numa, speed, "16"};
    char name[512];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "devices/%s/%s", folder, names[i]);
        file(lines[i], name);
    }
    char target[300], link[300];
    snprintf(target, sizeof target, "devices/%s", folder);
    snprintf(link, sizeof link, "bus/pci/devices/%s", strrchr(folder, '/') + 1);
    folder_link(target, link);
}

static void rdma(const char *folder, const char *name, const char *state, const char *rate)
{
    char path[400], link[100];
    snprintf(path, sizeof path, "devices/%s/infiniband/%s/ports/1/state", folder, name);
    file(state, path);
    snprintf(path, sizeof path, "devices/%s/infiniband/%s/ports/1/rate", folder, name);
    file(rate, path);
    snprintf(path, sizeof path, "devices/%s", folder);
    char inner[400];
    snprintf(inner, sizeof inner, "devices/%s/infiniband/%s/device", folder, name);
    folder_link(path, inner);
    snprintf(path, sizeof path, "devices/%s/infiniband/%s", folder, name);
    snprintf(link, sizeof link, "class/infiniband/%s", name);
    folder_link(path, link);
}

#define SWITCH "pci0000:10/0000:10:01.0/0000:11:00.0"

static int make_sys(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(sys));
    file("", "bus/pci/devices/.keep");
    file("", "class/infiniband/.keep");
    file("ffff", "devices/system/node/node0/cpumap");
    file("ffff0000", "devices/system/node/node1/cpumap");
    device("pci0000:10/0000:10:01.0", "0x060400", "0x8086", "0", "32.0 GT/s PCIe");
    device(SWITCH, "0x060400", "0x1000", "0", "32.0 GT/s PCIe");
    device(SWITCH "/0000:12:00.0", "0x060400", "0x1000", "0", "16.0 GT/s PCIe");
    device(SWITCH "/0000:12:00.0/0000:13:00.0", "0x030200", "0x10de", "0", "32.0 GT/s PCIe");
    device(SWITCH "/0000:12:01.0", "0x060400", "0x1000", "0", "32.0 GT/s PCIe");
    device(SWITCH "/0000:12:01.0/0000:14:00.0", "0x020700", "0x15b3", "0", "32.0 GT/s PCIe");
    device("pci0000:80/0000:80:01.0", "0x060400", "0x8086", "1", "32.0 GT/s PCIe");
    device("pci0000:80/0000:80:01.0/0000:81:00.0", "0x030200", "0x10de", "1", "Unknown");
    device("pci0000:80/0000:80:02.0/0000:82:00.0", "0x030000", "0x10de", "1", "rubbish");
    rdma(SWITCH "/0000:12:01.0/0000:14:00.0", "mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)");
    rdma("pci0000:80/0000:80:02.0/0000:82:00.0", "mlx5_1", "1: DOWN", "2.5 Gb/sec (1X SDR)");
    rdma("virtual/rxe", "rxe0", "4: ACTIVE", "rubbish");
    return 0;
}

static int remove_sys(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", sys);
    return system(command);
}

static void reads(void **state)
{
    (void)state;
    sel_machine_add_gpus(&machine, sys);
    sel_machine_add_nics(&machine, sys);
    assert_int_equal(machine.gpus, 3);
    assert_string_equal(machine.pci[machine.gpu[0].pci].bus, "0000:13:00.0");
    const sel_pci_t *pci = &machine.pci[machine.gpu[0].pci];
    assert_string_equal(machine.pci[pci->parent].bus, "0000:11:00.0"); /* the switch, not its port */
    assert_int_equal(machine.pci[pci->parent].parent, -1);             /* no root port */
    assert_string_equal(pci->speed, "16.0 GT/s PCIe");                 /* the port's, which is slower */
    assert_int_equal(pci->width, 16);
    assert_int_equal(machine.pci[machine.gpu[1].pci].parent, -1);
    assert_string_equal(machine.cpu[machine.pci[machine.gpu[1].pci].cpu].set, "ffff0000");
    uint32_t lanes;
    assert_int_equal(sel_gpu_path(&machine, 0, 1, &lanes), SEL_PATH_SYS);
    assert_int_equal(sel_gpu_path(&machine, 1, 2, &lanes), SEL_PATH_PHB);

    assert_int_equal(machine.nics, 3);
    assert_string_equal(machine.nic[0].name, "mlx5_0");
    assert_int_equal(machine.nic[0].mbps, 400000);
    assert_false(machine.nic[0].down);
    assert_int_equal(sel_nic_path(&machine, 0, 0), SEL_PATH_PIX);
    assert_int_equal(machine.nic[1].mbps, 2500);
    assert_true(machine.nic[1].down);
    assert_int_equal(sel_nic_near(&machine, 1), 0); /* the one beside it is down */
    uint32_t order[SEL_MAX_NICS];
    for (int32_t gpu = -1; gpu < 3; gpu++) {
        sel_nics_near(&machine, gpu, order);
        assert_int_equal(order[0], 0);
        assert_int_equal(order[1], 2);
        assert_int_equal(order[2], 1);
    }
    assert_int_equal(machine.nic[2].pci, -1);
    assert_int_equal(machine.nic[2].mbps, 0);
}

static void comes_back(void **state)
{
    (void)state;
    char *text[2] = {NULL, NULL}, fault[200] = "";
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        FILE *out = open_memstream(&text[i], &bytes[i]);
        sel_machine_print_xml(i ? &again : &machine, out);
        fclose(out);
        if (i == 0 && !sel_machine_parse(&again, "text", text[0], bytes[0], fault, sizeof fault))
            fail_msg("%s", fault);
    }
    assert_string_equal(text[0], text[1]);
    assert_int_equal(again.gpus, 3);
    free(text[0]);
    free(text[1]);
}

static void missing(void **state)
{
    (void)state;
    machine = (sel_machine_t){0};
    sel_machine_add_gpus(&machine, "/nonexistent");
    sel_machine_add_nics(&machine, "/nonexistent");
    assert_int_equal(machine.gpus + machine.nics, 0);
    assert_int_equal(sel_machine_add_gpu(&machine, "/nonexistent", "0000:01:00.0"), 0);
    assert_int_equal(sel_machine_add_gpu(&machine, "/nonexistent", "00000000:01:00.0"), 0);
    assert_int_equal(sel_machine_add_gpu(&machine, "/nonexistent", "0000:02:00.0"), 1);
    assert_int_equal(sel_machine_add_gpu(&machine, "/nonexistent", "elsewhere"), -1);
    assert_int_equal(machine.cpu[0].numa, -1);
    uint32_t lanes;
    assert_int_equal(sel_gpu_path(&machine, 0, 1, &lanes), SEL_PATH_PHB);
    for (unsigned i = 0; i < 400; i++) {
        char bus[32];
        snprintf(bus, sizeof bus, "%04x:01:00.0", i);
        const bool room = i == 0 || machine.gpus < SEL_MAX_GPUS;
        assert_true(room == (sel_machine_add_gpu(&machine, "/nonexistent", bus) >= 0));
        sel_machine_add_pci(&machine, "/nonexistent", bus);
    }
    assert_int_equal(machine.pcis, SEL_MAX_PCI);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads), cmocka_unit_test(comes_back),
                                       cmocka_unit_test(missing)};
    return cmocka_run_group_tests(tests, make_sys, remove_sys);
}
