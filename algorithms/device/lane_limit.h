/* SPDX-License-Identifier: Apache-2.0 */
/* lane_limit.h - a part of lane.h: unpacks alg_limit. */
#ifndef SHUNT_LANE_LIMIT_H
#define SHUNT_LANE_LIMIT_H

LANE_HOST_FN uint64_t lane_limit_ns(uint64_t limit)
{
    return limit & ALG_LIMIT_NONE ? 0 : (limit >> ALG_LIMIT_BITS) * 1000000;
}

LANE_HOST_FN uint64_t lane_limit_id(uint64_t limit)
{
    return limit & ALG_LIMIT_NONE ? limit & ~ALG_LIMIT_NONE : limit & ((UINT64_C(1) << ALG_LIMIT_BITS) - 1);
}

static inline uint64_t lane_limit_times(uint64_t limit, uint32_t calls)
{
    return alg_limit(lane_limit_ns(limit) * calls, lane_limit_id(limit));
}

#endif
