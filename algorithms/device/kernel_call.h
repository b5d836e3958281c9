/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_call.h - the call or segment that one kernel serves: the same range of every rank's block (launch.h). */
#ifndef SHUNT_KERNEL_CALL_H
#define SHUNT_KERNEL_CALL_H

#include "algorithms/device/lane.h"

/* Where calls without a root have their slots: those of call e begin first + (e & mask) * step vectors after half 0. */
typedef struct turns {
    uint32_t first, step, mask;
} turns_t;

/* As in alg_call_t, unless said otherwise. */
typedef struct kernel_call {
    alg_collective_t collective;
    uint32_t root;
    const void *input; /* the segment of the first rank's block */
    void *output;
    uint64_t count; /* elements, or bytes if the algorithm moves data */
    alg_type_t type;
    alg_op_t op;
    const void *scalar_pointer;
    uint64_t scalar_bits;
    uint32_t blocks;
    uint32_t threads;
    uint64_t stride;    /* between ranks' blocks */
    uint64_t all_bytes; /* bulk/: from `input` to the end of all blocks */
    uint32_t slot_vectors;
    turns_t turns; /* with HAS_PLACES (places.h) */
    uint32_t series;
    uint32_t grid_blocks;
    uint32_t sure_blocks; /* how many of grid_blocks surely fit on the GPU */
    uint32_t early;
} kernel_call_t;

/* Whether all vectors are complete and aligned. Ranks may differ: data on the link does not depend on it. */
static inline bool kernel_call_is_whole(const kernel_call_t &call)
{
    const uint64_t bytes = call.count * alg_type_bytes(call.type);
    return ((uintptr_t)call.input | (uintptr_t)call.output | bytes | call.stride) % VEC == 0;
}

/* The call that the lane's block serves; parts.h and list.h overload it. */
LANE_FN const kernel_call_t &kernel_call_of(const kernel_call_t &call, lane_t &)
{
    return call;
}

#endif
