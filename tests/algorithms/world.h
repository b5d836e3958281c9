/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.h - ranks of kernels on the CPU device, in one process: scratch is plain
 * memory, and a rank's kernels run in the thread that calls them.
 */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include <nccl.h>

#include "algorithms/algorithm.h"

#ifndef WAIT_NS
#define WAIT_NS \
    120000000000u /* waiting ranks take the cores while one checks its output; a mutant (broken.cmake) waits less */
#endif

typedef struct world {
    uint32_t nranks;
    alg_map_t map;
    uint8_t *scratch[ALG_MAX_RANKS];
    alg_control_t control[ALG_MAX_RANKS];
    uint8_t counts[ALG_MAX_RANKS][ALG_COUNTS_BYTES];
} world_t;

/* Whether the build has this type; a mutant has few. */
bool world_has_type(ncclDataType_t type);
/* The type of a call: any that there is. A mutant draws as often as the test, so that it makes the same calls. */
ncclDataType_t world_draw_type(uint64_t *state);

/* The scratch that the algorithm needs for calls of so many ranks: `bytes`, doubled as often as needed. */
size_t world_room(const alg_algorithm_t *algorithm, uint32_t nranks, size_t bytes);

/* `bytes` of scratch for each rank. */
world_t *world_make(uint32_t nranks, alg_memory_t memory, size_t bytes);
world_t *world_make_map(uint32_t nranks, const alg_map_t *map);
void world_free(world_t *w);
alg_team_t world_team(world_t *w, uint32_t rank);

/* End the waits of all ranks after one has failed. */
void world_stop(world_t *w);

/* Runs tests, or the one that the first argument names, up to the first failure: enough for a mutant. Returns the
 * number of failures. */
struct CMUnitTest;
int world_run(const char *name, const struct CMUnitTest *tests, size_t count, int argc, char **argv);

#endif
