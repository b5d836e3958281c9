/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - the predicted time of a collective on machines that were not measured. A call costs its start, plus the
 * bytes that leave a GPU divided by the link's rate. How far algorithms are above the bounds of docs/kernels.md, and
 * NCCL's times, are fitted to selector/measured/graph-{2,3,4}-h200.csv. For other machines only the link's rate is
 * known: from the tuned table, else nominal; over PCIe, published times (docs/lab/pcie.md).
 * A wrong prediction costs more than a missed gain: an algorithm needs a clear lead at both ends of a band of sizes,
 * must have run on this number of GPUs, and an unknown link counts as slow for Shunt and fast for NCCL. */
#include "selector/cost.h"

#include <stddef.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* Lead over the real NCCL that an algorithm needs. On H200 calls take up to 1.26 (2 GPUs) and 1.40 times (4) the
 * prediction (selector/measured/collectives-{2,4}-h200.csv). Newer architectures have faster kernels in NCCL (vllm
 * pulls 37756, 42324); over PCIe even the links' rates are assumed. */
#define LEAD 1.5
#define UNTUNED_LEAD 2.0
enum { NEWEST_MEASURED = 90 };

enum { MOST_BLOCKS = 64 };

/* A word's time between GPUs, in us, where the start times below were fitted (selector/measured/graph-4-h200.csv). */
#define FITTED_ONE_WAY 0.80

/* ---- Times in us, rates in bytes per us (GB/s * 1000) ----------------------------------- */

typedef struct link_rate {
    double sure; /* safe, for Shunt's stores */
    double most; /* highest likely, for NCCL */
} link_rate_t;

/* The rate at which all GPUs copied to all others. */
static link_rate_t measured_rate(const sel_topology_t *topology, double whole)
{
    const double rate = topology->measured.bytes_per_us;
    const double peers = topology->nranks - 1.0, all_peers = topology->measured.gpus - 1.0;
    /* Fewer GPUs use fewer of the links between them. */
    const double part = peers < all_peers ? rate * peers / all_peers : rate;
    if (topology->link == SEL_LINK_NVSWITCH)
        return (link_rate_t){rate, rate};
    if (topology->link == SEL_LINK_MESH)
        return (link_rate_t){part, part};
    /* NCCL's ring may share fewer links than the measured copies did. */
    return (link_rate_t){rate, rate > whole ? rate : whole};
}

/* Nothing was measured over PCIe; these rates are published or assumed (docs/lab/pcie.md). A CPU's host bridge is very
 * slow for stores to several GPUs at once. */
static link_rate_t pcie_rate(const sel_topology_t *topology)
{
    const double most = topology->arch >= 90 ? 50e3 : 25e3;
    if (topology->link == SEL_LINK_PCIE)
        return (link_rate_t){10e3, most};
    return (link_rate_t){topology->nranks > 2 ? 2e3 : topology->link == SEL_LINK_PHB ? 6e3 : 3e3, most};
}

/* Rate of copies out of one GPU per NVLink: 390 GB/s over 18 links on sm_90 (selector/measured/stores-h200.csv). Links
 * of sm_80 have the same nominal rate, those of sm_100 twice that (NVIDIA's data sheets): NCCL may reach it, Shunt's
 * stores were not measured. */
#define LANE 21.67e3
#define LANE_100 43.3e3
static double rate_of_lane(const sel_topology_t *topology)
{
    return topology->arch >= 100 ? LANE_100 : LANE;
}

/* NVLinks of a GPU if unknown: as on HGX boards (data sheets). */
static double lanes_of_gpu(const sel_topology_t *topology)
{
    return topology->arch >= 90 ? 18 : 12;
}

/* Part of the links' rate that this GPU's blocks reach: 64 blocks reach all of it on sm_90. */
static double part_of_blocks(const sel_topology_t *topology)
{
    const uint32_t blocks = topology->multiprocessors;
    return blocks && blocks < MOST_BLOCKS ? (double)blocks / MOST_BLOCKS : 1;
}

static link_rate_t rate_of(const sel_topology_t *topology)
{
    const double lane = rate_of_lane(topology), whole = lane * lanes_of_gpu(topology);
    const double slow = part_of_blocks(topology) * LANE / lane;
    if (topology->arch < 80 || topology->memory != ALG_MEMORY_PEER)
        return (link_rate_t){0, 0};
    if (topology->measured.bytes_per_us)
        return measured_rate(topology, whole);
    if (topology->link == SEL_LINK_NVSWITCH) {
        const double rate = topology->lanes ? lane * topology->lanes : whole;
        return (link_rate_t){slow * rate, rate};
    }
    /* each pair has at least one link */
    if (topology->link == SEL_LINK_MESH) {
        const double rate = lane * topology->lanes * (topology->nranks - 1);
        return rate > 0 ? (link_rate_t){slow * rate, rate} : (link_rate_t){lane, whole};
    }
    if (topology->link >= SEL_LINK_PCIE)
        return pcie_rate(topology);
    return (link_rate_t){0, 0};
}

/* Extra time of a crossing on this machine. */
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

static bool tuned(const sel_topology_t *topology)
{
    return topology->memory == ALG_MEMORY_PINNED ? topology->pinned.store_bytes_per_us
                                                 : topology->measured.bytes_per_us;
}

/* In units of a rank's larger buffer. */
static double load_of(alg_load_t load, double nranks)
{
    switch (load) {
    case ALG_LOAD_TO_EACH:
        return nranks - 1;
    case ALG_LOAD_TWICE:
        return 2 * (nranks - 1) / nranks;
    case ALG_LOAD_BLOCKS:
        return (nranks - 1) / nranks;
    case ALG_LOAD_WHOLE:
        return 1;
    }
    return 0;
}

/* Time to enter a kernel, notify every peer, and wait for their notices. Fitted on sm_90, where dependent launch saves
 * 0.25 us (docs/lab/kernels.md, "no early trigger"), and the early trigger 0.3 us (selector/measured/early-h200.csv).
 * PCIe's figures include both. */
static double start_of(const sel_topology_t *topology)
{
    const bool late = topology->arch < 90 && topology->link < SEL_LINK_PCIE;
    return 1.6 + 0.1 * topology->nranks + (late ? 0.55 : 0);
}

/* A buffer of 2^k bytes does not divide into whole vectors among 3, 5, 6 or 7 ranks: push takes 3.1 us more, at 0.6 of
 * the rate (selector/measured/collectives-3-h200.csv, alltoall and allgather). */
#define UNEVEN_START 3.1
#define UNEVEN_PART 0.6
static bool uneven(const sel_topology_t *topology)
{
    return (topology->nranks & (topology->nranks - 1)) != 0;
}

/* Two protocols of NCCL: one with a short start, one that uses the whole link. */
typedef struct nccl_cost {
    alg_load_t load;
    double soon, soon_a_rank, soon_part;
    double full, full_part;
    int crossings; /* for two ranks; more ranks only raise the start */
} nccl_cost_t;

/* Fitted below its times on 2 and 4 H200, 1 KB to 256 MB. */
static const nccl_cost_t ALL_REDUCE = {ALG_LOAD_TWICE, 2.2, 1.75, 0.49, 20.0, 0.865, 2};
static const nccl_cost_t FROM_ALL = {ALG_LOAD_BLOCKS, 3.3, 0.77, 0.46, 20.0, 0.82, 1};
static const nccl_cost_t AT_ROOT = {ALG_LOAD_BLOCKS, 4.7, 0.1, 0.49, 7.0, 0.97, 1};
static const nccl_cost_t FROM_ROOT = {ALG_LOAD_WHOLE, 4.2, 0.1, 0.43, 12.0, 0.94, 1};
static const nccl_cost_t *const NCCL[ALG_COLLECTIVE_COUNT] = {
    [ALG_ALL_REDUCE] = &ALL_REDUCE, [ALG_REDUCE_SCATTER] = &FROM_ALL, [ALG_ALL_GATHER] = &FROM_ALL,
    [ALG_ALL_TO_ALL] = &FROM_ALL,   [ALG_GATHER] = &AT_ROOT,          [ALG_SCATTER] = &AT_ROOT,
    [ALG_BROADCAST] = &FROM_ROOT,   [ALG_REDUCE] = &FROM_ROOT,        [ALG_SEND_RECV] = &FROM_ROOT,
};

static double own_time(const sel_topology_t *topology, const alg_cost_t *cost, double bytes)
{
    const bool unaligned = cost->load == ALG_LOAD_BLOCKS && uneven(topology);
    const double part = cost->part * (unaligned ? UNEVEN_PART : 1), pairs = topology->nranks - 1.0;
    double rate = rate_of(topology).sure;
    if (cost->load == ALG_LOAD_WHOLE && topology->link == SEL_LINK_MESH) /* only one pair's links are used */
        rate /= pairs;
    return start_of(topology) + cost->more_us + (unaligned ? UNEVEN_START : 0) +
           load_of(cost->load, topology->nranks) * bytes / (part * rate) + cost->crossings * delay_of(topology).ours;
}

/* On more than two GPUs, groups of broadcasts and reduces in two steps were not measured. On three and four, messages
 * above 8 MB are slower than NCCL's if a rank has several (sweep-4-h200.csv); on more GPUs, no message above 4 MB has
 * run. */
static bool has_run(const sel_topology_t *topology, const alg_cost_t *cost, double bytes)
{
    const bool four = topology->nranks <= 4;
    if (topology->nranks == 2 || cost->load != ALG_LOAD_WHOLE)
        return true;
    return cost->crossings == 1 && bytes <= (four ? 8.0 : 4.0) * MIB;
}

/* NCCL's start over PCIe, below the shortest published times of short calls (8.3 us on 2 GPUs, 13.6 on 4, 36 on 8;
 * selector/measured/published-pcie.csv). 0: none are published. */
double sel_cost_pcie_start(alg_collective_t collective, double nranks)
{
    const bool published = NCCL[collective] == &ALL_REDUCE || NCCL[collective] == &FROM_ALL;
    return published ? 3.8 + 2.2 * nranks : 0;
}

static double nccl_time(const sel_topology_t *topology, alg_collective_t collective, double bytes)
{
    const nccl_cost_t *cost = NCCL[collective];
    const double nranks = topology->nranks, load = load_of(cost->load, nranks) * bytes / rate_of(topology).most;
    const bool guess = topology->link >= SEL_LINK_PCIE && !tuned(topology);
    const double published = guess ? sel_cost_pcie_start(collective, nranks) : 0;
    double start = cost->soon + cost->soon_a_rank * nranks;
    start = start > published ? start : published;
    const double soon = start + load / cost->soon_part, full = cost->full + load / cost->full_part;
    return (soon < full ? soon : full) + cost->crossings * delay_of(topology).nccl;
}

uint64_t sel_cost_bound(uint32_t index)
{
    const uint64_t octave = KIB << index / 2;
    return (index % 2 ? octave * 181 / 128 : octave) + 1; /* the round size ends a band, as in a table */
}

/* Most bytes for few blocks. From 1 MiB on, more are clearly faster; messages need 64 from 128 KiB on, for both
 * directions of a link. */
uint64_t sel_usual_few(alg_collective_t collective)
{
    return collective == ALG_SEND_RECV ? 64 * KIB : MIB;
}

/* Few blocks leave multiprocessors to the program's kernels. */
sel_choice_t sel_usual_grid(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes)
{
    if (topology->link == SEL_LINK_CPU)
        return (sel_choice_t){.blocks = 1, .threads = 1};
    if (topology->memory != ALG_MEMORY_PEER)
        return (sel_choice_t){.blocks = 16, .threads = 512};
    return (sel_choice_t){.blocks = bytes <= sel_usual_few(collective) ? 32 : 64, .threads = 1024};
}

/* The fastest algorithm, or `only`, if faster than *time. If calls may be forwarded, it must have run (has_run). */
static const alg_algorithm_t *fastest_of(const sel_topology_t *topology, const alg_map_t *map,
                                         alg_collective_t collective, uint64_t bytes, const alg_algorithm_t *only,
                                         bool may_forward, double *time)
{
    const bool known = rate_of(topology).sure > 0;
    const alg_algorithm_t *fastest = NULL;
    if (topology->memory == ALG_MEMORY_PINNED)
        return sel_cost_pinned_fastest(topology, map, collective, bytes, only, time);
    for (uint32_t i = 0; known && i < alg_registry_count; i++) {
        const alg_algorithm_t *algorithm = alg_registry[i];
        const alg_cost_t *cost = &algorithm->cost;
        if (algorithm->collective != collective || algorithm->memory != ALG_MEMORY_PEER || cost->part == 0 ||
            (only && only != algorithm) || (may_forward && !has_run(topology, cost, (double)bytes)))
            continue;
        const double one = own_time(topology, cost, (double)bytes);
        if (one < *time && bytes <= algorithm->max_bytes(map, topology->nranks, ALG_FLOAT32)) {
            *time = one;
            fastest = algorithm;
        }
    }
    return fastest;
}

const alg_algorithm_t *sel_cost_fastest(const sel_topology_t *topology, const alg_map_t *map,
                                        alg_collective_t collective, uint64_t bytes, double *time)
{
    return fastest_of(topology, map, collective, bytes, NULL, false, time);
}

double sel_cost_to_beat(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes)
{
    const bool pinned = topology->memory == ALG_MEMORY_PINNED, peers = pinned ? topology->peers : true;
    const bool sure = topology->link < SEL_LINK_PCIE || tuned(topology) || !peers;
    if (!pinned && rate_of(topology).sure == 0)
        return 0;
    return (pinned ? sel_cost_pinned_nccl(topology, collective, bytes)
                   : nccl_time(topology, collective, (double)bytes)) /
           (sure && topology->arch <= NEWEST_MEASURED ? LEAD : UNTUNED_LEAD);
}

static const alg_algorithm_t *leader(const sel_topology_t *topology, const alg_map_t *map, alg_collective_t collective,
                                     uint64_t bytes, const alg_algorithm_t *only)
{
    double time = sel_cost_to_beat(topology, collective, bytes);
    return fastest_of(topology, map, collective, bytes, only, true, &time);
}

static uint64_t band_end(uint64_t bytes)
{
    for (uint32_t i = 0; i < SEL_COST_BOUNDS; i++) {
        if (bytes < sel_cost_bound(i))
            return sel_cost_bound(i) - 1;
    }
    return UINT64_MAX;
}

sel_choice_t sel_cost_choose(const sel_topology_t *topology, const alg_map_t *map, alg_collective_t collective,
                             uint64_t bytes)
{
    sel_choice_t choice = sel_usual_grid(topology, collective, bytes);
    const alg_algorithm_t *late = NULL;
    if (topology->memory != ALG_MEMORY_NETWORK)
        late = leader(topology, map, collective, band_end(bytes), NULL);
    if (late)
        choice.algorithm = leader(topology, map, collective, bytes, late);
    return choice;
}
