/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - for `auto`: whether a CUDA driver answers. It calls cuInit only as a last resort: processes forked
 * after that cannot use CUDA. Without the driver's library or device node there is no GPU. If the kernel lists a GPU,
 * there is one, unless the user hides all. A build without CUDA decides alike, then forwards every call: its CPU device
 * would mistake GPU addresses for host memory. */
#define _GNU_SOURCE
#include "shim/base/device.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "shim/base/settings.h"
#include "transport/transport.h"

/* An empty list, a leading '-' or NoDevFiles hides all GPUs. */
static bool all_hidden(void)
{
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
    return visible && (visible[0] == 0 || visible[0] == '-' || !strcmp(visible, "NoDevFiles"));
}

/* The device nodes of Linux, WSL and Tegra. */
static bool device_node(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0 || access("/dev/nvmap", F_OK) == 0;
}

static bool kernel_lists_gpu(void)
{
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    if (!folder)
        return false;
    int gpus = 0;
    for (const struct dirent *entry; (entry = readdir(folder));)
        gpus += entry->d_name[0] != '.';
    closedir(folder);
    return gpus > 0;
}

static bool driver_counts_gpus(void *driver)
{
    int (*init)(unsigned);
    int (*count)(int *);
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&count = dlsym(driver, "cuDeviceGetCount");
    int devices = 0;
    return init && count && init(0) == 0 && count(&devices) == 0 && devices > 0;
}

static bool driver_answers(void)
{
    if (all_hidden() || !device_node())
        return false;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        return false;
    /* Never closed: unloading an initialised driver is unsafe. */
    return kernel_lists_gpu() || driver_counts_gpus(driver);
}

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static bool g_cpu, g_hidden;

/* A parent may hide all GPUs from itself and give each child one, so each child decides again. */
static void forget_in_child(void)
{
    if (g_cpu && shim_settings()->device == SHIM_DEVICE_AUTO)
        g_once = (pthread_once_t)PTHREAD_ONCE_INIT;
}

NET_IN_CHILD(forget_in_child);

static void decide(void)
{
    shim_device_t wanted = shim_settings()->device;
    g_cpu = wanted == SHIM_DEVICE_CPU || (wanted == SHIM_DEVICE_AUTO && !driver_answers());
    g_hidden = g_cpu && wanted == SHIM_DEVICE_AUTO && all_hidden() && device_node();
    if (g_cpu)
        shim_info("using the CPU device: %s",
                  wanted == SHIM_DEVICE_CPU ? "SHUNT_DEVICE=cpu is set" : "no CUDA driver answers");
    else if (!SHUNT_HAS_CUDA && wanted == SHIM_DEVICE_AUTO)
        shim_warn("this Shunt was built without CUDA, but there are GPUs: every call goes to the real NCCL; build it "
                  "with nvcc, or set SHUNT_DEVICE=cpu for programs whose buffers are in host memory");
}

bool shim_cpu_mode(void)
{
    pthread_once(&g_once, decide);
    return g_cpu;
}

bool shim_gpus_hidden(void)
{
    return shim_cpu_mode() && g_hidden;
}
