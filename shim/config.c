/*
 * config.c - what Shunt reads from the application's ncclConfig_t.
 *
 * A field is read only if the size that the structure states covers it, so an
 * application built against an older NCCL is not read beyond its end. Nothing is
 * kept.
 */
#include "shim/config.h"

#include <stddef.h>
#include <string.h>

#include "shim/nccl_env.h"

static const unsigned config_magic = 0xcafebeef;

static bool covers(const ncclConfig_t *config, size_t end)
{
    return config && config->size >= end && config->magic == config_magic;
}

static int defined(int value, int fallback)
{
    return value == NCCL_CONFIG_UNDEF_INT ? fallback : value;
}

bool shim_config_blocking(const ncclConfig_t *config, bool fallback)
{
    const char *text = shim_nccl_env("NCCL_COMM_BLOCKING");
    if (text && (!strcmp(text, "0") || !strcmp(text, "1")))
        return text[0] == '1';
    if (!covers(config, offsetof(ncclConfig_t, blocking) + sizeof(config->blocking)))
        return fallback;
    return defined(config->blocking, fallback) != 0;
}

uint32_t shim_config_max_blocks(const ncclConfig_t *config, uint32_t fallback)
{
    if (!covers(config, offsetof(ncclConfig_t, maxCTAs) + sizeof(config->maxCTAs)))
        return fallback;
    int blocks = defined(config->maxCTAs, 0);
    return blocks > 0 ? (uint32_t)blocks : fallback;
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
