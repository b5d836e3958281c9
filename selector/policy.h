/*
 * policy.h - the user's policy (SHUNT_ALGO), parsed.
 *
 * Grammar: ["allreduce:"] item {";" item}, where an item is
 *   name                the algorithm for every size ("nccl": forward)
 *   from-to=name        for sizes from <= bytes < to; "to" may be missing; K, M, G are 1024's powers
 *   ^name               never this algorithm
 * Later items win over earlier ones; sizes no item names follow the built-in table.
 */
#ifndef SHUNT_POLICY_H
#define SHUNT_POLICY_H

#include "selector/selector.h"

enum { POLICY_MAX_ITEMS = 16 };

typedef struct policy_item {
    uint64_t from, to;                /* bytes, both inclusive */
    const alg_algorithm_t *algorithm; /* NULL: forward */
} policy_item_t;

typedef struct policy {
    uint32_t items;
    policy_item_t item[POLICY_MAX_ITEMS];
    uint32_t excluded; /* bit i: alg_registry[i] */
} policy_t;

/* As sel_policy_check; `policy` is written on success only. */
bool policy_parse(const char *text, policy_t *policy, char *fault, size_t fault_bytes);

#endif
