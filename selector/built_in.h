/* SPDX-License-Identifier: Apache-2.0 */
/* built_in.h - the built-in table's rows. */
#ifndef SHUNT_BUILT_IN_H
#define SHUNT_BUILT_IN_H

#include "selector/selector.h"

/* Rows of a collective and class rise in size. The first with to_bytes not below a size applies. */
typedef struct sel_built_in {
    alg_collective_t collective;
    const char *class_name; /* as sel_topology_class, without multicast; "host": any ranks; "shm-4": any architecture */
    uint64_t to_bytes;
    const char *algorithm; /* or "nccl"; names that the registry lacks are ignored */
    uint16_t blocks, threads;
    const char *source; /* the benchmark */
} sel_built_in_t;

extern const sel_built_in_t sel_built_in[];
extern const uint32_t sel_built_in_count;

enum { SEL_BUILT_IN_MOST = 12 /* of a collective and class */ };

#endif
