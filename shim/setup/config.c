/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "shim/setup/config.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "shim/base/nccl_env.h"
#include "shim/base/pins.h"
#include "shim/base/words.h"

static const unsigned config_magic = 0xcafebeef;

/* ncclConfig_t as of NCCL 2.31, for builds with an older nccl.h. */
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

static void switched(const char *variable, bool *value)
{
    const char *text = shim_nccl_env(variable);
    if (text && (!strcmp(text, "0") || !strcmp(text, "1")))
        *value = text[0] == '1';
}

/* A digit, or names joined by '|'. A value unknown to NCCL changes nothing. */
static void cta_policy(bool *value)
{
    const char *text = shim_nccl_env("NCCL_CTA_POLICY");
    if (!text)
        return;
    const bool asks =
        text[0] == '1' || text[0] == '2' || shim_has_word(text, "EFFICIENCY") || shim_has_word(text, "ZERO");
    if (asks || text[0] == '0' || shim_has_word(text, "DEFAULT"))
        *value = asks;
}

/* NCCL launches one block a channel. */
static void max_channels(uint32_t *most)
{
    const uint32_t channels = shim_pin_channels();
    if (channels > 0 && (*most == 0 || channels < *most))
        *most = channels;
}

#define COVERS(config, type, field) covers(config, offsetof(type, field) + sizeof(((const type *)0)->field))

static void read_fields(const ncclConfig_t *config, shim_config_t *said)
{
    const config_2_31_t *newer = (const config_2_31_t *)config;
    if (COVERS(config, ncclConfig_t, blocking))
        said->blocking = defined(config->blocking, said->blocking) != 0;
    if (COVERS(config, ncclConfig_t, maxCTAs) && defined(config->maxCTAs, 0) > 0)
        said->max_blocks = (uint32_t)config->maxCTAs;
    if (COVERS(config, ncclConfig_t, CTAPolicy))
        said->cta_policy = defined(config->CTAPolicy, 0) != 0;
    if (COVERS(config, ncclConfig_t, splitShare))
        said->split_share = defined(config->splitShare, said->split_share) != 0;
    if (COVERS(config, ncclConfig_t, shrinkShare))
        said->shrink_share = defined(config->shrinkShare, said->shrink_share) != 0;
    if (COVERS(config, config_2_31_t, launch_order_implicit))
        said->launch_order = defined(newer->launch_order_implicit, said->launch_order) != 0;
    if (COVERS(config, config_2_31_t, graph_usage) && defined(newer->graph_usage, -1) >= 0)
        said->graph_mixing = newer->graph_usage >= 2;
}

shim_config_t shim_config_read(const ncclConfig_t *config, const shim_config_t *parent)
{
    shim_config_t said = {.blocking = true, .graph_mixing = true};
    if (config)
        read_fields(config, &said);
    else if (parent)
        said = *parent;
    switched("NCCL_COMM_BLOCKING", &said.blocking);
    switched("NCCL_COMM_SPLIT_SHARE_RESOURCES", &said.split_share);
    switched("NCCL_COMM_SHRINK_SHARE_RESOURCES", &said.shrink_share);
    switched("NCCL_GRAPH_MIXING_SUPPORT", &said.graph_mixing);
    switched("NCCL_LAUNCH_ORDER_IMPLICIT", &said.launch_order);
    cta_policy(&said.cta_policy);
    max_channels(&said.max_blocks);
    return said;
}

#define RANGE(field, member, least, most)                                          \
    {                                                                              \
        offsetof(config_2_31_t, member), least, most, field " is out of its range" \
    }

/* As NCCL has them. */
static const struct range {
    size_t offset;
    int least, most;
    const char *fault;
} ranges[] = {RANGE("blocking", blocking, 0, 1),
              RANGE("cgaClusterSize", cga_cluster_size, 0, INT_MAX),
              RANGE("minCTAs", min_ctas, 1, INT_MAX),
              RANGE("maxCTAs", max_ctas, 1, INT_MAX),
              RANGE("splitShare", split_share, 0, 1),
              RANGE("collnetEnable", collnet_enable, 0, 1),
              RANGE("CTAPolicy", cta_policy, 0, 3),
              RANGE("shrinkShare", shrink_share, 0, 1),
              RANGE("nvlsCTAs", nvls_ctas, 1, INT_MAX),
              RANGE("nChannelsPerNetPeer", channels_per_net_peer, 1, 64),
              RANGE("nvlinkCentricSched", nvlink_centric, 0, 1),
              RANGE("graphUsageMode", graph_usage, 0, 2),
              RANGE("numRmaCtx", rma_contexts, 0, INT_MAX),
              RANGE("maxP2pPeers", max_p2p_peers, 1, INT_MAX),
              RANGE("graphStreamOrdering", graph_stream_ordering, 0, 1),
              RANGE("launchOrderImplicit", launch_order_implicit, 0, 1)};

const char *shim_config_fault(const ncclConfig_t *config)
{
    if (!config)
        return NULL;
    if (!COVERS(config, ncclConfig_t, blocking))
        return "the configuration was not begun with NCCL_CONFIG_INITIALIZER";
    for (const struct range *r = ranges; r < ranges + sizeof(ranges) / sizeof(ranges[0]); r++) {
        int value = NCCL_CONFIG_UNDEF_INT;
        if (covers(config, r->offset + sizeof(value)))
            memcpy(&value, (const char *)config + r->offset, sizeof(value));
        if (value != NCCL_CONFIG_UNDEF_INT && (value < r->least || value > r->most))
            return r->fault;
    }
    const bool both = COVERS(config, ncclConfig_t, maxCTAs) && defined(config->maxCTAs, 0) > 0;
    return both && config->minCTAs > config->maxCTAs ? "minCTAs and maxCTAs are no range" : NULL;
}
