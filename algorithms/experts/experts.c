/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - a group's memory, and the launches of dispatch and combine. */
#include "algorithms/experts/experts.h"

#include "algorithms/experts/parts.h"

bool alg_experts_map(const alg_experts_shape_t *shape, alg_map_t *map)
{
    const uint64_t quads = (shape->most_top_k + 3) / 4;
    if (shape->nranks < 2 || shape->nranks > ALG_MAX_RANKS || shape->experts == 0 ||
        shape->experts % shape->nranks != 0 || shape->experts > ALG_EXPERTS_MOST || shape->most_top_k == 0 ||
        shape->most_top_k > ALG_EXPERTS_TOP_K || shape->most_tokens == 0 || shape->row_bytes == 0 ||
        shape->row_bytes % 16 != 0 || shape->most_tokens > ALG_EXPERTS_CHOICES ||
        shape->nranks * shape->most_tokens * quads * 4 > ALG_EXPERTS_CHOICES)
        return false;
    const uint64_t rooms = (2 + alg_experts_staged(shape)) * alg_experts_room_bytes(shape);
    *map = (alg_map_t){.memory = ALG_MEMORY_PEER,
                       .half_offset = ALG_CONTROL_BYTES,
                       .half_bytes = rooms / 2,
                       .pieces = 1,
                       .total_bytes = ALG_CONTROL_BYTES + rooms};
    map->places_offset = map->rings_offset = map->flags_offset = map->counts_offset = map->staging_offset =
        map->total_bytes;
    map->piece[ALG_PIECE_FIRST] = (alg_span_t){0, map->total_bytes};
    return true;
}

uint32_t alg_experts_staged(const alg_experts_shape_t *shape)
{
    uint32_t staged = ALG_EXPERTS_STAGED;
    while (staged > 1 && (2 + staged) * alg_experts_room_bytes(shape) > ALG_EXPERTS_MOST_BYTES)
        staged--;
    return staged;
}

/* A block uses half of a multiprocessor, so kernels of other communicators fit beside it. */
uint32_t alg_experts_grid(uint32_t multiprocessors, uint32_t most)
{
    return most > 0 && most < multiprocessors ? most : multiprocessors;
}

int alg_experts_launch_cpu(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call)
{
    return call->combine ? alg_experts_combine_cpu(team, shape, call) : alg_experts_dispatch_cpu(team, shape, call);
}

#if SHUNT_HAS_CUDA
int alg_experts_launch_cuda(const alg_team_t *team, const alg_experts_shape_t *shape, const alg_experts_call_t *call,
                            void *stream)
{
    return call->combine ? alg_experts_combine_cuda(team, shape, call, stream)
                         : alg_experts_dispatch_cuda(team, shape, call, stream);
}

int alg_experts_preload_cuda(const alg_experts_shape_t *shape)
{
    const alg_experts_call_t most = {.top_k = shape->most_top_k, .phases = ALG_EXPERTS_BOTH};
    const int error = alg_experts_dispatch_preload(shape, &most);
    return error != 0 ? error : alg_experts_combine_preload(shape, &most);
}
#endif
