/* SPDX-License-Identifier: Apache-2.0 */
/* registry.c - all algorithms (registry.def). */
#include "algorithms/algorithm.h"

#include <string.h>

#define ALG_FILE(path)
#define ALG_REDUCING_FILE(path)
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
