/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark.h - how a value shows that it has arrived.
 *
 * Scratch is all-ones before a peer's value lands there, so a sent value must
 * never be all-ones:
 *
 *   MARK_WORD    floats up to 32 bits: a word of all-ones is one or more NaNs, and
 *                becomes another NaN by losing its top bit.
 *   MARK_DOUBLE  fp64: the same with 8 bytes.
 *   MARK_ESCAPE  integers use every pattern: words of all-ones travel as ESCAPED, and
 *                a vector with such a word is followed by an escape word that tells
 *                which words were all-ones.
 */
#ifndef SHUNT_MARK_H
#define SHUNT_MARK_H

#include "algorithms/device/lane.h"

typedef enum mark { MARK_WORD, MARK_DOUBLE, MARK_ESCAPE } mark_t;

LANE_HOST_FN constexpr mark_t mark_of(int type)
{
    return type == ALG_FLOAT64 ? MARK_DOUBLE
           : type == ALG_FLOAT16 || type == ALG_FLOAT32 || type == ALG_BFLOAT16 || type == ALG_FLOAT8_E4M3 ||
                   type == ALG_FLOAT8_E5M2
               ? MARK_WORD
               : MARK_ESCAPE;
}

static const uint32_t ESCAPED = SENTINEL - 1;

/* The greatest word: SENTINEL or ESCAPED, if the vector has one. */
LANE_FN uint32_t mark_top(const vec16_t &v)
{
    const uint32_t low = v.w[0] > v.w[1] ? v.w[0] : v.w[1], high = v.w[2] > v.w[3] ? v.w[2] : v.w[3];
    return low > high ? low : high;
}

/* Make v fit to be sent. MARK_ESCAPE: returns the escape word: bit i says that word i was all-ones, bit 4 that the word
 * is valid; 0 if none is needed. */
template <mark_t MARK> LANE_FN uint32_t mark_clean(vec16_t &v)
{
    uint32_t escape = 0;
    if constexpr (MARK == MARK_DOUBLE) {
        LANE_UNROLL
        for (int i = 0; i < 4; i += 2) {
            if ((v.w[i] & v.w[i + 1]) == SENTINEL)
                v.w[i + 1] = SENTINEL >> 1;
        }
    } else if constexpr (MARK == MARK_WORD) {
        LANE_UNROLL
        for (int i = 0; i < 4; i++) {
            if (v.w[i] == SENTINEL)
                v.w[i] = SENTINEL >> 1;
        }
    } else if (mark_top(v) >= ESCAPED) {
        escape = 1u << 4;
        LANE_UNROLL
        for (int i = 0; i < 4; i++) {
            escape |= v.w[i] == SENTINEL ? 1u << i : 0;
            v.w[i] = v.w[i] == SENTINEL ? ESCAPED : v.w[i];
        }
    }
    return escape;
}

template <mark_t MARK> LANE_FN bool mark_arrived(const vec16_t &v)
{
    if (MARK == MARK_DOUBLE)
        return (v.w[0] & v.w[1]) != SENTINEL && (v.w[2] & v.w[3]) != SENTINEL;
    if (MARK == MARK_ESCAPE)
        return mark_top(v) != SENTINEL;
    return v.w[0] != SENTINEL && v.w[1] != SENTINEL && v.w[2] != SENTINEL && v.w[3] != SENTINEL;
}

/* The reverse, for a vector that has arrived. */
LANE_FN bool mark_escaped(const vec16_t &v)
{
    return mark_top(v) == ESCAPED;
}

LANE_FN void mark_unescape(vec16_t &v, uint32_t escape)
{
    LANE_UNROLL
    for (int i = 0; i < 4; i++) {
        if (escape >> i & 1)
            v.w[i] = SENTINEL;
    }
}

#endif
