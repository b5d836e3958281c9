/* SPDX-License-Identifier: Apache-2.0 */
/* topology_text.c - a machine as text: devices, paths between them, class. */
#include "selector/topology/topology.h"

static void print_node(const sel_cpu_t *cpu, FILE *out)
{
    if (cpu->numa >= 0)
        fprintf(out, ", NUMA node %d", cpu->numa);
    if (cpu->set[0])
        fprintf(out, " (CPUs %s)", cpu->set);
    fprintf(out, "\n");
}

static void print_gpu(const sel_machine_t *machine, uint32_t index, FILE *out)
{
    const sel_gpu_t *gpu = &machine->gpu[index];
    const sel_pci_t *pci = &machine->pci[gpu->pci];
    fprintf(out, "  %2u  %s  %s, sm_%u", index, pci->bus, gpu->kind.name[0] ? gpu->kind.name : "GPU", gpu->kind.arch);
    if (gpu->kind.multiprocessors)
        fprintf(out, ", %u multiprocessors", gpu->kind.multiprocessors);
    if (gpu->kind.memory_bytes)
        fprintf(out, ", %llu GiB", (unsigned long long)(gpu->kind.memory_bytes >> 30));
    print_node(&machine->cpu[pci->cpu], out);
}

static void print_matrix(const sel_machine_t *machine, FILE *out)
{
    fprintf(out, "Links (NVS18: 18 NVLinks to switches; NVL4: 4 to that GPU; PIX: one PCIe switch, PXB: several,\n"
                 "PHB: a host bridge, SYS: between NUMA nodes):\n     ");
    for (uint32_t b = 0; b < machine->gpus; b++)
        fprintf(out, " %5u", b);
    for (uint32_t n = 0; n < machine->nics; n++)
        fprintf(out, "  NIC%-2u", n);
    fprintf(out, "\n");
    for (uint32_t a = 0; a < machine->gpus; a++) {
        fprintf(out, "  %2u ", a);
        for (uint32_t b = 0; b < machine->gpus; b++) {
            char text[16] = ".";
            uint32_t lanes = 0;
            if (a != b) {
                const sel_path_t path = sel_gpu_path(machine, a, b, &lanes);
                snprintf(text, sizeof text, lanes ? "%s%u" : "%s", sel_path_text(path), lanes);
            }
            fprintf(out, " %5s", text);
        }
        for (uint32_t n = 0; n < machine->nics; n++)
            fprintf(out, "   %3s%s", sel_path_text(sel_nic_path(machine, a, n)),
                    sel_nic_near(machine, a) == (int32_t)n ? "*" : " ");
        fprintf(out, "\n");
    }
}

static void print_nics(const sel_machine_t *machine, FILE *out)
{
    fprintf(out, "NICs: %u%s\n", machine->nics, machine->nics && machine->gpus ? " (* above: the one near a GPU)" : "");
    for (uint32_t i = 0; i < machine->nics; i++) {
        const sel_nic_t *nic = &machine->nic[i];
        fprintf(out, "  %2u  %s  %s port %u, %s, %g Gb/s", i,
                nic->pci < 0 ? "no PCI device" : machine->pci[nic->pci].bus, nic->name, nic->port,
                nic->down ? "down" : "up", nic->mbps / 1000.0);
        print_node(&machine->cpu[nic->cpu], out);
    }
}

void sel_machine_print(const sel_machine_t *machine, FILE *out)
{
    fprintf(out, "GPUs: %u\n", machine->gpus);
    for (uint32_t i = 0; i < machine->gpus; i++)
        print_gpu(machine, i, out);
    if (machine->gpus)
        print_matrix(machine, out);
    print_nics(machine, out);
    uint32_t gpu[SEL_MAX_GPUS];
    const uint32_t count = sel_machine_team(machine, gpu);
    if (count > 1) {
        char class[SEL_CLASS_BYTES];
        const sel_topology_t topology = sel_machine_topology(machine, gpu, count);
        sel_topology_class(&topology, class);
        fprintf(out, "Class of %u GPUs: %s, machine %016llx\n", count, class, (unsigned long long)topology.fingerprint);
    }
}
