/*
 * topology.h - what machine this is: its class, by which the table is searched,
 * and its fingerprint, which says whose figures a tuned table holds.
 *
 * The class says how the ranks of one communicator are linked; the fingerprint
 * says of what kind the machine is, whichever of its GPUs a communicator takes.
 * A row of a tuned table applies where both agree.
 */
#ifndef SHUNT_TOPOLOGY_H
#define SHUNT_TOPOLOGY_H

#include "selector/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SEL_CLASS_BYTES = 32, SEL_GPU_NAME_BYTES = 64 };

/* "nvswitch-sm90-4": link, architecture, ranks; "-mc" where the real NCCL has NVLink multicast;
 * "host-4" for the host device. */
void sel_topology_class(const sel_topology_t *topology, char out[SEL_CLASS_BYTES]);

/* The link of a set of pairs, from those of two parts of it: equal ones stay, NVLink and anything else
 * give SEL_LINK_BRIDGES, of two without NVLink the worse holds. Commutative and associative. */
sel_link_t sel_link_join(sel_link_t a, sel_link_t b);

/* What of a GPU makes figures; no serial number, no place. */
typedef struct sel_gpu_kind {
    char name[SEL_GPU_NAME_BYTES];
    uint32_t arch; /* 10 * major + minor */
    uint32_t multiprocessors;
    uint64_t memory_bytes; /* counts in whole GiB: equal GPUs differ by a few pages */
    uint32_t nvlinks;      /* active ones, wherever they lead */
    uint32_t driver;       /* the driver's CUDA version, 13000 for 13.0: it tells driver branches apart */
} sel_gpu_kind_t;

/* Never 0. */
uint64_t sel_gpu_fingerprint(const sel_gpu_kind_t *kind);
/* Of the GPUs of a communicator: the set of kinds, so neither their number nor their order counts. */
uint64_t sel_fingerprint(const uint64_t *gpu, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
