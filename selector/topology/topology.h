/* SPDX-License-Identifier: Apache-2.0 */
/* topology.h - a machine's GPUs, NICs and paths; the class and the fingerprint, which select rows (docs/topology.md). A
 * machine is read on request, which takes milliseconds, from NVML and /sys, either of which may be missing, or from a
 * file in NCCL's format. Everything else is pure. */
#ifndef SHUNT_TOPOLOGY_H
#define SHUNT_TOPOLOGY_H

#include <stdio.h>

#include "selector/topology/links.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SEL_CLASS_BYTES = 32, SEL_GPU_NAME_BYTES = 64 };

/* "nvswitch-sm90-4"; all names: docs/topology.md. */
void sel_topology_class(const sel_topology_t *topology, char out[SEL_CLASS_BYTES]);
/* The reverse of sel_topology_class; facts not in the name are zero ("shm": SEL_LINK_SYS). False: not a class. */
bool sel_topology_parse(const char *class, sel_topology_t *topology);

typedef struct sel_reach {
    sel_link_t link;
    uint32_t lanes; /* NVSWITCH, MESH: of each pair, 0: unknown; else 0 */
    sel_link_t far; /* BRIDGES: farthest of the pairs without NVLink; else 0 */
} sel_reach_t;

/* Joins two sets of pairs: equal links stay, NVLink with anything else gives SEL_LINK_BRIDGES, otherwise the worse link
 * counts. Commutative and associative. */
sel_reach_t sel_reach_join(sel_reach_t a, sel_reach_t b);

/* What determines a GPU's speed; neither serial number nor place. */
typedef struct sel_gpu_kind {
    char name[SEL_GPU_NAME_BYTES];
    uint32_t arch; /* 10 * major + minor */
    uint32_t multiprocessors;
    uint64_t memory_bytes; /* compared in GiB, since equal GPUs differ by a few pages */
    uint32_t nvlinks;      /* active ones, to any target */
    uint32_t driver;       /* its CUDA version, 13000 for 13.0; distinguishes driver branches */
} sel_gpu_kind_t;

/* Never 0. */
uint64_t sel_gpu_fingerprint(const sel_gpu_kind_t *kind);
/* Independent of the GPUs' number and order. */
uint64_t sel_fingerprint(const uint64_t *gpu, uint32_t count);

/* PCI devices form a tree below each NUMA node; a parent precedes its children. As in NCCL, a switch is one node, not
 * two ports as in /sys, and root ports are left out. No pointers: machines can be compared. */
enum {
    SEL_MAX_CPUS = 64,
    SEL_MAX_PCI = 256,
    SEL_MAX_GPUS = 32,
    SEL_MAX_NICS = 64,
    SEL_MAX_NVLINKS = 24, /* of a GPU */
    SEL_BUS_BYTES = 20
};

typedef struct sel_cpu {
    int32_t numa;  /* -1: unknown */
    char set[256]; /* mask of CPUs, as in /sys: "ff,00000000" */
    char arch[16];
    char vendor[16];
    uint32_t family, model;
} sel_cpu_t;

typedef struct sel_pci {
    char bus[SEL_BUS_BYTES]; /* as in /sys: "0000:17:00.0" */
    int32_t parent;          /* the switch above; -1: the CPU */
    uint32_t cpu;
    uint32_t class; /* 0x030200; 0: unknown */
    uint32_t vendor, device, subsystem_vendor, subsystem_device;
    char speed[24]; /* of its link, as in /sys: "32.0 GT/s PCIe" */
    uint32_t width; /* lanes; 0: unknown */
} sel_pci_t;

typedef struct sel_nvlink {
    char target[SEL_BUS_BYTES]; /* GPU or switch; "fffffff:ffff:ff": hidden */
    uint32_t class;
    uint32_t count; /* active */
} sel_nvlink_t;

typedef struct sel_nvlinks {
    uint32_t targets;
    sel_nvlink_t to[SEL_MAX_NVLINKS];
} sel_nvlinks_t;

typedef struct sel_gpu {
    uint32_t pci;
    int32_t index;       /* NVML's; -1: unknown */
    uint32_t multicast;  /* fewest GPUs with which the real NCCL may use NVLink multicast; 0: never */
    sel_gpu_kind_t kind; /* unknown: 0 or "" */
    sel_nvlinks_t nvlinks;
} sel_gpu_t;

typedef struct sel_nic {
    int32_t pci; /* -1: not a PCI device */
    uint32_t cpu;
    char name[32];
    int32_t index; /* NCCL's; -1: none */
    uint32_t port;
    uint32_t mbps; /* 0: unknown */
    bool down;
} sel_nic_t;

typedef struct sel_machine {
    uint32_t cpus, pcis, gpus, nics;
    sel_cpu_t cpu[SEL_MAX_CPUS];
    sel_pci_t pci[SEL_MAX_PCI];
    sel_gpu_t gpu[SEL_MAX_GPUS];
    sel_nic_t nic[SEL_MAX_NICS];
} sel_machine_t;

/* Best first; the last five have the names of nvidia-smi and NCCL. */
typedef enum sel_path {
    SEL_PATH_NVSWITCH,
    SEL_PATH_NVLINK, /* without a switch */
    SEL_PATH_PIX,    /* one PCIe switch */
    SEL_PATH_PXB,    /* several, no CPU */
    SEL_PATH_PHB,    /* host bridges of one NUMA node */
    SEL_PATH_SYS     /* between NUMA nodes */
} sel_path_t;

const char *sel_path_text(sel_path_t path);
/* *lanes: NVLinks of GPU a on the path, or 0. */
sel_path_t sel_gpu_path(const sel_machine_t *machine, uint32_t a, uint32_t b, uint32_t *lanes);
/* The same path as a link between two ranks. */
sel_reach_t sel_gpu_reach(const sel_machine_t *machine, uint32_t a, uint32_t b);
sel_path_t sel_nic_path(const sel_machine_t *machine, uint32_t gpu, uint32_t nic);
/* All ports in the order in which a GPU should use them: up before down, then the nearest, the fastest, the first. GPU
 * -1: none is nearer. */
void sel_nics_near(const sel_machine_t *machine, int32_t gpu, uint32_t order[SEL_MAX_NICS]);
/* -1: none is up. */
int32_t sel_nic_near(const sel_machine_t *machine, uint32_t gpu);
/* NVLinks of a GPU: all, those to switches, those to one GPU. */
uint32_t sel_nvlinks_count(const sel_nvlinks_t *links);
uint32_t sel_nvlinks_switched(const sel_nvlinks_t *links);
uint32_t sel_nvlinks_to(const sel_nvlinks_t *links, const char *bus);
/* The GPUs that this process may use by CUDA; without CUDA, or if a file does not say, all. Returns their number. */
uint32_t sel_machine_team(const sel_machine_t *machine, uint32_t gpu[SEL_MAX_GPUS]);
/* The topology of a communicator of these GPUs; `count` is at least 1. */
sel_topology_t sel_machine_topology(const sel_machine_t *machine, const uint32_t *gpu, uint32_t count);

/* Adds a device and all nodes above it, from `sys` ("/sys"), unless they exist; one that /sys lacks goes below an
 * unknown NUMA node. -1: no room, or not a PCI address. */
int32_t sel_machine_add_pci(sel_machine_t *machine, const char *sys, const char *bus);
/* Adds a GPU without its kind and links; -1 as above. */
int32_t sel_machine_add_gpu(sel_machine_t *machine, const char *sys, const char *bus);
/* Adds all GPUs of NVML with their links; without NVML, those of /sys without links. */
void sel_machine_add_gpus(sel_machine_t *machine, const char *sys);
void sel_machine_add_nics(sel_machine_t *machine, const char *sys);
/* "00000000:17:00.0" becomes "0000:17:00.0"; false: not a PCI address. */
bool sel_bus_normal(const char *text, char out[SEL_BUS_BYTES]);

/* Opens NVML once, for good, as NCCL does. False if there is none. */
bool sel_nvml_add_gpus(sel_machine_t *machine, const char *sys);
/* Active links by target; kept as long as the process lives. NULL: NVML does not report them. */
const sel_nvlinks_t *sel_nvml_links(const char *bus);
/* Whether peer access uses NVLink: 1 (sets *reach), 0, or -1: not reported by NVML. */
int sel_nvml_reach(const char *from, const char *to, sel_reach_t *reach);

/* Reads NCCL's format (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE). As in NCCL, unknown elements and attributes are skipped; a
 * malformed one that NCCL needs is a fault: "file:line:column: expected ...". Sets the machine only on success. */
bool sel_machine_parse(sel_machine_t *machine, const char *file, const char *text, size_t bytes, char *fault,
                       size_t fault_bytes);
bool sel_machine_load(sel_machine_t *machine, const char *file, char *fault, size_t fault_bytes);
/* Writes NCCL's format, and more, which NCCL skips (name, multiprocessors, ...). */
void sel_machine_print_xml(const sel_machine_t *machine, FILE *out);
void sel_machine_print(const sel_machine_t *machine, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
