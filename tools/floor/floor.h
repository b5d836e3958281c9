/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor.h - the floor of a collective on this machine: a lower bound for the time of any kernel that uses the links.
 *
 * t0       1 KB pushed from every GPU to every other one and added, by a minimal kernel without call number and abort
 *          check (floor_cuda.cu): the launch, one crossing and two trips to memory
 * one way  from one GPU's store of a word until another GPU sees it
 * B        bytes a second out of the slowest GPU while copy engines, faster than any stores, copy from all to all
 * S        bytes of a rank's larger buffer
 *
 * all-reduce         one-shot  t0 + (n-1) S / B
 *                    two-shot  t0 + one way + 2 (n-1)/n S / B
 * reduce, broadcast  at once   t0 + (n-1) S / B: out of the root, or into it
 *                    passed on t0 + one way + S / B: by way of the others
 * sendrecv                     t0 + S / B
 * others                       t0 + (n-1)/n S / B
 *
 * Where two ways are listed, the faster one is the floor. An eager call takes at least as long as this host's launch of
 * an empty kernel. NVLink multicast, which adds inside the switch, has another floor.
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

/* All times are in seconds. */
typedef struct tool_floor {
    double launch_graph; /* an empty kernel in a graph of many */
    double launch_eager; /* an empty kernel, launched one by one */
    double push;         /* t0 */
    double one_way;
    double bandwidth; /* bytes a second */
    /* Through pinned memory (floor_pinned.cu), without peer access; 0: not measured. */
    double pinned_one_way;
    double pinned_store, pinned_load;   /* bytes a second of the slowest GPU, with kernels on all */
    char error[TOOL_FLOOR_ERROR_BYTES]; /* why it could not be measured; "": it was */
} tool_floor_t;

/* Measures GPUs 0 to gpus-1, at least two. Frees nothing: the process should end soon. Errors are in floor->error. */
void tool_floor_measure(uint32_t gpus, tool_floor_t *floor);
/* False: see floor->error. */
bool tool_floor_pinned(uint32_t gpus, tool_floor_t *floor);

double tool_floor_seconds(const tool_floor_t *floor, alg_collective_t collective, uint32_t gpus, bool graph,
                          uint64_t bytes);

/* Launches an empty kernel on the current device's `stream`. A cudaError_t. */
int tool_floor_launch(void *stream);

#ifdef __cplusplus
}
#endif

#endif
