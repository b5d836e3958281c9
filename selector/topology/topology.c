/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c - queries of a machine (topology.h). */
#include "selector/topology/topology.h"

#include <string.h>

enum { CLASS_NVSWITCH = 0x068000 };

const char *sel_path_text(sel_path_t path)
{
    static const char *const text[] = {[SEL_PATH_NVSWITCH] = "NVS", [SEL_PATH_NVLINK] = "NVL", [SEL_PATH_PIX] = "PIX",
                                       [SEL_PATH_PXB] = "PXB",      [SEL_PATH_PHB] = "PHB",    [SEL_PATH_SYS] = "SYS"};
    return text[path];
}

/* Levels up to the CPU, this device included. */
static uint32_t depth_of(const sel_machine_t *machine, int32_t pci)
{
    uint32_t depth = 0;
    for (; pci >= 0; pci = machine->pci[pci].parent)
        depth++;
    return depth;
}

static int32_t up(const sel_machine_t *machine, int32_t pci, uint32_t levels)
{
    while (levels-- > 0)
        pci = machine->pci[pci].parent;
    return pci;
}

/* Two unknown nodes count as equal: machines with one node often report it as unknown. */
static sel_path_t cpu_path(uint32_t a, uint32_t b)
{
    return a == b ? SEL_PATH_PHB : SEL_PATH_SYS;
}

static sel_path_t pci_path(const sel_machine_t *machine, int32_t a, int32_t b)
{
    const uint32_t depth_a = depth_of(machine, a), depth_b = depth_of(machine, b);
    const uint32_t common = depth_a < depth_b ? depth_a : depth_b;
    int32_t above_a = up(machine, a, depth_a - common), above_b = up(machine, b, depth_b - common);
    uint32_t steps = depth_a + depth_b - 2 * common;
    for (; above_a != above_b; steps += 2) {
        above_a = machine->pci[above_a].parent;
        above_b = machine->pci[above_b].parent;
    }
    if (above_a < 0)
        return cpu_path(machine->pci[a].cpu, machine->pci[b].cpu);
    return steps <= 2 ? SEL_PATH_PIX : SEL_PATH_PXB;
}

uint32_t sel_nvlinks_count(const sel_nvlinks_t *links)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < links->targets; i++)
        count += links->to[i].count;
    return count;
}

uint32_t sel_nvlinks_switched(const sel_nvlinks_t *links)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < links->targets; i++)
        count += links->to[i].class == CLASS_NVSWITCH ? links->to[i].count : 0;
    return count;
}

uint32_t sel_nvlinks_to(const sel_nvlinks_t *links, const char *bus)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < links->targets; i++)
        count += strcmp(links->to[i].target, bus) == 0 ? links->to[i].count : 0;
    return count;
}

sel_path_t sel_gpu_path(const sel_machine_t *machine, uint32_t a, uint32_t b, uint32_t *lanes)
{
    const sel_gpu_t *from = &machine->gpu[a], *to = &machine->gpu[b];
    *lanes = sel_nvlinks_switched(&from->nvlinks);
    if (*lanes && sel_nvlinks_switched(&to->nvlinks))
        return SEL_PATH_NVSWITCH;
    *lanes = sel_nvlinks_to(&from->nvlinks, machine->pci[to->pci].bus);
    return *lanes ? SEL_PATH_NVLINK : pci_path(machine, (int32_t)from->pci, (int32_t)to->pci);
}

sel_path_t sel_nic_path(const sel_machine_t *machine, uint32_t gpu, uint32_t nic)
{
    const uint32_t pci = machine->gpu[gpu].pci;
    const sel_nic_t *port = &machine->nic[nic];
    if (port->pci < 0)
        return cpu_path(machine->pci[pci].cpu, port->cpu);
    return pci_path(machine, (int32_t)pci, port->pci);
}

static bool nic_is_better(const sel_machine_t *machine, int32_t gpu, uint32_t a, uint32_t b)
{
    const sel_nic_t *one = &machine->nic[a], *other = &machine->nic[b];
    if (one->down != other->down)
        return other->down;
    if (gpu >= 0) {
        const sel_path_t path = sel_nic_path(machine, (uint32_t)gpu, a);
        const sel_path_t best = sel_nic_path(machine, (uint32_t)gpu, b);
        if (path != best)
            return path < best;
    }
    return one->mbps > other->mbps;
}

void sel_nics_near(const sel_machine_t *machine, int32_t gpu, uint32_t order[SEL_MAX_NICS])
{
    for (uint32_t i = 0; i < machine->nics; i++) {
        uint32_t at = i;
        for (; at > 0 && nic_is_better(machine, gpu, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

int32_t sel_nic_near(const sel_machine_t *machine, uint32_t gpu)
{
    uint32_t order[SEL_MAX_NICS];
    sel_nics_near(machine, (int32_t)gpu, order);
    return machine->nics > 0 && !machine->nic[order[0]].down ? (int32_t)order[0] : -1;
}

sel_reach_t sel_gpu_reach(const sel_machine_t *machine, uint32_t a, uint32_t b)
{
    static const sel_link_t link[] = {
        [SEL_PATH_NVSWITCH] = SEL_LINK_NVSWITCH, [SEL_PATH_NVLINK] = SEL_LINK_MESH, [SEL_PATH_PIX] = SEL_LINK_PCIE,
        [SEL_PATH_PXB] = SEL_LINK_PCIE,          [SEL_PATH_PHB] = SEL_LINK_PHB,     [SEL_PATH_SYS] = SEL_LINK_SYS};
    sel_reach_t reach = {0};
    reach.link = link[sel_gpu_path(machine, a, b, &reach.lanes)];
    return reach;
}

uint32_t sel_machine_team(const sel_machine_t *machine, uint32_t gpu[SEL_MAX_GPUS])
{
    uint32_t usable = 0;
    for (uint32_t i = 0; i < machine->gpus; i++) {
        if (machine->gpu[i].kind.driver)
            gpu[usable++] = i;
    }
    for (uint32_t i = 0; usable == 0 && i < machine->gpus; i++)
        gpu[i] = i;
    return usable ? usable : machine->gpus;
}

sel_topology_t sel_machine_topology(const sel_machine_t *machine, const uint32_t *gpu, uint32_t count)
{
    const sel_gpu_kind_t *first = &machine->gpu[gpu[0]].kind;
    sel_topology_t topology = {.link = SEL_LINK_PCIE, /* one GPU: no pair, so no link */
                               .nranks = count,
                               .arch = first->arch,
                               .multiprocessors = first->multiprocessors,
                               .multicast = true};
    sel_reach_t reach = {.link = SEL_LINK_PCIE};
    uint64_t kind[SEL_MAX_GPUS];
    for (uint32_t i = 0; i < count; i++) {
        const sel_gpu_t *one = &machine->gpu[gpu[i]];
        kind[i] = sel_gpu_fingerprint(&one->kind);
        topology.arch = one->kind.arch < topology.arch ? one->kind.arch : topology.arch;
        if (one->kind.multiprocessors < topology.multiprocessors)
            topology.multiprocessors = one->kind.multiprocessors;
        topology.multicast = topology.multicast && one->multicast && one->multicast <= count;
        for (uint32_t k = 0; k < count; k++) {
            if (k == i)
                continue;
            const sel_reach_t pair = sel_gpu_reach(machine, gpu[i], gpu[k]);
            reach = i == 0 && k == 1 ? pair : sel_reach_join(reach, pair);
        }
    }
    topology.link = reach.link;
    topology.lanes = reach.lanes;
    topology.fingerprint = sel_fingerprint(kind, count);
    return topology;
}
