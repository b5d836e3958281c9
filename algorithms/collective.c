/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - names and shapes of collectives, sizes of types. They are not in registry.c: the command `shunt` links
 * no algorithm. */
#include "algorithms/algorithm.h"

#include <string.h>

static const struct {
    const char *name;
    bool reduces, rooted, blocks;
} collectives[ALG_COLLECTIVE_COUNT] = {
    [ALG_ALL_REDUCE] = {"allreduce", true, false, false}, [ALG_REDUCE_SCATTER] = {"reducescatter", true, false, true},
    [ALG_REDUCE] = {"reduce", true, true, false},         [ALG_ALL_GATHER] = {"allgather", false, false, true},
    [ALG_ALL_TO_ALL] = {"alltoall", false, false, true},  [ALG_BROADCAST] = {"broadcast", false, true, false},
    [ALG_GATHER] = {"gather", false, true, true},         [ALG_SCATTER] = {"scatter", false, true, true},
    [ALG_SEND_RECV] = {"sendrecv", false, false, false},
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

size_t alg_type_bytes(alg_type_t type)
{
    switch (type) {
    case ALG_INT8:
    case ALG_UINT8:
    case ALG_FLOAT8_E4M3:
    case ALG_FLOAT8_E5M2:
        return 1;
    case ALG_FLOAT16:
    case ALG_BFLOAT16:
        return 2;
    case ALG_INT32:
    case ALG_UINT32:
    case ALG_FLOAT32:
        return 4;
    case ALG_INT64:
    case ALG_UINT64:
    case ALG_FLOAT64:
        return 8;
    case ALG_TYPE_COUNT:
        break;
    }
    return 0;
}
