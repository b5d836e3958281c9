/*
 * machine.c - see machine.h.
 *
 * Virtual machines hide where PCI devices hang, so whoever made one says it in a
 * file (NCCL_TOPO_FILE), which NCCL believes rather than /sys; so do we. What
 * devices there are, and what they can do, is asked of the drivers all the same.
 */
#include "shim/setup/machine.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shim/host/host.h"
#include "shim/setup/link.h"

/* Where NCCL looks when nobody names a file. */
#define USUAL_FILE "/var/run/nvidia-topologyd/virtualTopology.xml"

void shim_machine_begin(sel_machine_t *machine)
{
    static atomic_bool told;
    char fault[256];
    const char *file = shim_nccl_env("NCCL_TOPO_FILE");
    if (!file || !*file)
        file = access(USUAL_FILE, R_OK) == 0 ? USUAL_FILE : NULL;
    if (!file)
        return;
    if (!sel_machine_load(machine, file, fault, sizeof(fault))) {
        if (!atomic_exchange(&told, true))
            shim_warn("topology file: %s; /sys is read instead", fault);
        return;
    }
    machine->gpus = machine->nics = 0;
    memset(machine->gpu, 0, sizeof(machine->gpu));
    memset(machine->nic, 0, sizeof(machine->nic));
}

#if SHUNT_HAS_CUDA
#include <cuda_runtime.h>

#include "transport/transport.h"

/* What only CUDA knows, and only of GPUs that this process may use. */
static void add_cuda_facts(sel_machine_t *machine)
{
    int count = 0;
    net_scope_t scope;
    if (cudaGetDeviceCount(&count) != cudaSuccess || net_scope_enter(&scope, 0) != 0)
        return;
    const char *nvls = shim_nccl_env("NCCL_NVLS_ENABLE");
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
        machine->gpu[place].multicast = gpu.multicast && !(nvls && strcmp(nvls, "0") == 0);
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
    shim_machine_begin(machine);
    sel_machine_add_gpus(machine, SHIM_SYS);
    sel_machine_add_nics(machine, SHIM_SYS);
    if (!shim_host_mode())
        add_cuda_facts(machine);
}
