/*
 * registry.c - all algorithms. A new one is one file, one line here, and rows
 * in the selector's table.
 */
#include "algorithms/algorithm.h"

#include <string.h>

extern const alg_algorithm_t alg_allreduce_oneshot;
extern const alg_algorithm_t alg_allreduce_twoshot;
extern const alg_algorithm_t alg_allreduce_staged;

const alg_algorithm_t *const alg_registry[] = {
    &alg_allreduce_oneshot,
    &alg_allreduce_twoshot,
    &alg_allreduce_staged,
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
