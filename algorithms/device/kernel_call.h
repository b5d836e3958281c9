/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_call.h - a call as one of its kernels gets it: a segment, the same bytes of every block (segments.h), and what
 * the host has computed for it.
 */
#ifndef SHUNT_KERNEL_CALL_H
#define SHUNT_KERNEL_CALL_H

#include "algorithms/device/lane.h"

/* Slots of calls without a root: call number e has its at first + (e & last) * step from half 0, in vectors, which take
 * fewer registers than bytes. */
typedef struct turns {
    uint32_t first, step, last;
} turns_t;

/* Fields without a comment are as in alg_call_t. */
typedef struct kernel_call {
    alg_collective_t collective;
    uint32_t root;
    const void *input; /* the segment of the first block */
    void *output;
    uint64_t count; /* of the segment: elements; bytes in an algorithm that moves data */
    alg_type_t type;
    alg_op_t op;
    const void *scalar_pointer;
    uint64_t scalar_bits;
    uint32_t blocks;
    uint32_t threads;
    uint64_t stride;       /* bytes from one rank's block to the next */
    uint64_t all_bytes;    /* bulk/: from the first block's to the end of all; the last ones may be shorter */
    uint32_t slot_vectors; /* push/push_move.cu: length of a slot */
    turns_t turns;         /* places or halves, of algorithms with HAS_PLACES (places.h) */
    uint32_t series;       /* a broadcast's or reduce's place in a series (series.h); 0: in none */
    uint32_t grid_blocks;  /* of this rank's grid: `blocks`, or as many as its GPU has room for */
    uint32_t sure_blocks;  /* of these: all, or those that are sure to find places */
    uint32_t early;
} kernel_call_t;

/* Whether every vector is whole and aligned. Ranks may differ: what crosses the link does not depend on it. */
static inline bool kernel_call_is_whole(const kernel_call_t &call)
{
    const uint64_t bytes = call.count * alg_type_bytes(call.type);
    return ((uintptr_t)call.input | (uintptr_t)call.output | bytes | call.stride) % VEC == 0;
}

/* In an argument of several calls (parts.h): the one that the lane's block serves. */
LANE_FN const kernel_call_t &kernel_call_of(const kernel_call_t &call, lane_t &)
{
    return call;
}

#endif
