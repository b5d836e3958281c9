/*
 * cost.c - what an all-reduce probably takes on machines that nobody has
 * measured.
 *
 * A call costs its start, and the bytes that leave a GPU over what the link
 * carries. The floors are those of docs/kernels.md; how far above them each
 * algorithm stays, and what the real NCCL takes, was fitted to
 * docs/results/graph-{2,3,4}-h200.csv; of other machines, only the link is known:
 * what the tuned table says that it carries, or else its nominal rate. A wrong
 * guess costs more than a missed gain, so an algorithm is trusted only with a
 * clear lead, and nothing is said of links that we know little about.
 */
#include "selector/cost.h"

#include <stddef.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* How much better than the real NCCL an algorithm must look. */
#define LEAD 1.15

/* A word's way between two GPUs, in us, where the starts below were fitted: docs/results/graph-4-h200.csv. */
#define FITTED_ONE_WAY 0.80

/* ---- Times in us, rates in bytes per us (GB/s * 1000) ----------------------------------- */

typedef struct link_rate {
    double sure; /* what our stores surely get */
    double most; /* what the real NCCL may get */
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
    /* The real NCCL may find a ring that shares less of what lies between them. */
    return (link_rate_t){rate, rate > whole ? rate : whole};
}

/* What copies get out of one GPU: 390 GB/s was measured on sm_90; the others are as much of their nominal rate. */
static link_rate_t rate_of(const sel_topology_t *topology)
{
    const double whole = topology->arch >= 100 ? 780e3 : topology->arch >= 90 ? 390e3 : 260e3;
    if (topology->arch < 80)
        return (link_rate_t){0, 0};
    if (topology->measured.bytes_per_us)
        return measured_rate(topology, whole);
    if (topology->link == SEL_LINK_NVSWITCH)
        return (link_rate_t){whole, whole};
    /* Links of its own for every pair: one at least. */
    if (topology->link == SEL_LINK_MESH)
        return (link_rate_t){22e3, whole};
    return (link_rate_t){0, 0};
}

/* How much longer than there a word takes here. */
static double late_of(const sel_topology_t *topology)
{
    return topology->measured.bytes_per_us ? topology->measured.one_way_ns * 1e-3 - FITTED_ONE_WAY : 0;
}

/* To enter a kernel, tell every peer, and hear from it. */
static double start_of(uint32_t nranks)
{
    return 1.6 + 0.1 * nranks;
}

static double oneshot(uint32_t nranks, double bytes, double rate)
{
    return start_of(nranks) + (nranks - 1) * bytes / (0.74 * rate);
}

/* Scatter and gather: what each GPU sends in units of the message. */
static double twice(uint32_t nranks)
{
    return 2.0 * (nranks - 1) / nranks;
}

static double twoshot(uint32_t nranks, double bytes, double rate)
{
    return start_of(nranks) + 0.9 + twice(nranks) * bytes / (0.79 * rate);
}

static double staged(uint32_t nranks, double bytes, double rate)
{
    return start_of(nranks) + 7.0 + twice(nranks) * bytes / (0.82 * rate);
}

/* Two protocols: one that starts soon, one that fills the link. */
static double nccl(uint32_t nranks, double bytes, double rate)
{
    const double soon = 2.2 + 1.75 * nranks + twice(nranks) * bytes / (0.49 * rate);
    const double full = 20.0 + twice(nranks) * bytes / (0.865 * rate);
    return soon < full ? soon : full;
}

static const struct {
    const char *name;
    double (*time)(uint32_t nranks, double bytes, double rate);
    int crossings; /* one after the other */
} ALGORITHMS[] = {{"oneshot", oneshot, 1}, {"twoshot", twoshot, 2}, {"staged", staged, 2}};
enum { NCCL_CROSSINGS = 2 }; /* of two ranks; more of them only make it later */

/* ---- The choice --------------------------------------------------------------------------- */

uint64_t sel_cost_bound(uint32_t index)
{
    const uint64_t octave = KIB << index / 2;
    return (index % 2 ? octave * 181 / 128 : octave) + 1; /* like the rows of a table: up to a round size */
}

/* Few blocks leave room for the program's own kernels; from 1 MiB on more of them carry clearly more. */
sel_choice_t sel_usual_grid(const sel_topology_t *topology, uint64_t bytes)
{
    if (topology->link == SEL_LINK_HOST)
        return (sel_choice_t){.blocks = 1, .threads = 1};
    return (sel_choice_t){.blocks = bytes <= MIB ? 32 : 64, .threads = 1024};
}

sel_choice_t sel_cost_choose(const sel_topology_t *topology, const alg_map_t *map, uint64_t bytes)
{
    const link_rate_t rate = rate_of(topology);
    sel_choice_t choice = sel_usual_grid(topology, bytes);
    if (rate.sure == 0)
        return choice;
    const double late = late_of(topology);
    double best = (nccl(topology->nranks, (double)bytes, rate.most) + NCCL_CROSSINGS * late) / LEAD;
    for (size_t i = 0; i < sizeof ALGORITHMS / sizeof ALGORITHMS[0]; i++) {
        const alg_algorithm_t *algorithm = alg_find(ALG_ALL_REDUCE, ALGORITHMS[i].name);
        const double time =
            ALGORITHMS[i].time(topology->nranks, (double)bytes, rate.sure) + ALGORITHMS[i].crossings * late;
        if (algorithm && time < best && bytes <= algorithm->max_bytes(map, topology->nranks, ALG_FLOAT32)) {
            best = time;
            choice.algorithm = algorithm;
        }
    }
    return choice;
}
