/* SPDX-License-Identifier: Apache-2.0 */
/* floor.c - the formula of floor.h. */
#include "tools/floor/floor.h"

double tool_floor_seconds(const tool_floor_t *floor, alg_collective_t collective, uint32_t gpus, bool graph,
                          uint64_t bytes)
{
    const double n = gpus;
    const double crossing = (double)bytes / floor->bandwidth; /* time for one whole buffer */
    const bool blocks = alg_collective_blocks(collective, 2) > 1;
    const double load = collective == ALG_SEND_RECV ? 1 : blocks ? (n - 1) / n : n - 1;
    const double once = floor->push + load * crossing;
    const double twice = floor->push + floor->one_way + (collective == ALG_ALL_REDUCE ? 2 * (n - 1) / n : 1) * crossing;
    const double least = blocks || once < twice ? once : twice;
    return graph || least > floor->launch_eager ? least : floor->launch_eager;
}
