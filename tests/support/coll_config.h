/* SPDX-License-Identifier: Apache-2.0 */
/* coll_config.h - ncclCollConfig_t as of NCCL 2.32, for builds with an older nccl.h. */
#ifndef SHUNT_TESTS_COLL_CONFIG_H
#define SHUNT_TESTS_COLL_CONFIG_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

typedef struct coll_config {
    size_t size;
    unsigned magic, version;
    void *ext;
    int min_ctas, max_ctas, nvls_ctas, cga_cluster_size;
    const char *algorithms;
    int force, policy;
    uint64_t tag;
    void *event; /* not in 2.31 */
} coll_config_t;

/* As NCCL's initializer leaves it. */
static const coll_config_t coll_config_unset = {.size = sizeof(coll_config_t),
                                                .magic = 0xcafebeef,
                                                .version = 23203,
                                                .min_ctas = INT_MIN,
                                                .max_ctas = INT_MIN,
                                                .nvls_ctas = INT_MIN,
                                                .cga_cluster_size = INT_MIN,
                                                .force = 1,
                                                .policy = INT_MIN};

#endif
