/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpus_cuda.c - gpus.h with CUDA's runtime and, where it is installed, NVML.
 *
 * NVML is opened with dlopen: containers often lack it. Without it the driver's version, NVLink connections and the
 * load by other processes are unknown.
 */
#include "tools/base/gpus.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned bytes);
    int (*by_bus)(const char *bus, void **device);
    int (*p2p_status)(void *first, void *second, int capability, int *status);
    int (*utilization)(void *device, unsigned percent[2]);    /* of the GPU, of its memory */
    int (*memory)(void *device, unsigned long long bytes[3]); /* total, free, used */
} nvml_t;

enum { NVML_P2P_NVLINK = 2, NVML_P2P_OK = 0 };

static bool nvml_find(nvml_t *nvml, const char *name, void *pointer)
{
    void *found = dlsym(nvml->library, name);
    memcpy(pointer, &found, sizeof found);
    return found != NULL;
}

static bool nvml_open(nvml_t *nvml)
{
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL) {
        return false;
    }
    if (nvml_find(nvml, "nvmlInit_v2", &nvml->init) && nvml_find(nvml, "nvmlShutdown", &nvml->shutdown) &&
        nvml_find(nvml, "nvmlSystemGetDriverVersion", &nvml->driver_version) &&
        nvml_find(nvml, "nvmlDeviceGetHandleByPciBusId_v2", &nvml->by_bus) &&
        nvml_find(nvml, "nvmlDeviceGetP2PStatus", &nvml->p2p_status) &&
        nvml_find(nvml, "nvmlDeviceGetUtilizationRates", &nvml->utilization) &&
        nvml_find(nvml, "nvmlDeviceGetMemoryInfo", &nvml->memory) && nvml->init() == 0) {
        return true;
    }
    dlclose(nvml->library);
    return false;
}

static void nvml_close(nvml_t *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
}

static tool_link_t link_of(const tool_gpus_t *gpus, const nvml_t *nvml, uint32_t from, uint32_t to)
{
    if (from == to) {
        return TOOL_LINK_SELF;
    }
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, (int)from, (int)to) != cudaSuccess || can == 0) {
        return TOOL_LINK_NONE;
    }
    void *first = NULL;
    void *second = NULL;
    int status = -1;
    if (nvml != NULL && nvml->by_bus(gpus->gpu[from].bus, &first) == 0 &&
        nvml->by_bus(gpus->gpu[to].bus, &second) == 0 &&
        nvml->p2p_status(first, second, NVML_P2P_NVLINK, &status) == 0 && status == NVML_P2P_OK) {
        return TOOL_LINK_NVLINK;
    }
    return TOOL_LINK_PEER;
}

static void read_use(const nvml_t *nvml, tool_gpu_t *gpu)
{
    void *device = NULL;
    unsigned percent[2] = {0};
    unsigned long long bytes[3] = {0};
    if (nvml->by_bus(gpu->bus, &device) != 0) {
        return;
    }
    gpu->busy_percent = nvml->utilization(device, percent) == 0 ? percent[0] : 0;
    gpu->used_bytes = nvml->memory(device, bytes) == 0 ? bytes[2] : 0;
}

static void read_gpu(tool_gpu_t *gpu, int ordinal)
{
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
        snprintf(gpu->name, sizeof gpu->name, "unreadable");
        return;
    }
    snprintf(gpu->name, sizeof gpu->name, "%.63s", properties.name);
    gpu->capability = (uint32_t)(10 * properties.major + properties.minor);
    gpu->multiprocessors = (uint32_t)properties.multiProcessorCount;
    gpu->bytes = properties.totalGlobalMem;
    if (cudaDeviceGetPCIBusId(gpu->bus, sizeof gpu->bus, ordinal) != cudaSuccess) {
        gpu->bus[0] = '\0';
    }
}

void tool_gpus_read(tool_gpus_t *gpus)
{
    memset(gpus, 0, sizeof *gpus);
    gpus->cuda_runtime = CUDART_VERSION;
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess) {
        gpus->cuda_driver = (uint32_t)version;
    }
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        snprintf(gpus->error, sizeof gpus->error, "%s", status != cudaSuccess ? cudaGetErrorString(status) : "no GPU");
        return;
    }
    gpus->count = (uint32_t)count;
    gpus->listed = gpus->count < TOOL_MAX_GPUS ? gpus->count : TOOL_MAX_GPUS;
    for (uint32_t i = 0; i < gpus->listed; i++) {
        read_gpu(&gpus->gpu[i], (int)i);
    }
    nvml_t nvml;
    bool have = nvml_open(&nvml);
    if (have && nvml.driver_version(gpus->driver, sizeof gpus->driver) != 0) {
        gpus->driver[0] = '\0';
    }
    for (uint32_t i = 0; have && i < gpus->listed; i++) {
        read_use(&nvml, &gpus->gpu[i]);
    }
    for (uint32_t from = 0; from < gpus->listed; from++) {
        for (uint32_t to = 0; to < gpus->listed; to++) {
            gpus->link[from][to] = (uint8_t)link_of(gpus, have ? &nvml : NULL, from, to);
        }
    }
    if (have) {
        nvml_close(&nvml);
    }
}
