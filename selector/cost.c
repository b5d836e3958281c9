/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - the predicted time of a collective on machines that were not
 * measured.
 *
 * A call costs its start, and the bytes that leave a GPU divided by the link's rate. The floors are those of
 * docs/kernels.md; how far above them each algorithm stays, and what the real NCCL takes, was fitted to
 * docs/results/graph-{2,3,4}-h200.csv; of other machines, only the link is known: its rate in the tuned table, or else
 * its nominal rate. A wrong prediction costs more than a missed gain, so an algorithm is chosen only with a clear
 * lead, and an unknown link counts as slow for us and fast for the real NCCL. PCIe without a table's figures rests on
 * times that others published (docs/notebook/pcie.md), and needs twice NCCL's speed.
 */
#include "selector/cost.h"

#include <stddef.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* The lead over the real NCCL that an algorithm needs. */
#define LEAD 1.15
#define UNTUNED_LEAD 2.0

/* Time of a word between two GPUs, in us, on the machine for which the starts below were fitted:
 * docs/results/graph-4-h200.csv. */
#define FITTED_ONE_WAY 0.80

/* ---- Times in us, rates in bytes per us (GB/s * 1000) ----------------------------------- */

typedef struct link_rate {
    double sure; /* a safe rate of our stores */
    double most; /* the highest likely rate of the real NCCL */
} link_rate_t;

/* Measured while all GPUs of the machine copied to all others, as our algorithms do. */
static link_rate_t measured_rate(const sel_topology_t *topology, double whole)
{
    const double rate = topology->measured.bytes_per_us;
    const double peers = topology->nranks - 1.0, all_peers = topology->measured.gpus - 1.0;
    /* Fewer GPUs have fewer of the links between them. */
    const double part = peers < all_peers ? rate * peers / all_peers : rate;
    if (topology->link == SEL_LINK_NVSWITCH)
        return (link_rate_t){rate, rate};
    if (topology->link == SEL_LINK_MESH)
        return (link_rate_t){part, part};
    /* The real NCCL may find a ring that shares fewer links. */
    return (link_rate_t){rate, rate > whole ? rate : whole};
}

/* We measured nothing over PCIe. Our rates below one switch, and between more than 2 GPUs without one, are published
 * figures; those between 2 GPUs without one, and NCCL's (16 lanes, unshared), are assumed (docs/tuning.md). Stores to
 * several GPUs at once collapse in a CPU's host bridge. */
static link_rate_t pcie_rate(const sel_topology_t *topology)
{
    const double most = topology->arch >= 90 ? 50e3 : 25e3;
    if (topology->link == SEL_LINK_PCIE)
        return (link_rate_t){10e3, most};
    return (link_rate_t){topology->nranks > 2 ? 2e3 : topology->link == SEL_LINK_PHB ? 6e3 : 3e3, most};
}

/* Rate of copies out of one GPU: 390 GB/s was measured on sm_90; the others have the same part of their nominal
 * rate. */
static link_rate_t rate_of(const sel_topology_t *topology)
{
    const double whole = topology->arch >= 100 ? 780e3 : topology->arch >= 90 ? 390e3 : 260e3;
    if (topology->arch < 80 || topology->memory != ALG_MEMORY_PEER)
        return (link_rate_t){0, 0};
    if (topology->measured.bytes_per_us)
        return measured_rate(topology, whole);
    if (topology->link == SEL_LINK_NVSWITCH)
        return (link_rate_t){whole, whole};
    /* Links of its own for every pair: one at least. */
    if (topology->link == SEL_LINK_MESH)
        return (link_rate_t){22e3, whole};
    if (topology->link >= SEL_LINK_PCIE)
        return pcie_rate(topology);
    return (link_rate_t){0, 0};
}

/* Extra time of a word on this machine: for us, for the real NCCL. */
typedef struct delay {
    double ours, nccl;
} delay_t;

static delay_t delay_of(const sel_topology_t *topology)
{
    if (topology->measured.bytes_per_us) {
        const double more = topology->measured.one_way_ns * 1e-3 - FITTED_ONE_WAY;
        return (delay_t){more, more};
    }
    return topology->link >= SEL_LINK_PCIE ? (delay_t){1.5, 0} : (delay_t){0, 0};
}

/* Whether the table has figures of the path that this memory takes. */
static bool tuned(const sel_topology_t *topology)
{
    return topology->memory == ALG_MEMORY_SHM ? topology->host.store_bytes_per_us : topology->measured.bytes_per_us;
}

/* Traffic out of or into the busiest GPU, in units of a rank's larger buffer. */
typedef enum load { TO_EACH, TWICE, BLOCKS, WHOLE } load_t;

static double load_of(load_t load, double nranks)
{
    switch (load) {
    case TO_EACH: /* the whole buffer to every other rank, at once */
        return nranks - 1;
    case TWICE: /* scattered and gathered */
        return 2 * (nranks - 1) / nranks;
    case BLOCKS: /* one block to every other rank */
        return (nranks - 1) / nranks;
    case WHOLE: /* once; other ranks pass it on */
        return 1;
    }
    return 0;
}

/* Start time: enter a kernel, notify every peer, and hear from it. */
static double start_of(double nranks)
{
    return 1.6 + 0.1 * nranks;
}

typedef struct own_cost {
    const char *name;
    load_t load;
    double more;   /* to start than start_of */
    double part;   /* of the link's rate */
    int crossings; /* one after the other */
} own_cost_t;

/* The real NCCL: a protocol with a short start, and one that fills the link. */
typedef struct nccl_cost {
    load_t load;
    double soon, soon_a_rank, soon_part;
    double full, full_part;
    int crossings; /* for two ranks; more ranks only start later */
} nccl_cost_t;

enum { MOST_OWN = 3 };

typedef struct cost {
    own_cost_t own[MOST_OWN]; /* name NULL: no more */
    nccl_cost_t nccl;
} cost_t;

/* The other collectives: ours like the similar algorithm of all-reduce; NCCL's fitted below its times on 2 and 4
 * H200, 1 KB to 256 MB. */
static const cost_t ALL_REDUCE = {
    .own = {{"oneshot", TO_EACH, 0, 0.74, 1}, {"twoshot", TWICE, 0.9, 0.79, 2}, {"staged", TWICE, 7.0, 0.82, 2}},
    .nccl = {TWICE, 2.2, 1.75, 0.49, 20.0, 0.865, 2}};
static const cost_t FROM_ALL = {.own = {{"push", BLOCKS, 0, 0.74, 1}},
                                .nccl = {BLOCKS, 3.3, 0.77, 0.46, 20.0, 0.82, 1}};
static const cost_t AT_ROOT = {.own = {{"push", BLOCKS, 0, 0.74, 1}}, .nccl = {BLOCKS, 4.7, 0.1, 0.49, 7.0, 0.97, 1}};
static const cost_t FROM_ROOT = {.own = {{"push", TO_EACH, 0, 0.74, 1}, {"twoshot", WHOLE, 0.9, 0.74, 2}},
                                 .nccl = {WHOLE, 4.2, 0.1, 0.43, 12.0, 0.94, 1}};
static const cost_t MESSAGE = {.own = {{"pairs", WHOLE, 0, 0.74, 1}}, .nccl = {WHOLE, 4.2, 0.1, 0.43, 12.0, 0.94, 1}};
static const cost_t *const COSTS[ALG_COLLECTIVE_COUNT] = {
    [ALG_ALL_REDUCE] = &ALL_REDUCE, [ALG_REDUCE_SCATTER] = &FROM_ALL, [ALG_ALL_GATHER] = &FROM_ALL,
    [ALG_ALL_TO_ALL] = &FROM_ALL,   [ALG_GATHER] = &AT_ROOT,          [ALG_SCATTER] = &AT_ROOT,
    [ALG_BROADCAST] = &FROM_ROOT,   [ALG_REDUCE] = &FROM_ROOT,        [ALG_SEND_RECV] = &MESSAGE,
};

static double own_time(const own_cost_t *cost, double nranks, double bytes, double rate)
{
    return start_of(nranks) + cost->more + load_of(cost->load, nranks) * bytes / (cost->part * rate);
}

/* Over PCIe, in us: below the least published start of short calls (8.3 on 2 GPUs, 13.6 on 4, 36 on 8;
 * docs/results/published-pcie.csv). 0: none was published, as for calls with a root and for messages. */
double sel_cost_pcie_start(alg_collective_t collective, double nranks)
{
    const bool published = COSTS[collective] == &ALL_REDUCE || COSTS[collective] == &FROM_ALL;
    return published ? 3.8 + 2.2 * nranks : 0;
}

static double nccl_time(const sel_topology_t *topology, alg_collective_t collective, double bytes)
{
    const nccl_cost_t *cost = &COSTS[collective]->nccl;
    const double nranks = topology->nranks, load = load_of(cost->load, nranks) * bytes / rate_of(topology).most;
    const bool guess = topology->link >= SEL_LINK_PCIE && !tuned(topology);
    const double published = guess ? sel_cost_pcie_start(collective, nranks) : 0;
    double start = cost->soon + cost->soon_a_rank * nranks;
    start = start > published ? start : published;
    const double soon = start + load / cost->soon_part, full = cost->full + load / cost->full_part;
    return (soon < full ? soon : full) + cost->crossings * delay_of(topology).nccl;
}

/* ---- The choice --------------------------------------------------------------------------- */

uint64_t sel_cost_bound(uint32_t index)
{
    const uint64_t octave = KIB << index / 2;
    return (index % 2 ? octave * 181 / 128 : octave) + 1; /* a round size, as in rows of a table */
}

/* Few blocks leave room for the program's own kernels; from 1 MiB on more blocks are clearly faster. */
sel_choice_t sel_usual_grid(const sel_topology_t *topology, uint64_t bytes)
{
    if (topology->link == SEL_LINK_HOST)
        return (sel_choice_t){.blocks = 1, .threads = 1};
    if (topology->memory != ALG_MEMORY_PEER)
        return (sel_choice_t){.blocks = 16, .threads = 512};
    return (sel_choice_t){.blocks = bytes <= MIB ? 32 : 64, .threads = 1024};
}

const alg_algorithm_t *sel_cost_fastest(const sel_topology_t *topology, const alg_map_t *map,
                                        alg_collective_t collective, uint64_t bytes, double *time)
{
    const link_rate_t rate = rate_of(topology);
    const alg_algorithm_t *fastest = NULL;
    if (topology->memory == ALG_MEMORY_SHM)
        return sel_cost_shm_fastest(topology, map, collective, bytes, time);
    const cost_t *cost = COSTS[collective];
    for (const own_cost_t *own = cost->own; rate.sure > 0 && own < cost->own + MOST_OWN && own->name; own++) {
        const alg_algorithm_t *algorithm = alg_find(collective, own->name);
        const double one =
            own_time(own, topology->nranks, (double)bytes, rate.sure) + own->crossings * delay_of(topology).ours;
        if (algorithm && one < *time && bytes <= algorithm->max_bytes(map, topology->nranks, ALG_FLOAT32)) {
            *time = one;
            fastest = algorithm;
        }
    }
    return fastest;
}

double sel_cost_to_beat(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes)
{
    const bool host = topology->memory == ALG_MEMORY_SHM, peers = host ? topology->peers : true;
    const bool sure = topology->link < SEL_LINK_PCIE || tuned(topology) || !peers;
    if (!host && rate_of(topology).sure == 0)
        return 0;
    return (host ? sel_cost_shm_nccl(topology, collective, bytes) : nccl_time(topology, collective, (double)bytes)) /
           (sure ? LEAD : UNTUNED_LEAD);
}

sel_choice_t sel_cost_choose(const sel_topology_t *topology, const alg_map_t *map, alg_collective_t collective,
                             uint64_t bytes)
{
    sel_choice_t choice = sel_usual_grid(topology, bytes);
    double time = sel_cost_to_beat(topology, collective, bytes);
    if (topology->memory != ALG_MEMORY_NETWORK)
        choice.algorithm = sel_cost_fastest(topology, map, collective, bytes, &time);
    return choice;
}
