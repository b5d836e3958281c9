/*
 * link.c - the GPU of a rank, and how it reaches the others.
 *
 * A process often sees only its own GPU (CUDA_VISIBLE_DEVICES), so CUDA cannot
 * say how that one reaches the rest; NVML sees them all, by PCI address. It is
 * opened with dlopen, once, and stays open: NCCL has it open as well. Without
 * NVML, a visible peer with native atomics counts as NVLink, for over PCIe there
 * are none.
 */
#include "shim/link.h"

#include <errno.h>

#if SHUNT_HAS_CUDA
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "transport/transport.h"

/* Of nvml.h, which need not be installed. */
typedef void *nvml_device_t;
enum { NVML_OK = 0, NVML_P2P_NVLINK = 2, NVML_P2P_OK = 0 };

static struct {
    bool usable;
    int (*init)(void);
    int (*by_pci)(const char *bus_id, nvml_device_t *device);
    int (*p2p)(nvml_device_t from, nvml_device_t to, int capability, int *status);
} g_nvml;
static pthread_once_t g_nvml_once = PTHREAD_ONCE_INIT;

static void open_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    *(void **)&g_nvml.init = dlsym(library, "nvmlInit_v2");
    *(void **)&g_nvml.by_pci = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&g_nvml.p2p = dlsym(library, "nvmlDeviceGetP2PStatus");
    g_nvml.usable = g_nvml.init && g_nvml.by_pci && g_nvml.p2p && g_nvml.init() == NVML_OK;
}

static void bus_id(const shim_gpu_t *gpu, char text[32])
{
    snprintf(text, 32, "%08x:%02x:%02x.0", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
}

static bool nvml_device(const shim_gpu_t *gpu, nvml_device_t *device)
{
    char text[32];
    bus_id(gpu, text);
    return g_nvml.by_pci(text, device) == NVML_OK;
}

static bool nvlink_by_nvml(const shim_gpu_t *from, const shim_gpu_t *to)
{
    nvml_device_t a, b;
    int status = -1;
    return nvml_device(from, &a) && nvml_device(to, &b) && g_nvml.p2p(a, b, NVML_P2P_NVLINK, &status) == NVML_OK &&
           status == NVML_P2P_OK;
}

static bool nvlink_by_cuda(int device, const shim_gpu_t *to)
{
    char text[32];
    int peer = -1, atomics = 0;
    bus_id(to, text);
    return cudaDeviceGetByPCIBusId(&peer, text) == cudaSuccess &&
           cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer) == cudaSuccess &&
           atomics;
}

bool shim_link_nvlink(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    pthread_once(&g_nvml_once, open_nvml);
    net_scope_t scope;
    if (net_scope_enter(&scope, device) != 0)
        return false;
    bool all = true;
    for (uint32_t r = 0; r < count && all; r++) {
        if (r != own)
            all = g_nvml.usable ? nvlink_by_nvml(&gpu[own], &gpu[r]) : nvlink_by_cuda(device, &gpu[r]);
    }
    net_scope_leave(&scope);
    return all;
}

/* The runtime does not tell, so the driver is asked, which is loaded by now. */
static bool has_multicast(int device)
{
    enum { MULTICAST_SUPPORTED = 132 }; /* CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, from CUDA 12.1 on */
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

int shim_link_gpu(int device, shim_gpu_t *gpu)
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
                            .arch = (uint32_t)(10 * properties.major + properties.minor),
                            .multiprocessors = (uint32_t)properties.multiProcessorCount,
                            .multicast = has_multicast(device)};
        memcpy(gpu->uuid, properties.uuid.bytes, sizeof(gpu->uuid));
    }
    net_scope_leave(&scope);
    return net_cuda_errno((int)result);
}

#else

int shim_link_gpu(int device, shim_gpu_t *gpu)
{
    (void)device;
    (void)gpu;
    return -ENOSYS;
}

bool shim_link_nvlink(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count)
{
    (void)device;
    (void)gpu;
    (void)own;
    (void)count;
    return false;
}

#endif
