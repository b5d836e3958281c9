/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - what Shunt reads from the application's ncclConfig_t.
 *
 * A field is read only if the size that the structure states covers it, so an
 * application built against an older NCCL is not read beyond its end. Nothing is
 * kept.
 */
#include "shim/setup/config.h"

#include <stddef.h>
#include <string.h>

#include "shim/base/nccl_env.h"

static const unsigned config_magic = 0xcafebeef;

/* The first fields as of NCCL 2.31, for builds with an older nccl.h. */
typedef struct config_2_31 {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
    int collnet_enable, cta_policy, shrink_share, nvls_ctas, channels_per_net_peer, nvlink_centric, graph_usage;
    int rma_contexts, max_p2p_peers, graph_stream_ordering, launch_order_implicit;
} config_2_31_t;

_Static_assert(offsetof(config_2_31_t, max_ctas) == offsetof(ncclConfig_t, maxCTAs) &&
                   offsetof(config_2_31_t, nvls_ctas) == offsetof(ncclConfig_t, nvlsCTAs),
               "a mirror of ncclConfig_t");
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
_Static_assert(offsetof(config_2_31_t, launch_order_implicit) == offsetof(ncclConfig_t, launchOrderImplicit),
               "a mirror of ncclConfig_t");
#endif

static bool covers(const ncclConfig_t *config, size_t end)
{
    return config && config->size >= end && config->magic == config_magic;
}

static int defined(int value, int fallback)
{
    return value == NCCL_CONFIG_UNDEF_INT ? fallback : value;
}

static bool switched(const char *variable, bool fallback)
{
    const char *text = shim_nccl_env(variable);
    return text && (!strcmp(text, "0") || !strcmp(text, "1")) ? text[0] == '1' : fallback;
}

bool shim_config_blocking(const ncclConfig_t *config, bool fallback)
{
    bool said = covers(config, offsetof(ncclConfig_t, blocking) + sizeof(config->blocking));
    return switched("NCCL_COMM_BLOCKING", said ? defined(config->blocking, fallback) != 0 : fallback);
}

uint32_t shim_config_max_blocks(const ncclConfig_t *config, uint32_t fallback)
{
    if (!covers(config, offsetof(ncclConfig_t, maxCTAs) + sizeof(config->maxCTAs)))
        return fallback;
    int blocks = defined(config->maxCTAs, 0);
    return blocks > 0 ? (uint32_t)blocks : fallback;
}

bool shim_config_split_share(const ncclConfig_t *config, bool fallback)
{
    bool said = covers(config, offsetof(ncclConfig_t, splitShare) + sizeof(config->splitShare));
    return switched("NCCL_COMM_SPLIT_SHARE_RESOURCES", said ? defined(config->splitShare, fallback) != 0 : fallback);
}

bool shim_config_shrink_share(const ncclConfig_t *config, bool fallback)
{
    bool said = covers(config, offsetof(ncclConfig_t, shrinkShare) + sizeof(config->shrinkShare));
    return switched("NCCL_COMM_SHRINK_SHARE_RESOURCES", said ? defined(config->shrinkShare, fallback) != 0 : fallback);
}

bool shim_config_launch_order(const ncclConfig_t *config, bool fallback)
{
    const config_2_31_t *newer = (const config_2_31_t *)config;
    if (!covers(config, offsetof(config_2_31_t, launch_order_implicit) + sizeof(newer->launch_order_implicit)))
        return fallback;
    return defined(newer->launch_order_implicit, fallback) != 0;
}

bool shim_config_graph_mixing(const ncclConfig_t *config, bool fallback)
{
    const config_2_31_t *newer = (const config_2_31_t *)config;
    bool said = covers(config, offsetof(config_2_31_t, graph_usage) + sizeof(newer->graph_usage));
    int mode = said ? defined(newer->graph_usage, -1) : -1;
    return switched("NCCL_GRAPH_MIXING_SUPPORT", mode < 0 ? fallback : mode >= 2);
}

const char *shim_config_fault(const ncclConfig_t *config)
{
    if (!config)
        return NULL;
    if (!covers(config, offsetof(ncclConfig_t, blocking) + sizeof(config->blocking)))
        return "the configuration was not begun with NCCL_CONFIG_INITIALIZER";
    int blocking = defined(config->blocking, 1);
    if (blocking != 0 && blocking != 1)
        return "blocking is neither 0 nor 1";
    if (!covers(config, offsetof(ncclConfig_t, maxCTAs) + sizeof(config->maxCTAs)))
        return NULL;
    int least = defined(config->minCTAs, 1), most = defined(config->maxCTAs, least);
    return least <= 0 || most < least ? "minCTAs and maxCTAs are no range" : NULL;
}
