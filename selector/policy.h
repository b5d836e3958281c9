/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h - the user's policy (SHUNT_ALGO), parsed (docs/tuning.md).
 * Grammar: [collective ":"] item {";" [collective ":"] item}, where a collective's name (or "all") applies to the items
 * after it, and an item is
 *   [from-to=]what      for sizes from <= bytes < to; "to" may be missing; K, M, G are 1024's powers
 *   ^name               never this algorithm
 * and `what` is name[:blocksxthreads] (at most this grid; without one, a usual grid), nccl or builtin. Later items win.
 * An algorithm's name applies to the collectives that have it; at least one must. */
#ifndef SHUNT_POLICY_H
#define SHUNT_POLICY_H

#include "selector/selector.h"

enum { POLICY_MAX_ITEMS = 16 };

typedef enum policy_what { POLICY_ALGORITHM, POLICY_NCCL, POLICY_BUILTIN } policy_what_t;

typedef struct policy_item {
    uint64_t from, to;    /* both inclusive */
    uint32_t collectives; /* bit c: applies to this collective */
    policy_what_t what;
    const char *algorithm;    /* POLICY_ALGORITHM: its name, static; all `collectives` have it */
    uint16_t blocks, threads; /* 0: not given */
} policy_item_t;

typedef struct policy {
    uint32_t items;
    policy_item_t item[POLICY_MAX_ITEMS];
    uint64_t excluded; /* bit i: alg_registry[i] */
} policy_t;

/* Like sel_policy_check; sets `policy` only on success. */
bool policy_parse(const char *text, policy_t *policy, char *fault, size_t fault_bytes);

#endif
