/* SPDX-License-Identifier: Apache-2.0 */
/* cost_pinned.c - the predicted time of a collective through pinned memory: its start, its crossings, and a GPU's
 * writes and reads over its PCIe link. Shunt's times are fitted to selector/measured/shm-*-2-h200.csv. NCCL's, for
 * a ring through shared memory, are set below those on 2 and 4 H200 with NCCL_P2P_DISABLE=1 (same files, and
 * selector/measured/shm-nccl-4-h200.csv). If the GPUs also reach each other (memory.c), NCCL takes the better path. */
#include "selector/cost.h"

#include <stddef.h>

/* Rates in bytes per us; a time in us. */
typedef struct pcie {
    double store, load, one_way;
} pcie_t;

/* A crossing takes 1.66 us on H200; 2.2 includes the later start without dependent launch. */
static const pcie_t SLOW = {10e3, 8e3, 2.2}, PCIE_4 = {15e3, 15e3, 2.2}; /* 16 lanes, all GPUs active */
static const pcie_t FAST = {25e3, 25e3, 1.2}, FAST_NEW = {50e3, 50e3, 1.2};

static pcie_t ours_of(const sel_topology_t *topology)
{
    const sel_pinned_measured_t *pinned = &topology->pinned;
    if (pinned->store_bytes_per_us)
        return (pcie_t){pinned->store_bytes_per_us, pinned->load_bytes_per_us, pinned->one_way_ns * 1e-3};
    if (!topology->peers)
        return SLOW;
    /* GPUs below a switch share its link. */
    const double part = topology->link == SEL_LINK_PCIE ? 1.0 / topology->nranks : 1;
    return (pcie_t){part * PCIE_4.store, part * PCIE_4.load, PCIE_4.one_way};
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Fewer GPUs than were measured may each get a higher rate. */
static pcie_t pcie_of_nccl(const sel_topology_t *topology)
{
    const pcie_t fast = topology->arch >= 90 ? FAST_NEW : FAST;
    const double peers = topology->peers ? topology->measured.bytes_per_us : 0;
    pcie_t p = topology->pinned.store_bytes_per_us ? ours_of(topology) : fast;
    if (topology->nranks < topology->pinned.gpus)
        p = (pcie_t){larger(p.store, fast.store), larger(p.load, fast.load), p.one_way};
    return (pcie_t){larger(p.store, peers), larger(p.load, peers), p.one_way};
}

/* Bytes that the busiest GPU writes and reads, per byte of a rank's larger buffer; hops of NCCL's ring. */
typedef struct traffic {
    double write, read;
    double hops;
} traffic_t;

static traffic_t traffic_of(alg_collective_t collective, double n)
{
    const double part = 1 / n, rest = (n - 1) / n;
    switch (collective) {
    case ALG_ALL_REDUCE:
        return (traffic_t){1, n - 1, 2 * (n - 1)};
    case ALG_REDUCE:
        return (traffic_t){1, n - 1, n - 1};
    case ALG_BROADCAST:
        return (traffic_t){1, 1, n - 1};
    case ALG_ALL_GATHER:
        return (traffic_t){part, rest, n - 1};
    case ALG_GATHER:
        return (traffic_t){part, rest, 1};
    case ALG_SCATTER:
        return (traffic_t){rest, part, 1};
    case ALG_ALL_TO_ALL:
        return (traffic_t){rest, rest, 1};
    case ALG_SEND_RECV: /* at worst, an equally long message is received */
        return (traffic_t){1, 1, 1};
    default:
        return (traffic_t){rest, rest, n - 1};
    }
}

/* One crossing of marked data (4/3 of the bytes): write, then read. */
static double oneshot_time(const pcie_t *p, alg_collective_t collective, double n, double bytes)
{
    const traffic_t t = traffic_of(collective, n);
    return 1.4 + p->one_way + 4.0 / 3 * bytes * (t.write / p->store + t.read / p->load);
}

static double twoshot_time(const pcie_t *p, double n, double bytes)
{
    return 1.4 + 2 * p->one_way + 4.0 / 3 * bytes * (1 / p->store + 2 * (n - 1) / n / p->load);
}

/* Unmarked data, written and read concurrently. Gathered sums cross once more. */
static double staged_time(const pcie_t *p, alg_collective_t collective, double n, double bytes)
{
    const bool sums = collective == ALG_ALL_REDUCE || collective == ALG_REDUCE;
    const traffic_t t = sums ? (traffic_t){1, 2 * (n - 1) / n, 0} : traffic_of(collective, n);
    const double write = t.write / p->store, read = t.read / p->load;
    return (sums ? 10 : 6) + (sums ? 2 : 1) * 2 * p->one_way + bytes * (write > read ? write : read) / 0.62;
}

/* A ring buffer is polled and re-armed over PCIe. */
static double pairs_time(const pcie_t *p, double bytes)
{
    const double rate = p->store < p->load ? p->store : p->load;
    return 2.4 + p->one_way + bytes / (0.2 * rate);
}

double sel_cost_pinned_nccl(const sel_topology_t *topology, alg_collective_t collective, uint64_t bytes)
{
    const pcie_t p = pcie_of_nccl(topology);
    const double n = topology->nranks;
    const traffic_t t = traffic_of(collective, n);
    const double rate = p.store < p.load ? p.store : p.load, ring = 2 * (n - 1) / n;
    const double load = (collective == ALG_ALL_REDUCE ? ring
                         : collective == ALG_REDUCE   ? 1
                                                      : larger(t.write, t.read)) *
                        (double)bytes / rate;
    double start = 4.5 + p.one_way * t.hops;
    if (topology->peers && !topology->pinned.store_bytes_per_us) /* the published times are for both paths */
        start = larger(start, sel_cost_pcie_start(collective, n));
    const double soon = start + load / 0.45, full = 20 + p.one_way * t.hops + load;
    return soon < full ? soon : full;
}

const alg_algorithm_t *sel_cost_pinned_fastest(const sel_topology_t *topology, const alg_map_t *map,
                                               alg_collective_t collective, uint64_t bytes, const alg_algorithm_t *only,
                                               double *time)
{
    const pcie_t p = ours_of(topology);
    const double n = topology->nranks, size = (double)bytes;
    if (topology->arch < 80)
        return NULL;
    const struct {
        const char *name;
        double time;
    } own[] = {{"shm-oneshot", oneshot_time(&p, collective, n, size)},
               {"shm-twoshot", twoshot_time(&p, n, size)},
               {"shm-staged", staged_time(&p, collective, n, size)},
               {"shm-pairs", pairs_time(&p, size)}};
    const alg_algorithm_t *fastest = NULL;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        const alg_algorithm_t *algorithm = alg_find(collective, own[i].name);
        const bool asked = algorithm && (!only || only == algorithm);
        if (asked && own[i].time < *time && bytes <= algorithm->max_bytes(map, topology->nranks, ALG_FLOAT32)) {
            *time = own[i].time;
            fastest = algorithm;
        }
    }
    return fastest;
}
