/* SPDX-License-Identifier: Apache-2.0 */
/* links.h - how a communicator's ranks reach each other. */
#ifndef SHUNT_LINKS_H
#define SHUNT_LINKS_H

#include "algorithms/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The link of the worst pair of GPUs. */
typedef enum sel_link {
    SEL_LINK_CPU = 0,  /* CPU device */
    SEL_LINK_NVSWITCH, /* all pairs over NVLink and NVSwitch, equal numbers of links */
    SEL_LINK_MESH,     /* all pairs over NVLinks of their own, equal numbers */
    SEL_LINK_BRIDGES,  /* some pairs over NVLink, or over fewer links than others */
    SEL_LINK_PCIE,     /* all pairs through PCIe switches alone */
    SEL_LINK_PHB,      /* some through a CPU's host bridge */
    SEL_LINK_SYS,      /* some between CPU sockets */
    SEL_LINK_NETWORK,  /* CPU device, several nodes */
    SEL_LINK_COUNT
} sel_link_t;

/* What `shunt tune` measured; all zero: nothing. A table applies to a kind of GPU, but equal GPUs may have other links,
 * so `link` names the measured kind. */
typedef struct sel_measured {
    uint32_t bytes_per_us; /* out of each GPU while all copy to all others */
    uint32_t gpus;         /* how many copied in that measurement */
    uint32_t one_way_ns;   /* of a store to another GPU */
    uint32_t link;         /* a sel_link_t; SEL_LINK_CPU: unknown (older table) */
} sel_measured_t;

/* The same through pinned memory, with all GPUs active. */
typedef struct sel_pinned_measured {
    uint32_t store_bytes_per_us; /* of each GPU; 0: not measured */
    uint32_t load_bytes_per_us;
    uint32_t gpus;
    uint32_t one_way_ns; /* of a store that another GPU loads */
    uint32_t link;
    uint32_t unused;
} sel_pinned_measured_t;

/* Equal on every rank after agreement. */
typedef struct sel_topology {
    sel_link_t link;
    alg_memory_t memory; /* ALG_MEMORY_PINNED: no peer access, or not allowed */
    uint32_t nranks;
    uint32_t nodes;           /* ALG_MEMORY_NETWORK: nodes with equally many ranks; `link` is within a node */
    uint32_t arch;            /* lowest compute capability, 10 * major + minor; CPU device: 0 */
    uint32_t multiprocessors; /* the lowest; 0: CPU device, or unknown */
    uint32_t lanes;           /* NVSWITCH: NVLinks of a GPU; MESH: of a pair; 0: unknown, or none */
    bool multicast;           /* the real NCCL may use NVLink multicast on every rank */
    bool peers;               /* ALG_MEMORY_PINNED over PCIe: the real NCCL may have peer access */
    uint64_t fingerprint;     /* sel_fingerprint; CPU device: 0 */
    sel_measured_t measured;  /* from the tuned table, by sel_plan_init */
    sel_pinned_measured_t pinned;
} sel_topology_t;

const char *sel_link_text(sel_link_t link);
bool sel_link_on_cpu(sel_link_t link);
/* Ranks of one team of kernels, which is on one node. */
static inline uint32_t sel_team_ranks(const sel_topology_t *topology)
{
    return topology->memory == ALG_MEMORY_NETWORK ? topology->nranks / topology->nodes : topology->nranks;
}

#ifdef __cplusplus
}
#endif
#endif
