/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.h - the caller's buffers as vectors of 16 bytes, of any alignment and length.
 *
 * Vector v is bytes 16v to 16v+15 of a buffer, so ranks cut buffers alike. A short last vector reads as if zeros
 * followed; nothing is written behind it. A buffer has fewer than 2^32 vectors (64 GiB). */
#ifndef SHUNT_BUFFERS_H
#define SHUNT_BUFFERS_H

#include "algorithms/device/lane.h"

typedef struct buffer {
    uint8_t *base;
    uint64_t bytes;
    uint32_t whole; /* leading vectors that are complete and aligned */
} buffer_t;

LANE_FN buffer_t buffer_make(const void *base, uint64_t bytes)
{
    return buffer_t{(uint8_t *)base, bytes, (uintptr_t)base % VEC == 0 ? (uint32_t)(bytes / VEC) : 0u};
}

LANE_HOST_FN uint32_t buffer_vectors(uint64_t bytes)
{
    return (uint32_t)((bytes + VEC - 1) / VEC);
}

/* ---- Short or unaligned vectors. E: an unsigned type with an element's width and alignment */

LANE_FN uint32_t buffer_shift(uint32_t lo, uint32_t hi, uint32_t bytes)
{
    return (uint32_t)(((uint64_t)hi << 32 | lo) >> (8 * bytes));
}

/* The aligned words around a vector end inside the buffer if a word follows the vector. */
enum { BUFFER_WORD = 4 };

/* Loads the aligned words around the vector, up to 3 bytes before the buffer, and ignores the bytes beside it: in
 * place, other lanes may be storing these. */
template <class E> LANE_FN vec16_t buffer_load_words(const uint8_t *p)
{
    constexpr bool ALIGNED = sizeof(E) >= BUFFER_WORD;
    const uint32_t head = ALIGNED ? 0 : (uint32_t)((uintptr_t)p % BUFFER_WORD);
    uint32_t w[5] = {0, 0, 0, 0, 0};
    LANE_UNROLL
    for (int i = 0; i < (ALIGNED ? 4 : 5); i++)
        w[i] = lane_load_word(p - head + BUFFER_WORD * i);
    vec16_t x;
    LANE_UNROLL
    for (int i = 0; i < 4; i++)
        x.w[i] = buffer_shift(w[i], w[i + 1], head);
    return x;
}

/* Stores aligned words, and elements at both ends: other lanes store the bytes beside the vector. */
template <class E> LANE_FN void buffer_store_words(uint8_t *p, const vec16_t &x)
{
    if constexpr (sizeof(E) >= BUFFER_WORD) {
        LANE_UNROLL
        for (int i = 0; i < 4; i++)
            lane_store_part(p + BUFFER_WORD * i, x.w[i]);
    } else {
        const uint32_t head = (uint32_t)(-(uintptr_t)p % BUFFER_WORD);
        LANE_UNROLL
        for (int i = 0; i < 3; i++)
            lane_store_part(p + head + BUFFER_WORD * i, buffer_shift(x.w[i], x.w[i + 1], head));
        LANE_UNROLL
        for (uint32_t at = 0; at < BUFFER_WORD; at += sizeof(E)) {
            if (at < head)
                lane_store_part(p + at, (E)(x.w[0] >> 8 * at));
            else
                lane_store_part(p + at + 12, (E)(x.w[3] >> 8 * at));
        }
    }
}

template <class E> LANE_COLD_FN vec16_t buffer_load_last(const uint8_t *p, uint64_t rest)
{
    E e[VEC / sizeof(E)];
    LANE_UNROLL
    for (uint32_t i = 0; i < VEC / sizeof(E); i++)
        e[i] = i * sizeof(E) < rest ? ((const E *)p)[i] : (E)0;
    vec16_t x;
    memcpy(x.w, e, VEC);
    return x;
}

template <class E> LANE_COLD_FN void buffer_store_last(uint8_t *p, uint64_t rest, vec16_t x)
{
    E e[VEC / sizeof(E)];
    memcpy(e, x.w, VEC);
    LANE_UNROLL
    for (uint32_t i = 0; i < VEC / sizeof(E); i++) {
        if (i * sizeof(E) < rest)
            lane_store_part(p + i * sizeof(E), e[i]);
    }
}

LANE_FN vec16_t buffer_load_whole(const buffer_t &b, uint32_t v)
{
    return lane_load(b.base + (uint64_t)v * VEC);
}

LANE_FN vec16_t buffer_load_whole_if(bool wanted, const buffer_t &b, uint32_t v, const void *dummy)
{
    return lane_load_if(wanted, b.base + (uint64_t)v * VEC, dummy);
}

LANE_FN void buffer_store_whole(const buffer_t &b, uint32_t v, const vec16_t &x)
{
    lane_store(b.base + (uint64_t)v * VEC, x);
}

template <class E> LANE_FN vec16_t buffer_load(const buffer_t &b, uint32_t v)
{
    if (v < b.whole)
        return buffer_load_whole(b, v);
    const uint64_t at = (uint64_t)v * VEC, rest = b.bytes - at;
    return rest >= VEC + BUFFER_WORD ? buffer_load_words<E>(b.base + at) : buffer_load_last<E>(b.base + at, rest);
}

template <class E> LANE_FN void buffer_store(const buffer_t &b, uint32_t v, const vec16_t &x)
{
    const uint64_t at = (uint64_t)v * VEC, rest = b.bytes - at;
    if (v < b.whole)
        buffer_store_whole(b, v, x);
    else if (rest >= VEC)
        buffer_store_words<E>(b.base + at, x);
    else
        buffer_store_last<E>(b.base + at, rest, x);
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
