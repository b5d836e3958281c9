/* SPDX-License-Identifier: Apache-2.0 */
/*
 * links.h - a communicator's topology: how its ranks reach each other, as far as the choice depends on it.
 */
#ifndef SHUNT_LINKS_H
#define SHUNT_LINKS_H

#include "algorithms/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the GPUs of a communicator reach each other; of several, the worst pair's. */
typedef enum sel_link {
    SEL_LINK_HOST = 0, /* host device: shared memory */
    SEL_LINK_NVSWITCH, /* every pair over NVLink and NVSwitch, with equal numbers of links */
    SEL_LINK_MESH,     /* every pair over NVLink of its own, with equal numbers of links */
    SEL_LINK_BRIDGES,  /* unequal: some pairs over NVLink, or over fewer links than others */
    SEL_LINK_PCIE,     /* PCIe switches alone between every pair */
    SEL_LINK_PHB,      /* a CPU's host bridge between some */
    SEL_LINK_SYS,      /* the link between CPU sockets between some */
    SEL_LINK_NETWORK,  /* host device: ranks of several hosts */
    SEL_LINK_COUNT
} sel_link_t;

/* The rate of a machine's links, as `shunt tune` measured it; all zero: not measured. A table holds for a kind of GPU,
 * so `link` says how those that were measured reach each other. */
typedef struct sel_measured {
    uint32_t bytes_per_us; /* out of each GPU while all copy to all others */
    uint32_t gpus;         /* number of GPUs in that measurement */
    uint32_t one_way_ns;   /* latency of a store to another GPU */
    uint32_t link;         /* a sel_link_t; SEL_LINK_HOST: unknown (an older table) */
} sel_measured_t;

/* The same through the host's memory, with all GPUs active. */
typedef struct sel_host_measured {
    uint32_t store_bytes_per_us; /* stores of each GPU into the host's memory; 0: not measured */
    uint32_t load_bytes_per_us;  /* loads of each GPU from the host's memory */
    uint32_t gpus;
    uint32_t one_way_ns; /* latency of a store that another GPU loads there */
    uint32_t link;       /* as above */
    uint32_t unused;
} sel_host_measured_t;

/* Facts of a communicator; the same on every rank after agreement. */
typedef struct sel_topology {
    sel_link_t link;
    alg_memory_t memory; /* ALG_MEMORY_SHM: no peer access, or it is not allowed */
    uint32_t nranks;
    uint32_t hosts; /* ALG_MEMORY_NETWORK: number of hosts, with equally many ranks; `link` is that within a host */
    uint32_t arch;  /* the lowest compute capability, 10 * major + minor; 0 for host */
    uint32_t multiprocessors; /* the lowest of all ranks; host: 0; also 0: unknown */
    uint32_t lanes;           /* NVSWITCH: NVLinks of each GPU; MESH: between each pair; 0: unknown, or none */
    bool multicast;           /* the real NCCL may use NVLink multicast on every rank */
    bool peers;               /* ALG_MEMORY_SHM: chosen by sel_plan_prefers_host; the real NCCL may have peer access */
    uint64_t fingerprint;     /* of this machine's kind: sel_fingerprint; host: 0 */
    sel_measured_t measured;  /* set by sel_plan_init, from the tuned table */
    sel_host_measured_t host; /* likewise */
} sel_topology_t;

const char *sel_link_text(sel_link_t link);
/* Links of the host device. */
bool sel_link_on_host(sel_link_t link);
/* The topology of a team of kernels: the ranks of one host. */
static inline uint32_t sel_team_ranks(const sel_topology_t *topology)
{
    return topology->memory == ALG_MEMORY_NETWORK ? topology->nranks / topology->hosts : topology->nranks;
}

#ifdef __cplusplus
}
#endif
#endif
