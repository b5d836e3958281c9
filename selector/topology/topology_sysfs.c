/* SPDX-License-Identifier: Apache-2.0 */
/* topology_sysfs.c - PCI devices, NUMA nodes and RDMA ports, from /sys, which unlike libibverbs needs no library, open
 * device or rights. Missing or malformed values are unknown. */
#define _GNU_SOURCE
#include "selector/topology/topology.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Reads a line without its end; "" if there is none. */
static void read_line(const char *folder, const char *name, char *out, size_t bytes)
{
    char path[PATH_MAX];
    out[0] = '\0';
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return;
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(out, (int)bytes, file))
        out[0] = '\0';
    fclose(file);
    out[strcspn(out, "\n")] = '\0';
}

static long read_number(const char *folder, const char *name, long otherwise)
{
    char text[64], *end;
    read_line(folder, name, text, sizeof text);
    const long value = strtol(text, &end, 0);
    return end == text ? otherwise : value;
}

/* For "2.5 GT/s"; strtof would expect the locale's decimal point. */
static float decimal(const char *text)
{
    char *end;
    float value = (float)strtoul(text, &end, 10), scale = 1;
    for (text = *end == '.' ? end + 1 : ""; *text >= '0' && *text <= '9'; text++)
        value += (float)(*text - '0') * (scale /= 10);
    return value;
}

static float speed_of(const char *text)
{
    const float speed = decimal(text);
    return speed > 0 ? speed : 1e9f; /* "Unknown": the other end decides */
}

/* Reads digits up to `end`; NULL if there are none. sscanf would accept signs and blanks. */
static const char *hex(const char *text, size_t most, char end, unsigned *value)
{
    const size_t digits = strspn(text, "0123456789abcdefABCDEF");
    if (digits == 0 || digits > most || text[digits] != end)
        return NULL;
    *value = (unsigned)strtoul(text, NULL, 16);
    return text + digits + (end != '\0');
}

bool sel_bus_normal(const char *text, char out[SEL_BUS_BYTES])
{
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    const char *at = hex(text, 8, ':', &domain);
    at = at ? hex(at, 2, ':', &bus) : NULL;
    at = at ? hex(at, 2, '.', &device) : NULL;
    at = at ? hex(at, 1, '\0', &function) : NULL;
    if (!at || device > 31 || function > 7)
        return false;
    snprintf(out, SEL_BUS_BYTES, "%04x:%02x:%02x.%x", domain, bus, device, function);
    return true;
}

/* From /proc/cpuinfo; the same for every CPU. */
static void read_cpu_model(sel_cpu_t *cpu)
{
#if defined(__x86_64__)
    snprintf(cpu->arch, sizeof cpu->arch, "x86_64");
#elif defined(__aarch64__)
    snprintf(cpu->arch, sizeof cpu->arch, "arm64");
#endif
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (file && fgets(line, sizeof line, file) && line[0] != '\n') {
        sscanf(line, "vendor_id : %15s", cpu->vendor);
        sscanf(line, "cpu family : %u", &cpu->family);
        sscanf(line, "model : %u", &cpu->model);
    }
    if (file)
        fclose(file);
}

/* -1: no room. */
static int32_t add_cpu(sel_machine_t *machine, const char *sys, int32_t numa)
{
    for (uint32_t i = 0; i < machine->cpus; i++) {
        if (machine->cpu[i].numa == numa)
            return (int32_t)i;
    }
    if (machine->cpus == SEL_MAX_CPUS)
        return -1;
    sel_cpu_t *cpu = &machine->cpu[machine->cpus];
    *cpu = (sel_cpu_t){.numa = numa};
    char folder[PATH_MAX];
    if (numa >= 0 && snprintf(folder, sizeof folder, "%s/devices/system/node/node%d", sys, numa) < (int)sizeof folder)
        read_line(folder, "cpumap", cpu->set, sizeof cpu->set);
    read_cpu_model(cpu);
    return (int32_t)machine->cpus++;
}

static int32_t find_pci(const sel_machine_t *machine, const char *bus)
{
    for (uint32_t i = 0; i < machine->pcis; i++) {
        if (strcmp(machine->pci[i].bus, bus) == 0)
            return (int32_t)i;
    }
    return -1;
}

/* The slower of the two ends of a device's link. */
static void read_link(sel_pci_t *pci, const char *folder)
{
    char above[sizeof pci->speed];
    read_line(folder, "max_link_speed", pci->speed, sizeof pci->speed);
    read_line(folder, "../max_link_speed", above, sizeof above);
    if (above[0] && speed_of(above) < speed_of(pci->speed))
        memcpy(pci->speed, above, sizeof above);
    const long own = read_number(folder, "max_link_width", 0), port = read_number(folder, "../max_link_width", own);
    const long width = port < own ? port : own;
    pci->width = width > 0 && width <= 64 ? (uint32_t)width : 0;
}

static void read_pci(sel_pci_t *pci, const char *folder)
{
    pci->class = (uint32_t)read_number(folder, "class", 0) & 0xffffff;
    pci->vendor = (uint32_t)read_number(folder, "vendor", 0) & 0xffff;
    pci->device = (uint32_t)read_number(folder, "device", 0) & 0xffff;
    pci->subsystem_vendor = (uint32_t)read_number(folder, "subsystem_vendor", 0) & 0xffff;
    pci->subsystem_device = (uint32_t)read_number(folder, "subsystem_device", 0) & 0xffff;
    read_link(pci, folder);
}

/* Removes the last part; the rest ends in the parent's name. */
static bool cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

static bool ends_in_device(const char *path, char bus[SEL_BUS_BYTES])
{
    const char *slash = strrchr(path, '/');
    return slash && sel_bus_normal(slash + 1, bus);
}

/* Moves to the switch above: past the downstream port, to the switch's upstream port. False if that is a root port. */
static bool climb(char *path, char bus[SEL_BUS_BYTES])
{
    return cut(path) && ends_in_device(path, bus) && cut(path) && ends_in_device(path, bus);
}

static int32_t append_pci(sel_machine_t *machine, const char *bus, int32_t parent, int32_t cpu)
{
    if (cpu < 0 || machine->pcis == SEL_MAX_PCI)
        return -1;
    sel_pci_t *pci = &machine->pci[machine->pcis];
    *pci = (sel_pci_t){.parent = parent, .cpu = (uint32_t)cpu};
    memcpy(pci->bus, bus, SEL_BUS_BYTES);
    return (int32_t)machine->pcis++;
}

int32_t sel_machine_add_pci(sel_machine_t *machine, const char *sys, const char *text)
{
    enum { MOST_LEVELS = 16 };
    char bus[SEL_BUS_BYTES] = "", chain[MOST_LEVELS][SEL_BUS_BYTES] = {""};
    char link[PATH_MAX], path[PATH_MAX], folder[PATH_MAX];
    if (!sel_bus_normal(text, bus))
        return -1;
    int32_t found = find_pci(machine, bus);
    if (found >= 0)
        return found;
    if (snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sys, bus) >= (int)sizeof link || !realpath(link, path))
        return append_pci(machine, bus, -1, add_cpu(machine, sys, -1));

    const int32_t cpu = add_cpu(machine, sys, (int32_t)read_number(path, "numa_node", -1));
    uint32_t levels = 0;
    memcpy(chain[levels++], bus, SEL_BUS_BYTES);
    while (levels < MOST_LEVELS && climb(path, bus)) {
        found = find_pci(machine, bus);
        if (found >= 0)
            break;
        memcpy(chain[levels++], bus, SEL_BUS_BYTES);
    }
    while (levels-- > 0) {
        found = append_pci(machine, chain[levels], found, found < 0 ? cpu : (int32_t)machine->pci[found].cpu);
        if (found < 0)
            return -1;
        snprintf(folder, sizeof folder, "%.*s/bus/pci/devices/%s", PATH_MAX / 2, sys, chain[levels]);
        if (realpath(folder, path)) /* "../" is then the device above */
            read_pci(&machine->pci[found], path);
    }
    return found;
}

int32_t sel_machine_add_gpu(sel_machine_t *machine, const char *sys, const char *bus)
{
    const int32_t pci = machine->gpus < SEL_MAX_GPUS ? sel_machine_add_pci(machine, sys, bus) : -1;
    if (pci < 0)
        return -1;
    for (uint32_t i = 0; i < machine->gpus; i++) {
        if (machine->gpu[i].pci == (uint32_t)pci)
            return (int32_t)i;
    }
    machine->gpu[machine->gpus] = (sel_gpu_t){.pci = (uint32_t)pci, .index = -1};
    return (int32_t)machine->gpus++;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Lists names sorted, independent of the file system and the locale. */
static int list(const char *folder, struct dirent ***names)
{
    return scandir(folder, names, NULL, by_name);
}

static void drop(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    if (count >= 0)
        free(names);
}

void sel_machine_add_gpus(sel_machine_t *machine, const char *sys)
{
    if (sel_nvml_add_gpus(machine, sys))
        return;
    enum { NVIDIA = 0x10de, DISPLAY = 0x03 };
    char devices[PATH_MAX], folder[PATH_MAX];
    snprintf(devices, sizeof devices, "%.*s/bus/pci/devices", PATH_MAX / 2, sys);
    struct dirent **names = NULL;
    const int count = list(devices, &names);
    for (int i = 0; i < count; i++) {
        if (snprintf(folder, sizeof folder, "%s/%s", devices, names[i]->d_name) < (int)sizeof folder &&
            read_number(folder, "vendor", 0) == NVIDIA && read_number(folder, "class", 0) >> 16 == DISPLAY)
            sel_machine_add_gpu(machine, sys, names[i]->d_name);
    }
    drop(names, count);
}

/* "400 Gb/sec (4X NDR)"; also "2.5 Gb/sec". */
static uint32_t rate_of(const char *text)
{
    const float rate = decimal(text);
    return rate > 0 && rate < 1e6f ? (uint32_t)(rate * 1000) : 0;
}

static void add_port(sel_machine_t *machine, const char *ports, const char *port, sel_nic_t nic)
{
    char folder[PATH_MAX], text[64];
    if (!isdigit((unsigned char)port[0]) || machine->nics == SEL_MAX_NICS ||
        snprintf(folder, sizeof folder, "%s/%s", ports, port) >= (int)sizeof folder)
        return;
    nic.port = (uint32_t)strtoul(port, NULL, 10);
    read_line(folder, "rate", text, sizeof text);
    nic.mbps = rate_of(text);
    read_line(folder, "state", text, sizeof text); /* "4: ACTIVE" */
    nic.down = text[0] != '4';
    machine->nic[machine->nics++] = nic;
}

static void add_nic(sel_machine_t *machine, const char *sys, const char *rdma, const char *name)
{
    sel_nic_t nic = {.pci = -1, .index = -1};
    char folder[PATH_MAX], path[PATH_MAX], bus[SEL_BUS_BYTES];
    if (name[0] == '.' || strlen(name) >= sizeof nic.name)
        return;
    snprintf(nic.name, sizeof nic.name, "%s", name);
    snprintf(folder, sizeof folder, "%.*s/%s/device", PATH_MAX / 2, rdma, nic.name);
    if (realpath(folder, path) && ends_in_device(path, bus))
        nic.pci = sel_machine_add_pci(machine, sys, bus);
    const int32_t cpu = nic.pci >= 0 ? (int32_t)machine->pci[nic.pci].cpu : add_cpu(machine, sys, -1);
    if (cpu < 0)
        return;
    nic.cpu = (uint32_t)cpu;
    snprintf(folder, sizeof folder, "%.*s/%s/ports", PATH_MAX / 2, rdma, nic.name);
    struct dirent **ports = NULL;
    const int count = list(folder, &ports);
    for (int i = 0; i < count; i++)
        add_port(machine, folder, ports[i]->d_name, nic);
    drop(ports, count);
}

void sel_machine_add_nics(sel_machine_t *machine, const char *sys)
{
    char rdma[PATH_MAX];
    snprintf(rdma, sizeof rdma, "%.*s/class/infiniband", PATH_MAX / 2, sys);
    struct dirent **names = NULL;
    const int count = list(rdma, &names);
    for (int i = 0; i < count; i++)
        add_nic(machine, sys, rdma, names[i]->d_name);
    drop(names, count);
}
