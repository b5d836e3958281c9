/* SPDX-License-Identifier: Apache-2.0 */
/* rows.h - loads, sends and receives a token's row as vectors. */
#ifndef SHUNT_EXPERTS_ROWS_H
#define SHUNT_EXPERTS_ROWS_H

#include "algorithms/device/slots.h"
#include "algorithms/experts/room.h"

/* Vector v of this rank's row as sent: the token's vectors, then its scales. */
template <alg_experts_recipe_t RECIPE> struct row_source {
    LANE_FN static vec16_t load(const experts_call_t &c, uint32_t token, uint32_t v)
    {
        if (v < c.token_vectors)
            return lane_load((const uint8_t *)c.call.rows + ((uint64_t)token * c.token_vectors + v) * VEC);
        return lane_load((const uint8_t *)c.call.scales + (uint64_t)token * c.call.scale_bytes +
                         (uint64_t)(v - c.token_vectors) * VEC);
    }

    LANE_FN static void store_scales(uint8_t *to, const vec16_t &x)
    {
        lane_store(to, x);
    }
};

/* DeepSeek's scale for 128 elements: e4m3's largest value over their largest magnitude, at least 1e-4. `inverse` is
 * sent. */
typedef struct row_scale {
    float scale, inverse;
} row_scale_t;

LANE_FN row_scale_t row_scale_of(float most, bool round)
{
    const float inverse = most * (1 / 448.0f);
    if (!round)
        return row_scale_t{448.0f / most, inverse};
    /* The least power of two not below `inverse`. */
    uint32_t bits;
    memcpy(&bits, &inverse, sizeof bits);
    const uint32_t up = (bits >> 23) + ((bits & 0x7fffff) != 0), down = 254 - up;
    const uint32_t scale = down << 23, power = up << 23;
    row_scale_t s;
    memcpy(&s.scale, &scale, sizeof scale);
    memcpy(&s.inverse, &power, sizeof power);
    return s;
}

template <> struct row_source<ALG_EXPERTS_E4M3> {
    typedef element<ALG_BFLOAT16> from_t;
    typedef element<ALG_FLOAT8_E4M3> to_t;
    enum { BLOCK_VECTORS = ALG_EXPERTS_BLOCK_ELEMENTS / from_t::COUNT };

    LANE_FN static const uint8_t *at(const experts_call_t &c, uint32_t token)
    {
        return (const uint8_t *)c.call.rows + (uint64_t)token * c.call.token_bytes * 2;
    }

    /* All lanes with the same `block` compute its scale: only the first loads miss L1. */
    LANE_FN static row_scale_t scale(const experts_call_t &c, uint32_t token, uint32_t block)
    {
        float most = 1e-4f;
        LANE_UNROLL
        for (uint32_t i = 0; i < BLOCK_VECTORS; i++) {
            float a[from_t::COUNT];
            from_t::unpack(lane_load(at(c, token) + ((uint64_t)block * BLOCK_VECTORS + i) * VEC), a);
            LANE_UNROLL
            for (int j = 0; j < from_t::COUNT; j++) {
                const float magnitude = a[j] < 0 ? -a[j] : a[j];
                most = magnitude > most ? magnitude : most;
            }
        }
        return row_scale_of(most, c.call.round_scales);
    }

    LANE_FN static vec16_t load(const experts_call_t &c, uint32_t token, uint32_t v)
    {
        vec16_t x;
        if (v >= c.token_vectors) {
            for (uint32_t i = 0; i < 4; i++) {
                const row_scale_t s = scale(c, token, 4 * (v - c.token_vectors) + i);
                memcpy(&x.w[i], &s.inverse, sizeof s.inverse);
            }
            return x;
        }
        const row_scale_t s = scale(c, token, v * to_t::COUNT / ALG_EXPERTS_BLOCK_ELEMENTS);
        float a[to_t::COUNT];
        LANE_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            from_t::unpack(lane_load(at(c, token) + (uint64_t)(2 * v + i) * VEC), a + i * from_t::COUNT);
        LANE_UNROLL
        for (int i = 0; i < to_t::COUNT; i++)
            a[i] *= s.scale;
        to_t::pack(a, x);
        return x;
    }

    /* `to` is aligned to 4. */
    LANE_FN static void store_scales(uint8_t *to, const vec16_t &x)
    {
        LANE_UNROLL
        for (uint32_t i = 0; i < 4; i++)
            ((uint32_t *)to)[i] = x.w[i];
    }
};

/* Sends vector v to `ranks` (bits). */
LANE_FN void row_put(const alg_team_t &team, const experts_call_t &c, uint32_t ranks, uint64_t to, uint64_t words,
                     uint32_t v, vec16_t x)
{
    const uint32_t escape = mark_clean<MARK_ESCAPE>(x);
    for (uint32_t i = 0; i < c.nranks; i++) {
        const uint32_t r = ring_next(team, i);
        if (!(ranks >> r & 1))
            continue;
        lane_put(team.scratch[r] + to + (uint64_t)v * VEC, x);
        if (escape != 0)
            lane_put_word(team.scratch[r] + words + (uint64_t)v * 4, escape);
    }
}

/* Waits for up to ROWS vectors, `stride` apart, before `end`. Re-arms escape words; the caller re-arms vectors. */
template <uint32_t ROWS>
LANE_FN bool row_take(lane_t &lane, const alg_team_t &team, uint32_t source, uint8_t *from, uint8_t *words, uint32_t v,
                      uint32_t stride, uint32_t end, vec16_t (&x)[ROWS])
{
    lane_wait_begins(lane);
    lane_awaits(lane, 1u << source);
    for (;;) {
        bool arrived = true;
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++) {
            if (v + b * stride < end)
                x[b] = lane_poll(from + (uint64_t)(v + b * stride) * VEC);
        }
        LANE_UNROLL
        for (uint32_t b = 0; b < ROWS; b++)
            arrived = arrived && (v + b * stride >= end || mark_arrived<MARK_ESCAPE>(x[b]));
        if (arrived)
            break;
        if (lane_stop(lane, team))
            return false;
    }
    LANE_UNROLL
    for (uint32_t b = 0; b < ROWS; b++) {
        if (v + b * stride >= end)
            continue;
        if (mark_escaped(x[b]) &&
            !slots<MARK_ESCAPE, 2>::take_escape(lane, team, words + (uint64_t)(v + b * stride) * 4, x[b]))
            return false;
        mark_whiten(x[b]);
    }
    return true;
}

#endif
