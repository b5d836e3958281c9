/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c - see world.h.
 */
#include "world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/data.h"

bool world_has_type(ncclDataType_t type)
{
#ifdef PART
    return type == ncclInt32 || type == ncclUint32 || type == ncclFloat16 || type == ncclFloat32;
#else
    return (int)type < ALG_TYPE_COUNT;
#endif
}

ncclDataType_t world_draw_type(uint64_t *state)
{
    static const ncclDataType_t instead[] = {ncclInt32, ncclUint32, ncclFloat16, ncclFloat32};
    const ncclDataType_t type = (ncclDataType_t)data_below(state, ALG_TYPE_COUNT);
    return world_has_type(type) ? type : instead[type % 4];
}

static bool make_map(alg_map_t *map, alg_memory_t memory, size_t bytes)
{
    return memory == ALG_MEMORY_PINNED ? alg_map_init_shm(map, bytes) : alg_map_init(map, bytes);
}

size_t world_room(const alg_algorithm_t *algorithm, uint32_t nranks, size_t bytes)
{
    const size_t most = (size_t)64 << 20;
    alg_map_t map;
    while (bytes <= most &&
           (!make_map(&map, algorithm->memory, bytes) || algorithm->max_bytes(&map, nranks, ALG_FLOAT32) == 0))
        bytes *= 2;
    if (bytes > most)
        print_error("%s of %s serves no %u ranks\n", algorithm->name, alg_collective_name(algorithm->collective),
                    nranks);
    assert_true(bytes <= most);
    return bytes;
}

world_t *world_make(uint32_t nranks, alg_memory_t memory, size_t bytes)
{
    alg_map_t map;
    assert_true(memory < ALG_MEMORY_COUNT);
    assert_true(make_map(&map, memory, bytes));
    return world_make_map(nranks, &map);
}

world_t *world_make_map(uint32_t nranks, const alg_map_t *map)
{
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->nranks = nranks;
    w->map = *map;
    for (uint32_t r = 0; r < nranks; r++) {
        w->scratch[r] = aligned_alloc(4096, (w->map.total_bytes + 4095) / 4096 * 4096);
        assert_non_null(w->scratch[r]);
        memset(w->scratch[r], 0, w->map.total_bytes);
        if (map->memory == ALG_MEMORY_PEER)
            memset(w->scratch[r] + w->map.half_offset, 0xff, w->map.rings_offset - w->map.half_offset);
        memset(w->scratch[r] + w->map.rings_offset, 0xff, w->map.rings_bytes);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        w->control[r].stop_here = (uintptr_t)w->scratch[r] + ALG_STOP_OFFSET;
        for (uint32_t p = 0; p < nranks; p++)
            w->control[r].stop_at[p] = p == r ? 0 : (uintptr_t)(w->scratch[p] + ALG_STOP_OFFSET) + 8 * r;
    }
    return w;
}

void world_free(world_t *w)
{
    for (uint32_t r = 0; r < w->nranks; r++)
        free(w->scratch[r]);
    free(w);
}

alg_team_t world_team(world_t *w, uint32_t rank)
{
    alg_team_t team = {.rank = rank,
                       .nranks = w->nranks,
                       .own = w->scratch[rank],
                       .own_counts = w->counts[rank],
                       .control = &w->control[rank],
                       .limit = alg_limit(WAIT_NS, 0),
                       .half_offset = w->map.half_offset,
                       .half_bytes = w->map.half_bytes,
                       .places_offset = w->map.places_offset,
                       .places_bytes = w->map.places_bytes,
                       .rings_offset = w->map.rings_offset,
                       .rings_bytes = w->map.rings_bytes,
                       .counts_offset = w->map.counts_offset,
                       .flags_offset = w->map.flags_offset,
                       .staging_offset = w->map.staging_offset,
                       .staging_bytes = w->map.staging_bytes};
    memcpy(team.scratch, w->scratch, sizeof team.scratch);
    return team;
}

void world_stop(world_t *w)
{
    for (uint32_t r = 0; r < w->nranks; r++)
        __atomic_store_n(&w->control[r].abort, 1u, __ATOMIC_RELEASE);
}

int world_run(const char *name, const struct CMUnitTest *tests, size_t count, int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = 0;
    for (size_t i = 0; i < count && !failed; i++)
        failed = _cmocka_run_group_tests(name, &tests[i], 1, NULL, NULL);
    return failed;
}
