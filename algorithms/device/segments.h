/* SPDX-License-Identifier: Apache-2.0 */
/* segments.h - a call's kernels: one, or if a rank's block does not fit the scratch, one per segment. */
#ifndef SHUNT_SEGMENTS_H
#define SHUNT_SEGMENTS_H

#include "algorithms/device/buffers.h"
#include "algorithms/device/grid.h"
#include "algorithms/device/kernel_call.h"
#include "algorithms/device/series.h"

static inline kernel_call_t kernel_call_make(const alg_call_t &call)
{
    kernel_call_t k = {};
    k.collective = call.collective;
    k.root = call.root;
    k.input = call.input;
    k.output = call.output;
    k.count = call.count;
    k.type = call.type;
    k.op = call.op;
    k.scalar_pointer = call.scalar_pointer;
    k.scalar_bits = call.scalar_bits;
    k.blocks = call.blocks;
    k.threads = LANE_MOST_THREADS > 1 ? call.threads : 1;
    k.stride = call.count * alg_type_bytes(call.type);
    k.all_bytes = UINT64_MAX;
    k.grid_blocks = grid_blocks(&call);
    k.sure_blocks = call.sure_blocks > 0 ? call.sure_blocks : k.grid_blocks;
    k.early = call.early;
    return k;
}

static inline kernel_call_t kernel_call_make_bytes(const alg_call_t &call)
{
    kernel_call_t k = kernel_call_make(call);
    k.count = k.stride;
    k.type = ALG_UINT8;
    return k;
}

/* Bytes of a segment: whole pages, or `most`; the last may be shorter. */
static inline uint64_t segments_bytes(uint64_t bytes, uint64_t most)
{
    const uint64_t page = 4096, segments = (bytes - 1) / most + 1;
    uint64_t segment = (bytes + segments - 1) / segments;
    segment = segments > 1 ? (segment + page - 1) / page * page : bytes;
    return segment < most ? segment : most;
}

/* The kernel serves roots first..last of a series, if its collective has series. Slots of broadcasts then have `most`
 * bytes. */
static inline void kernel_call_set_series(kernel_call_t &call, uint32_t first, uint32_t last, uint64_t most)
{
    call.series = series_of(call.collective, first, last);
    if (call.series && call.collective == ALG_BROADCAST)
        call.slot_vectors = (uint32_t)(most / VEC);
}

/* most: bytes of a rank's block that a segment may have. */
template <class F> static int segments_launch(const kernel_call_t &whole, uint64_t most, F launch)
{
    const uint64_t width = alg_type_bytes(whole.type), bytes = whole.count * width;
    const uint64_t step = segments_bytes(bytes, most);
    int error = 0;
    for (uint64_t at = 0; at < bytes && error == 0; at += step) {
        const uint64_t left = bytes - at, length = left < step ? left : step;
        kernel_call_t segment = whole;
        segment.input = whole.input ? (const uint8_t *)whole.input + at : NULL;
        segment.output = whole.output ? (uint8_t *)whole.output + at : NULL;
        segment.count = length / width;
        segment.all_bytes = whole.all_bytes - at;
        segment.slot_vectors = buffer_vectors(length);
        if (length == bytes)
            kernel_call_set_series(segment, whole.root, whole.root, most);
        error = launch(segment);
    }
    return error;
}

#endif
