/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_nvml.c - a fake libnvidia-ml.so.1 with the machine that a test names in
 * FAKE_NVML before the first call:
 *
 *   switch   4 GPUs, 18 links each over 4 switches, states as fields (from Hopper on)
 *   lame     the same, but one link of the third GPU is down
 *   hidden   4 GPUs, 18 links each to devices that a virtual machine does not see
 *   bridges  4 GPUs in two pairs of 12 links, states one by one (before Hopper)
 *   mute     2 GPUs with peer access over NVLink, whose links are not reported
 *   none     NVML cannot be initialised
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, UNSUPPORTED = 3, MISSING = 6, GPUS = 4, LINKS = 18 };

typedef struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_t;

typedef struct field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
} field_t;

static int scene(const char *name)
{
    const char *now = getenv("FAKE_NVML");
    return now && strcmp(now, name) == 0;
}

/* Each scene has its own, since results are cached: switch 1x, lame 2x, hidden 3x, bridges 4x, mute 5x. */
static unsigned bus_of(unsigned gpu)
{
    static const char *const scenes[] = {"switch", "lame", "hidden", "bridges", "mute"};
    for (unsigned i = 0; i < 5; i++) {
        if (scene(scenes[i]))
            return 16 * (i + 1) + gpu;
    }
    return 0;
}

static unsigned gpu_of(void *device)
{
    return (unsigned)(size_t)device - 1;
}

static void fill(pci_t *pci, unsigned domain, unsigned bus)
{
    memset(pci, 0, sizeof *pci);
    pci->domain = domain;
    pci->bus = bus;
    if (domain)
        strcpy(pci->bus_id, "FFFFFFFF:FF:FF.0");
    else
        snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", bus);
}

static unsigned links_of(void)
{
    return scene("mute") ? 0 : scene("bridges") ? 12 : LINKS;
}

static int is_up(unsigned gpu, unsigned link)
{
    return !(scene("lame") && gpu == 2 && link == 17);
}

EXPORT int nvmlInit_v2(void)
{
    return scene("none") ? UNSUPPORTED : OK;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = scene("mute") ? 2 : GPUS;
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(size_t)(index + 1);
    return OK;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    unsigned domain, bus;
    if (sscanf(bus_id, "%x:%x", &domain, &bus) != 2 || domain || bus < bus_of(0) || bus >= bus_of(GPUS))
        return MISSING;
    *device = (void *)(size_t)(bus - bus_of(0) + 1);
    return OK;
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci)
{
    fill(pci, 0, bus_of(gpu_of(device)));
    return OK;
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned bytes)
{
    (void)device;
    snprintf(name, bytes, "NVIDIA Made-Up");
    return OK;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = scene("bridges") ? 8 : 9;
    *minor = 0;
    return OK;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    (void)device;
    memory[0] = 80ull << 30;
    return OK;
}

EXPORT int nvmlDeviceGetP2PStatus(void *from, void *to, int capability, int *status)
{
    const int linked = !scene("bridges") || (gpu_of(from) ^ 1) == gpu_of(to);
    *status = capability == 2 && linked ? 0 : 5;
    return OK;
}

EXPORT int nvmlDeviceGetFieldValues(void *device, int count, field_t *field)
{
    if (scene("bridges"))
        return UNSUPPORTED;
    for (int i = 0; i < count; i++) {
        const int known = field[i].field == 165 && field[i].scope < links_of();
        field[i].result = known ? OK : UNSUPPORTED;
        field[i].value = known && is_up(gpu_of(device), field[i].scope);
    }
    return OK;
}

EXPORT int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int capability, unsigned *value)
{
    (void)device;
    *value = capability == 0;
    return link < links_of() ? OK : UNSUPPORTED;
}

EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
    *active = is_up(gpu_of(device), link);
    return scene("bridges") && link < links_of() ? OK : UNSUPPORTED;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, pci_t *pci)
{
    if (scene("bridges"))
        fill(pci, 0, bus_of(gpu_of(device) ^ 1));
    else
        fill(pci, scene("hidden") ? ~0u : 0, 5 + link % 4);
    return OK;
}

/* Missing in old libraries; there the address tells a GPU from a switch. */
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    (void)device;
    (void)link;
    *type = 2;
    return scene("bridges") ? UNSUPPORTED : OK;
}
