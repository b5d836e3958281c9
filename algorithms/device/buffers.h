/*
 * buffers.h - the caller's buffers as vectors of 16 bytes, whatever their
 * alignment and length.
 *
 * Vector v holds bytes 16v .. 16v+15 of the buffer, counted from its first
 * element, so ranks with differently aligned buffers agree on what a vector
 * is. The last one may be short: its rest reads as zero and is never written.
 * A buffer has fewer than 2^32 vectors (64 GiB).
 */
#ifndef SHUNT_BUFFERS_H
#define SHUNT_BUFFERS_H

#include "algorithms/device/lane.h"

typedef struct buffer {
    uint8_t *base;
    uint64_t bytes;
    uint32_t alignment; /* of base: 16, 4, or less, where elements move one by one */
} buffer_t;

LANE_FN buffer_t buffer_make(const void *base, uint64_t bytes)
{
    const uintptr_t address = (uintptr_t)base;
    return buffer_t{(uint8_t *)base, bytes, address % VEC == 0 ? 16u : address % 4 == 0 ? 4u : 1u};
}

LANE_HOST_FN uint32_t buffer_vectors(uint64_t bytes)
{
    return (uint32_t)((bytes + VEC - 1) / VEC);
}

/* What is not a whole aligned vector. E: an unsigned integer as wide as the type. */
template <class E> LANE_COLD_FN vec16_t buffer_load_slow(const uint8_t *p, uint64_t rest, uint32_t alignment)
{
    vec16_t x = {{0, 0, 0, 0}};
    if (rest >= VEC && alignment == 4) {
        LANE_UNROLL
        for (int i = 0; i < 4; i++)
            x.w[i] = ((const uint32_t *)p)[i];
        return x;
    }
    E e[VEC / sizeof(E)];
    LANE_UNROLL
    for (uint32_t i = 0; i < VEC / sizeof(E); i++)
        e[i] = i * sizeof(E) < rest ? ((const E *)p)[i] : (E)0;
    memcpy(x.w, e, VEC);
    return x;
}

template <class E> LANE_COLD_FN void buffer_store_slow(uint8_t *p, uint64_t rest, uint32_t alignment, vec16_t x)
{
    if (rest >= VEC && alignment == 4) {
        LANE_UNROLL
        for (int i = 0; i < 4; i++)
            ((uint32_t *)p)[i] = x.w[i];
        return;
    }
    E e[VEC / sizeof(E)];
    memcpy(e, x.w, VEC);
    LANE_UNROLL
    for (uint32_t i = 0; i < VEC / sizeof(E); i++) {
        if (i * sizeof(E) < rest)
            ((E *)p)[i] = e[i];
    }
}

template <class E> LANE_FN vec16_t buffer_load(const buffer_t &b, uint32_t v)
{
    const uint64_t at = (uint64_t)v * VEC;
    const uint8_t *p = b.base + at;
    const uint64_t rest = b.bytes - at;
    if (rest >= VEC && b.alignment == VEC)
        return lane_load(p);
    return buffer_load_slow<E>(p, rest, b.alignment);
}

template <class E> LANE_FN void buffer_store(const buffer_t &b, uint32_t v, const vec16_t &x)
{
    const uint64_t at = (uint64_t)v * VEC;
    uint8_t *p = b.base + at;
    const uint64_t rest = b.bytes - at;
    if (rest >= VEC && b.alignment == VEC)
        lane_store(p, x);
    else
        buffer_store_slow<E>(p, rest, b.alignment, x);
}

template <int BYTES> struct unsigned_of;
template <> struct unsigned_of<1> {
    typedef uint8_t type;
};
template <> struct unsigned_of<2> {
    typedef uint16_t type;
};
template <> struct unsigned_of<4> {
    typedef uint32_t type;
};
template <> struct unsigned_of<8> {
    typedef uint64_t type;
};

#endif
