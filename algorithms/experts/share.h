/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - how warps share rows, and divisions for that. */
#ifndef SHUNT_EXPERTS_SHARE_H
#define SHUNT_EXPERTS_SHARE_H

#include "algorithms/device/lane.h"

/* Divides by one multiplication instead of some 30 instructions. Exact for n * by below 2^32: inverse * by exceeds 2^32
 * by less than `by`. */
typedef struct divisor {
    uint32_t by, inverse;
} divisor_t;

LANE_HOST_FN divisor_t divisor_make(uint32_t by)
{
    return divisor_t{by, by > 1 ? UINT32_MAX / by + 1 : 0};
}

LANE_FN uint32_t divide(uint32_t n, divisor_t d)
{
    return d.by > 1 ? (uint32_t)((uint64_t)n * d.inverse >> 32) : n;
}

LANE_FN uint32_t remainder_of(uint32_t n, divisor_t d)
{
    return n - divide(n, d) * d.by;
}

/* `units` rows, cut so that all warps have a piece if there are enough vectors. */
typedef struct share {
    divisor_t pieces;         /* of a row; 0: no vectors */
    uint32_t vectors, length; /* of a row; of a piece, a multiple of `width` */
    uint32_t items;           /* pieces of all units */
    uint32_t warps, warp;     /* warps of a block; this lane's warp */
    uint32_t in_warp, width;  /* this lane; lanes of a warp */
} share_t;

/* Sending begins with the first block, receiving with the last: with few tokens, different blocks send and receive. */
LANE_FN uint32_t share_back(const lane_t &lane)
{
    return lane.blocks - 1 - lane.block;
}

LANE_FN share_t share_make(const lane_t &lane, uint32_t units, uint32_t vectors)
{
    share_t s;
    s.width = lane_warp_size();
    s.warps = lane.threads / s.width;
    s.warp = lane.thread / s.width;
    s.in_warp = lane.thread % s.width;
    const uint32_t all = lane.blocks * s.warps, wanted = units < all ? all / (units > 0 ? units : 1) : 1;
    s.vectors = vectors;
    s.length = ((vectors + wanted - 1) / wanted + s.width - 1) / s.width * s.width;
    s.pieces = divisor_make(s.length > 0 ? (vectors + s.length - 1) / s.length : 0);
    s.items = units * s.pieces.by;
    return s;
}

typedef struct piece {
    uint32_t unit, first, end;
} piece_t;

LANE_FN piece_t piece_of(const share_t &s, uint32_t item)
{
    const uint32_t unit = divide(item, s.pieces), begin = (item - unit * s.pieces.by) * s.length;
    return piece_t{unit, begin + s.in_warp, begin + s.length < s.vectors ? begin + s.length : s.vectors};
}

/* Finds a unit's rank and token, if rank r has tokens[r] units. */
LANE_FN void share_find(const uint32_t *tokens, uint32_t unit, uint32_t &source, uint32_t &token)
{
    source = 0;
    while (unit >= tokens[source])
        unit -= tokens[source++];
    token = unit;
}

#endif
