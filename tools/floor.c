/*
 * floor.c - the formula of floor.h.
 */
#include "floor.h"

double tool_floor_seconds(const tool_floor_t *floor, uint32_t gpus, bool graph, uint64_t bytes)
{
    double n = gpus;
    double crossing = (double)bytes / floor->bandwidth; /* of one whole message */
    double one_shot = floor->push + (n - 1) * crossing;
    double two_shot = floor->push + floor->one_way + 2 * (n - 1) / n * crossing;
    double least = one_shot < two_shot ? one_shot : two_shot;
    return graph || least > floor->launch_eager ? least : floor->launch_eager;
}
