/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/setup/machine.h"

#include <string.h>

#include "shim/base/device.h"
#include "shim/base/pci_tree.h"
#include "shim/setup/link.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime.h>

#include "transport/transport.h"

static void add_cuda_facts(sel_machine_t *machine)
{
    int count = 0;
    net_scope_t scope;
    if (cudaGetDeviceCount(&count) != cudaSuccess || net_scope_enter(&scope, 0) != 0)
        return;
    for (int device = 0; device < count; device++) {
        shim_gpu_t gpu;
        sel_gpu_kind_t kind;
        char bus[SEL_BUS_BYTES];
        if (shim_link_gpu(device, &gpu, &kind) != 0)
            continue;
        shim_link_bus(&gpu, bus);
        const int32_t place = sel_machine_add_gpu(machine, SHIM_SYS, bus);
        if (place < 0)
            continue;
        machine->gpu[place].kind = kind;
        machine->gpu[place].multicast = gpu.multicast;
    }
    net_scope_leave(&scope);
}
#else
static void add_cuda_facts(sel_machine_t *machine)
{
    (void)machine;
}
#endif

void shim_machine_read(sel_machine_t *machine)
{
    memset(machine, 0, sizeof(*machine));
    shim_pci_tree_read(machine);
    sel_machine_add_gpus(machine, SHIM_SYS);
    sel_machine_add_nics(machine, SHIM_SYS);
    if (!shim_cpu_mode())
        add_cuda_facts(machine);
}
