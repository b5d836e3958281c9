/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - NVML reports NVLinks; /sys or NCCL's topology file (pci_tree.c) gives distances over PCIe. Without NVML a
 * peer with native atomics, which PCIe lacks, counts as connected by an NVLink switch.
 */
#include "shim/setup/link.h"

#include <errno.h>
#include <stdio.h>

void shim_link_bus(const shim_gpu_t *gpu, char bus[SEL_BUS_BYTES])
{
    snprintf(bus, SEL_BUS_BYTES, "%04x:%02x:%02x.0", gpu->pci_domain, gpu->pci_bus & 0xff, gpu->pci_device & 0x1f);
}

#if SHUNT_HAS_CUDA
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/pci_tree.h"
#include "shim/setup/multicast.h"
#include "transport/transport.h"

static bool nvlink_by_cuda(int device, const char *to)
{
    int peer = -1, atomics = 0;
    return cudaDeviceGetByPCIBusId(&peer, to) == cudaSuccess &&
           cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer) == cudaSuccess &&
           atomics;
}

static sel_reach_t reach_by_pci(sel_machine_t **machine, const char *from, const char *to)
{
    if (!*machine) {
        *machine = calloc(1, sizeof(**machine));
        if (*machine)
            shim_pci_tree_read(*machine);
    }
    const int32_t a = *machine ? sel_machine_add_gpu(*machine, SHIM_SYS, from) : -1;
    const int32_t b = *machine ? sel_machine_add_gpu(*machine, SHIM_SYS, to) : -1;
    if (a < 0 || b < 0)
        return (sel_reach_t){.link = SEL_LINK_SYS};
    return sel_gpu_reach(*machine, (uint32_t)a, (uint32_t)b);
}

static sel_reach_t reach_one(int device, sel_machine_t **machine, const char *from, const char *to)
{
    sel_reach_t reach = {.link = SEL_LINK_NVSWITCH};
    const int nvlink = sel_nvml_reach(from, to, &reach);
    if (nvlink > 0 || (nvlink < 0 && nvlink_by_cuda(device, to)))
        return reach;
    return reach_by_pci(machine, from, to);
}

sel_reach_t shim_link_reach(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    sel_reach_t all = {.link = SEL_LINK_SYS};
    net_scope_t scope;
    if (net_scope_enter(&scope, device) != 0)
        return all;
    sel_machine_t *machine = NULL;
    bool first = true;
    for (uint32_t r = 0; r < count; r++) {
        char from[SEL_BUS_BYTES], to[SEL_BUS_BYTES];
        if (r == own)
            continue;
        shim_link_bus(&gpu[own], from);
        shim_link_bus(&gpu[r], to);
        const sel_reach_t one = reach_one(device, &machine, from, to);
        all = first ? one : sel_reach_join(all, one);
        first = false;
    }
    free(machine);
    net_scope_leave(&scope);
    return all;
}

/* GPUs that this process cannot see count as allowed. */
bool shim_link_peers(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    net_scope_t scope;
    bool peers = true;
    if (net_scope_enter(&scope, device) != 0)
        return true;
    for (uint32_t r = 0; r < count && peers; r++) {
        char bus[SEL_BUS_BYTES];
        int peer = -1, can = 1;
        shim_link_bus(&gpu[r], bus);
        if (r != own && cudaDeviceGetByPCIBusId(&peer, bus) == cudaSuccess && peer != device)
            peers = cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess || can;
    }
    net_scope_leave(&scope);
    return peers;
}

static bool has_multicast(int device)
{
    enum { MULTICAST_SUPPORTED = 132 }; /* CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, since CUDA 12.1 */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return false;
    int (*get)(int *, int) = NULL, (*attribute)(int *, int, int) = NULL;
    *(void **)&get = dlsym(driver, "cuDeviceGet");
    *(void **)&attribute = dlsym(driver, "cuDeviceGetAttribute");
    int at = 0, value = 0;
    const bool has =
        get && attribute && get(&at, device) == 0 && attribute(&value, MULTICAST_SUPPORTED, at) == 0 && value != 0;
    dlclose(driver);
    return has;
}

static void fill_kind(const struct cudaDeviceProp *properties, const char *bus, sel_gpu_kind_t *kind)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    const sel_nvlinks_t *links = sel_nvml_links(bus);
    *kind = (sel_gpu_kind_t){.arch = (uint32_t)(10 * properties->major + properties->minor),
                             .multiprocessors = (uint32_t)properties->multiProcessorCount,
                             .memory_bytes = properties->totalGlobalMem,
                             .nvlinks = links ? sel_nvlinks_count(links) : 0,
                             .driver = (uint32_t)driver};
    snprintf(kind->name, sizeof(kind->name), "%.*s", SEL_GPU_NAME_BYTES - 1, properties->name);
}

int shim_link_gpu(int device, shim_gpu_t *gpu, sel_gpu_kind_t *kind)
{
    net_scope_t scope;
    int error = net_scope_enter(&scope, device);
    if (error)
        return error;
    struct cudaDeviceProp properties;
    cudaError_t result = cudaGetDeviceProperties(&properties, device);
    if (result == cudaSuccess) {
        *gpu = (shim_gpu_t){.pci_domain = (uint32_t)properties.pciDomainID,
                            .pci_bus = (uint32_t)properties.pciBusID,
                            .pci_device = (uint32_t)properties.pciDeviceID,
                            .multicast = shim_multicast_least(has_multicast(device))};
        memcpy(gpu->uuid, properties.uuid.bytes, sizeof(gpu->uuid));
        char bus[SEL_BUS_BYTES];
        shim_link_bus(gpu, bus);
        fill_kind(&properties, bus, kind);
        gpu->arch = kind->arch;
        gpu->multiprocessors = kind->multiprocessors;
        gpu->fingerprint = sel_gpu_fingerprint(kind);
    }
    net_scope_leave(&scope);
    return net_cuda_errno((int)result);
}

#else

int shim_link_gpu(int device, shim_gpu_t *gpu, sel_gpu_kind_t *kind)
{
    (void)device;
    (void)gpu;
    (void)kind;
    return -ENOSYS;
}

sel_reach_t shim_link_reach(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    (void)device;
    (void)gpu;
    (void)own;
    (void)count;
    return (sel_reach_t){.link = SEL_LINK_SYS};
}

bool shim_link_peers(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    (void)device;
    (void)gpu;
    (void)own;
    (void)count;
    return true;
}

#endif
