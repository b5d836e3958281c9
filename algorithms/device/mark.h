/* SPDX-License-Identifier: Apache-2.0 */
/* mark.h - how a reader recognizes that a value has arrived. Scratch is all-ones before it arrives, so no value that
 * travels may be all-ones:
 *
 *   MARK_WORD    floats up to 32 bits: an all-ones word holds only NaN, and still does without its top bit
 *   MARK_DOUBLE  fp64: likewise, of 8 bytes
 *   MARK_ESCAPE  integers and moved data: each word travels xor WHITE. A word that becomes all-ones travels as ESCAPED,
 *                and a separate escape word names it */
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

/* Escapes cost time, and -1 is common. With WHITE only the rare 0xff9d7fd3 and 0xff9d7fd2 need them
 * (docs/lab/proofs.md). */
static const uint32_t WHITE = ~0xff9d7fd3u;

LANE_FN void mark_whiten(vec16_t &v)
{
    LANE_UNROLL
    for (int i = 0; i < 4; i++)
        v.w[i] ^= WHITE;
}

/* The greatest word: SENTINEL or ESCAPED if there is one. */
LANE_FN uint32_t mark_top(const vec16_t &v)
{
    const uint32_t low = v.w[0] > v.w[1] ? v.w[0] : v.w[1], high = v.w[2] > v.w[3] ? v.w[2] : v.w[3];
    return low > high ? low : high;
}

/* Makes a whitened vector with mark_top >= ESCAPED fit to send. Returns the escape word: bit 4, and bit i if word i was
 * all-ones. */
LANE_FN uint32_t mark_escape(vec16_t &v)
{
    uint32_t escape = 1u << 4;
    LANE_UNROLL
    for (int i = 0; i < 4; i++) {
        escape |= v.w[i] == SENTINEL ? 1u << i : 0;
        v.w[i] = v.w[i] == SENTINEL ? ESCAPED : v.w[i];
    }
    return escape;
}

/* Makes v fit to send. Returns the escape word, or 0. */
template <mark_t MARK> LANE_FN uint32_t mark_clean(vec16_t &v)
{
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
    } else {
        mark_whiten(v);
        if (mark_top(v) >= ESCAPED)
            return mark_escape(v);
    }
    return 0;
}

template <mark_t MARK> LANE_FN bool mark_arrived(const vec16_t &v)
{
    if (MARK == MARK_DOUBLE)
        return (v.w[0] & v.w[1]) != SENTINEL && (v.w[2] & v.w[3]) != SENTINEL;
    return mark_top(v) != SENTINEL;
}

/* If true, call mark_unescape. In any case call mark_whiten afterwards. */
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
