/* SPDX-License-Identifier: Apache-2.0 */
/* topology_nvml.c - GPUs and their NVLinks. NVML lists all GPUs by PCI address, while a process often sees only its own
 * (CUDA_VISIBLE_DEVICES). What an older NVML lacks is unknown. */
#include "selector/topology/topology.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* From nvml.h, which need not be installed. */
typedef void *nvml_device_t;
enum {
    NVML_OK = 0,
    NVML_P2P_NVLINK = 2,
    NVML_P2P_OK = 0,
    NVML_LINK_P2P = 0,
    NVML_LINK_STATE = 165, /* a field's id; its scope: the link */
    NVML_REMOTE_GPU = 0,
    NVML_REMOTE_SWITCH = 2,
    NVML_LINKS = 36 /* of a GPU, at most */
};

typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} nvml_pci_t;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory_t;

typedef struct nvml_field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        unsigned word;
        unsigned long long wide;
    } value;
} nvml_field_t;

static struct {
    bool usable;
    int (*init)(void);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, nvml_device_t *device);
    int (*by_pci)(const char *bus_id, nvml_device_t *device);
    int (*pci)(nvml_device_t device, nvml_pci_t *pci);
    int (*name)(nvml_device_t device, char *name, unsigned bytes);
    int (*capability)(nvml_device_t device, int *major, int *minor);
    int (*memory)(nvml_device_t device, nvml_memory_t *memory);
    int (*p2p)(nvml_device_t from, nvml_device_t to, int capability, int *status);
    int (*fields)(nvml_device_t device, int count, nvml_field_t *fields);
    int (*link_capability)(nvml_device_t device, unsigned link, int capability, unsigned *value);
    int (*link_state)(nvml_device_t device, unsigned link, int *active);
    int (*link_target)(nvml_device_t device, unsigned link, nvml_pci_t *pci);
    int (*link_type)(nvml_device_t device, unsigned link, int *type);
} nvml;
static pthread_once_t nvml_once = PTHREAD_ONCE_INIT;

static void open_nvml(void)
{
    static const struct {
        const char *name;
        void *to;
        bool needed;
    } names[] = {
        {"nvmlInit_v2", &nvml.init, true},
        {"nvmlDeviceGetHandleByPciBusId_v2", &nvml.by_pci, true},
        {"nvmlDeviceGetP2PStatus", &nvml.p2p, true},
        {"nvmlDeviceGetCount_v2", &nvml.count, true},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml.by_index, true},
        {"nvmlDeviceGetPciInfo_v3", &nvml.pci, true},
        {"nvmlDeviceGetName", &nvml.name, true},
        {"nvmlDeviceGetCudaComputeCapability", &nvml.capability, true},
        {"nvmlDeviceGetMemoryInfo", &nvml.memory, true},
        {"nvmlDeviceGetNvLinkCapability", &nvml.link_capability, true},
        {"nvmlDeviceGetNvLinkState", &nvml.link_state, true},
        {"nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml.link_target, true},
        {"nvmlDeviceGetNvLinkRemoteDeviceType", &nvml.link_type, false},
        {"nvmlDeviceGetFieldValues", &nvml.fields, false},
    };
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    bool all = true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *found = dlsym(library, names[i].name);
        memcpy(names[i].to, &found, sizeof found);
        all = all && (found || !names[i].needed);
    }
    nvml.usable = all && nvml.init() == NVML_OK;
}

static bool usable(void)
{
    pthread_once(&nvml_once, open_nvml);
    return nvml.usable;
}

/* From Hopper on, one field has the states of all links; older GPUs lack it. */
static void ask_states(nvml_device_t device, bool up[NVML_LINKS])
{
    nvml_field_t field[NVML_LINKS];
    memset(field, 0, sizeof field);
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        field[link].field = NVML_LINK_STATE;
        field[link].scope = link;
        field[link].result = -1;
    }
    if (nvml.fields && nvml.fields(device, NVML_LINKS, field) != NVML_OK)
        memset(field, 0xff, sizeof field);
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        unsigned can = 0;
        int active = 0;
        up[link] = nvml.link_capability(device, link, NVML_LINK_P2P, &can) == NVML_OK && can;
        if (!up[link])
            continue;
        if (field[link].result == NVML_OK)
            active = field[link].value.word == 1;
        else if (nvml.link_state(device, link, &active) != NVML_OK)
            active = 0;
        up[link] = active == 1;
    }
}

static void ask_target(nvml_device_t device, unsigned link, sel_nvlink_t *to)
{
    enum { CLASS_GPU = 0x030000, CLASS_SWITCH = 0x068000, CLASS_CPU = 0x068001 };
    nvml_pci_t pci;
    nvml_device_t gpu;
    int type = -1;
    memset(&pci, 0, sizeof pci);
    memset(to, 0, sizeof *to);
    if (nvml.link_target(device, link, &pci) != NVML_OK || !sel_bus_normal(pci.bus_id, to->target))
        snprintf(to->target, sizeof to->target, "fffffff:ffff:ff"); /* hidden, as NCCL writes it */
    if (!nvml.link_type || nvml.link_type(device, link, &type) != NVML_OK)
        type = nvml.by_pci(to->target, &gpu) == NVML_OK ? NVML_REMOTE_GPU : NVML_REMOTE_SWITCH;
    to->class = type == NVML_REMOTE_GPU ? CLASS_GPU : type == NVML_REMOTE_SWITCH ? CLASS_SWITCH : CLASS_CPU;
    to->count = 1;
}

static void ask_links(nvml_device_t device, sel_nvlinks_t *links)
{
    bool up[NVML_LINKS];
    ask_states(device, up);
    for (unsigned link = 0; link < NVML_LINKS; link++) {
        sel_nvlink_t to;
        if (!up[link])
            continue;
        ask_target(device, link, &to);
        uint32_t i = 0;
        while (i < links->targets && (strcmp(links->to[i].target, to.target) || links->to[i].class != to.class))
            i++;
        if (i < links->targets)
            links->to[i].count++;
        else if (i < SEL_MAX_NVLINKS)
            links->to[links->targets++] = to;
    }
}

/* A GPU's links, cached: asking takes hundreds of driver calls. Entries are never removed, so there is no lock that a
 * forked child could find held. */
typedef struct known {
    struct known *next;
    char bus[SEL_BUS_BYTES];
    sel_nvlinks_t links;
} known_t;
static _Atomic(known_t *) known_first;

static const known_t *find_known(const char *bus)
{
    const known_t *known = atomic_load(&known_first);
    while (known && strcmp(known->bus, bus))
        known = known->next;
    return known;
}

const sel_nvlinks_t *sel_nvml_links(const char *bus)
{
    nvml_device_t device;
    if (!usable())
        return NULL;
    const known_t *kept = find_known(bus);
    if (kept)
        return &kept->links;
    if (nvml.by_pci(bus, &device) != NVML_OK)
        return NULL;
    known_t *known = calloc(1, sizeof *known);
    if (!known)
        return NULL;
    snprintf(known->bus, sizeof known->bus, "%s", bus);
    ask_links(device, &known->links);
    known->next = atomic_load(&known_first);
    while (!atomic_compare_exchange_weak(&known_first, &known->next, known))
        ; /* two threads may add one GPU twice */
    return &known->links;
}

int sel_nvml_reach(const char *from, const char *to, sel_reach_t *reach)
{
    nvml_device_t a, b;
    int status = -1;
    if (!usable() || nvml.by_pci(from, &a) != NVML_OK || nvml.by_pci(to, &b) != NVML_OK ||
        nvml.p2p(a, b, NVML_P2P_NVLINK, &status) != NVML_OK)
        return -1;
    if (status != NVML_P2P_OK)
        return 0;
    const sel_nvlinks_t *links = sel_nvml_links(from);
    const uint32_t switched = links ? sel_nvlinks_switched(links) : 0;
    const uint32_t direct = links ? sel_nvlinks_to(links, to) : 0;
    if (switched || !links || !links->targets) /* hidden by the driver: counted as switched */
        *reach = (sel_reach_t){.link = SEL_LINK_NVSWITCH, .lanes = switched};
    else
        *reach =
            direct ? (sel_reach_t){.link = SEL_LINK_MESH, .lanes = direct} : (sel_reach_t){.link = SEL_LINK_BRIDGES};
    return 1;
}

static void add_gpu(sel_machine_t *machine, const char *sys, unsigned index)
{
    nvml_device_t device;
    nvml_pci_t pci;
    char bus[SEL_BUS_BYTES];
    memset(&pci, 0, sizeof pci);
    if (nvml.by_index(index, &device) != NVML_OK || nvml.pci(device, &pci) != NVML_OK ||
        !sel_bus_normal(pci.bus_id, bus))
        return;
    const int32_t place = sel_machine_add_gpu(machine, sys, bus);
    if (place < 0)
        return;
    sel_gpu_t *gpu = &machine->gpu[place];
    gpu->index = (int32_t)index;
    char name[SEL_GPU_NAME_BYTES + 32] = "";
    int major = 0, minor = 0;
    nvml_memory_t memory = {0};
    if (nvml.name(device, name, sizeof name) == NVML_OK)
        snprintf(gpu->kind.name, sizeof gpu->kind.name, "%.*s", SEL_GPU_NAME_BYTES - 1, name);
    if (nvml.capability(device, &major, &minor) == NVML_OK)
        gpu->kind.arch = (uint32_t)(10 * major + minor);
    if (nvml.memory(device, &memory) == NVML_OK)
        gpu->kind.memory_bytes = memory.total;
    const sel_nvlinks_t *links = sel_nvml_links(bus);
    if (links)
        gpu->nvlinks = *links;
    gpu->kind.nvlinks = sel_nvlinks_count(&gpu->nvlinks);
}

bool sel_nvml_add_gpus(sel_machine_t *machine, const char *sys)
{
    unsigned count = 0;
    if (!usable() || nvml.count(&count) != NVML_OK)
        return false;
    for (unsigned i = 0; i < count; i++)
        add_gpu(machine, sys, i);
    return true;
}
