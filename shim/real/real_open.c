/* SPDX-License-Identifier: Apache-2.0 */
/* real_open.c - opens a library of the same SONAME as the one that has this code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

#include "shim/real/real_parts.h"

const struct link_map *shim_open_map(void *handle)
{
    struct link_map *map = NULL;
    Dl_info own;
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !dladdr((void *)shim_open_map, &own))
        return NULL;
    return (void *)map->l_addr == own.dli_fbase ? NULL : map;
}

/* If an audit library has redirected this path to this library, the linker does not ask it again: the file is opened by
 * an equivalent path that nobody uses. */
void *shim_open_path(const char *path)
{
    char unheard[PATH_MAX + 2];
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle || shim_open_map(handle))
        return handle;
    dlclose(handle);
    snprintf(unheard, sizeof unheard, "/.%s", path);
    return dlopen(unheard, RTLD_NOW | RTLD_LOCAL);
}

void *shim_open_symbol(void *handle, const char *name)
{
    struct link_map *own = NULL, *found = NULL;
    Dl_info info;
    void *address = handle ? dlsym(handle, name) : NULL;
    if (!address || dlinfo(handle, RTLD_DI_LINKMAP, &own) != 0 ||
        !dladdr1(address, &info, (void **)&found, RTLD_DL_LINKMAP) || found != own)
        return NULL;
    return address;
}
