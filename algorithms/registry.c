/*
 * registry.c - all algorithms (registry.def), and what collectives there are.
 */
#include "algorithms/algorithm.h"

#include <string.h>

#define ALG_FILE(path)
#define ALG_ALGORITHM(symbol) extern const alg_algorithm_t symbol;
#include "algorithms/registry.def"
#undef ALG_ALGORITHM
#define ALG_ALGORITHM(symbol) &symbol,
const alg_algorithm_t *const alg_registry[] = {
#include "algorithms/registry.def"
};
const uint32_t alg_registry_count = sizeof(alg_registry) / sizeof(alg_registry[0]);

const alg_algorithm_t *alg_find(alg_collective_t collective, const char *name)
{
    for (uint32_t i = 0; i < alg_registry_count; i++) {
        if (alg_registry[i]->collective == collective && strcmp(alg_registry[i]->name, name) == 0)
            return alg_registry[i];
    }
    return NULL;
}

static const struct {
    const char *name;
    bool reduces, rooted, blocks;
} collectives[ALG_COLLECTIVE_COUNT] = {
    [ALG_ALL_REDUCE] = {"allreduce", true, false, false}, [ALG_REDUCE_SCATTER] = {"reducescatter", true, false, true},
    [ALG_REDUCE] = {"reduce", true, true, false},         [ALG_ALL_GATHER] = {"allgather", false, false, true},
    [ALG_ALL_TO_ALL] = {"alltoall", false, false, true},  [ALG_BROADCAST] = {"broadcast", false, true, false},
    [ALG_GATHER] = {"gather", false, true, true},         [ALG_SCATTER] = {"scatter", false, true, true},
};

const char *alg_collective_name(alg_collective_t collective)
{
    return (unsigned)collective < ALG_COLLECTIVE_COUNT ? collectives[collective].name : NULL;
}

alg_collective_t alg_collective_find(const char *name)
{
    unsigned i = 0;
    while (i < ALG_COLLECTIVE_COUNT && strcmp(collectives[i].name, name) != 0)
        i++;
    return (alg_collective_t)i;
}

bool alg_collective_reduces(alg_collective_t collective)
{
    return collectives[collective].reduces;
}

bool alg_collective_rooted(alg_collective_t collective)
{
    return collectives[collective].rooted;
}

uint32_t alg_collective_blocks(alg_collective_t collective, uint32_t nranks)
{
    return collectives[collective].blocks ? nranks : 1;
}
