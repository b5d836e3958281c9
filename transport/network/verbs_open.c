/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_open.c - opens libibverbs at run time: machines without RDMA lack it. Never closes it: others may use it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "transport/network/verbs_queue.h"

static net_lock_t g_lock = NET_LOCK_INITIALIZER;
static verbs_calls_t g_calls;
static bool g_opened;

static bool find_calls(void *library, verbs_calls_t *calls)
{
#define VERBS_FIND(name)                                   \
    *(void **)&calls->name = dlsym(library, "ibv_" #name); \
    if (!calls->name)                                      \
        return false;
    VERBS_CALLS(VERBS_FIND)
#undef VERBS_FIND
    *(void **)&calls->query_gid = dlsym(library, "_ibv_query_gid_ex");
    return calls->query_gid;
}

static bool open_library(const char *name, char why[NET_WAY_TEXT])
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, NET_WAY_TEXT, "%s", dlerror());
        return false;
    }
    if (find_calls(library, &g_calls))
        return true;
    snprintf(why, NET_WAY_TEXT, "%.60s is older than rdma-core 33", name);
    dlclose(library);
    return false;
}

const verbs_calls_t *verbs_calls(const char *library, char why[NET_WAY_TEXT])
{
    net_lock_take(&g_lock);
    g_opened = g_opened || open_library(library ? library : "libibverbs.so.1", why);
    const bool opened = g_opened;
    net_lock_give(&g_lock);
    return opened ? &g_calls : NULL;
}
