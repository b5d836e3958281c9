/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor.h - the floor of a collective on this machine: the least time of any kernel that uses its links.
 *
 * t0       1 KB pushed from every GPU to every other one and added, by a minimal kernel: no call number, no abort
 *          check, one size and type (floor_cuda.cu). It contains the launch, one crossing and two trips to memory
 * one way  from one GPU's store of a word until another GPU sees it
 * B        bytes a second out of the slowest GPU while all GPUs copy to all others with the copy engines, which are
 *          faster than any kernel's stores
 * S        bytes of a rank's larger buffer
 *
 * All-reduce: the smaller one of
 *   one-shot  t0 + (n-1) S / B             everything crosses once
 *   two-shot  t0 + one way + 2 (n-1)/n S/B  a slice to its owner, its sum to all
 * reduce and broadcast: the smaller one of
 *   at once   t0 + (n-1) S / B             out of the root, or into it
 *   passed on t0 + one way + S / B         by way of the others
 * sendrecv: t0 + S / B
 * where every rank has a block: t0 + (n-1)/n S / B.
 * Eagerly it is at least the time in which this host can launch an empty kernel.
 *
 * NVLink multicast, which adds inside the switch, has another floor.
 */
#ifndef SHUNT_TOOL_FLOOR_H
#define SHUNT_TOOL_FLOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithms/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TOOL_FLOOR_GPUS = 8, TOOL_FLOOR_ERROR_BYTES = 256 };

/* Seconds, but for the bandwidth. */
typedef struct tool_floor {
    double launch_graph; /* one empty kernel of a graph of them */
    double launch_eager; /* one empty kernel of many launched one by one */
    double push;         /* t0 */
    double one_way;
    double bandwidth; /* bytes a second */
    /* Through the host's memory (floor_host.cu), which needs no access between the GPUs; 0: not measured. */
    double host_one_way;
    double host_store, host_load;       /* bytes a second of the slowest GPU, by kernels, all GPUs at once */
    char error[TOOL_FLOOR_ERROR_BYTES]; /* why it could not be measured; "" if it was */
} tool_floor_t;

/* Measure GPUs 0 to gpus-1, at least 2, from this process, which frees nothing and should end soon. Errors go to
 * floor->error. */
void tool_floor_measure(uint32_t gpus, tool_floor_t *floor);
/* The part through the host's memory. False: see floor->error. */
bool tool_floor_host(uint32_t gpus, tool_floor_t *floor);

/* The least time of a collective of this many bytes. */
double tool_floor_seconds(const tool_floor_t *floor, alg_collective_t collective, uint32_t gpus, bool graph,
                          uint64_t bytes);

/* Launch one empty kernel on a stream of the current device: the least that a launch costs. A cudaError_t. */
int tool_floor_launch(void *stream);

#ifdef __cplusplus
}
#endif

#endif
