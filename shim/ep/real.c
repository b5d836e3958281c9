/* SPDX-License-Identifier: Apache-2.0 */
/* real.c - finds NVIDIA's libnccl_ep in the order of docs/lab/experts.md ("NVIDIA's library"), and opens it by absolute
 * path, since for its SONAME the linker returns this library. The answer is final; nothing is freed. */
#define _GNU_SOURCE
#include "shim/ep/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/ep/libnccl.h"
#include "shim/ep/log.h"
#include "shim/real/real_parts.h"

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static shim_ep_real_t g_real;
static atomic_bool g_opened;
static char g_path[PATH_MAX];
static char g_refused[PATH_MAX + 256]; /* first file found and refused */
static char g_why[PATH_MAX + 512];

/* Warns once per function, since programs poll for asynchronous errors. */
static ncclResult_t lacks(const char *name, atomic_bool *said)
{
    if (!atomic_exchange(said, true))
        shim_ep_warn("%s is not in %s: calls of it return ncclInvalidUsage; install a newer nccl-extensions, or name "
                     "one with SHUNT_NCCL_EP_PATH",
                     name, g_path);
    return ncclInvalidUsage;
}

/* lacks_<name> ignores its arguments, so one signature serves all. */
#define SHIM_EP_NAME(name)                   \
    static ncclResult_t lacks_##name(void)   \
    {                                        \
        static atomic_bool said;             \
        return lacks("ncclEp" #name, &said); \
    }
#include "shim/ep/names.def"

static void fill(void *handle)
{
    void *address;
#define SHIM_EP_NAME(name)                              \
    address = shim_open_symbol(handle, "ncclEp" #name); \
    g_real.name = (__typeof__(g_real.name))(address ? address : (void *)lacks_##name);
#include "shim/ep/names.def"
}

static bool is_shunt(const char *path)
{
    return shim_elf_has_name(path, "shuntExperts");
}

/* `path` is absolute and has no links. */
static bool use(const char *path, char *why, size_t capacity)
{
    if (!shim_elf_has_name(path, "ncclEpCreateGroup") || is_shunt(path)) {
        snprintf(why, capacity, "it is not NVIDIA's libnccl_ep");
        return false;
    }
    void *handle = shim_open_path(path);
    const struct link_map *map = shim_open_map(handle);
    if (!map || !shim_open_symbol(handle, "ncclEpCreateGroup")) {
        const char *error = handle ? "the dynamic linker returns another library for it" : dlerror();
        snprintf(why, capacity, "%s", error ? error : "dlopen failed");
        if (handle)
            dlclose(handle);
        return false;
    }
    /* NVIDIA's ncclEpCreateHandle calls ncclEpInitHandle with NVIDIA's group, which ours would refuse. */
    if (!shim_bind_own_slots(map))
        shim_ep_warn("%s: its calls to its own functions cannot all be kept within it, so its ncclEpCreateHandle may "
                     "fail; use ncclEpInitHandle and ncclEpUpdateHandle, or run without Shunt",
                     path);
    snprintf(g_path, sizeof(g_path), "%s", path);
    fill(handle);
    return true;
}

static bool try_file(const char *path)
{
    char file[PATH_MAX], why[384] = "";
    if (!realpath(path, file)) {
        if (errno == ENOENT || errno == ENOTDIR)
            return false;
        snprintf(why, sizeof(why), "%s", strerror(errno));
    } else if (use(file, why, sizeof(why))) {
        return true;
    }
    if (g_refused[0] == '\0')
        snprintf(g_refused, sizeof(g_refused), "%s: %s", path, why);
    return false;
}

/* Passes over Shunt's own library silently: under `shunt run` it lies in the first folder. */
static bool try_in(const char *folder, int length, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof(path), "%.*s%s", length, folder, name) < (int)sizeof(path) && !is_shunt(path) &&
           try_file(path);
}

/* The wheel has a library for each CUDA; that of the process's CUDA is tried first. */
static bool try_wheel(const char *folder, int length)
{
    static const char *const names[] = {"/nccl/ep/lib/cu13/libnccl_ep.so", "/nccl/ep/lib/cu12/libnccl_ep.so"};
    void *runtime = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const int first = runtime != NULL;
    if (runtime)
        dlclose(runtime);
    return try_in(folder, length, names[first]) || try_in(folder, length, names[!first]);
}

static bool try_folder(const char *folder)
{
    static const char wheel[] = "/nvidia/nccl/lib";
    const int length = (int)strlen(folder), site = length - (int)strlen(wheel);
    if (try_in(folder, length, "/libnccl_ep.so.0") || try_in(folder, length, "/libnccl_ep.so"))
        return true;
    return site > 0 && strcmp(folder + site, wheel) == 0 && try_wheel(folder, site);
}

static bool search(void)
{
    void *next = dlsym(RTLD_NEXT, "ncclEpCreateGroup");
    Dl_info info;
    if (next && dladdr(next, &info) && try_file(info.dli_fname))
        return true;
    shim_folders_t folders = {0};
    bool found = false;
    shim_find_folders(&folders, NULL);
    for (size_t i = 0; i < folders.count && !found; i++)
        found = try_folder(folders.path[i]);
    if (!found)
        snprintf(g_why, sizeof(g_why),
                 "there is none in %zu folders (run paths, Python's wheels, LD_LIBRARY_PATH, CUDA's)%s%s; install "
                 "nccl-extensions, or name the library with SHUNT_NCCL_EP_PATH",
                 folders.count, g_refused[0] ? "; not taken: " : "", g_refused);
    shim_folders_free(&folders);
    return found;
}

static bool try_setting(const char *path)
{
    if (try_folder(path) || try_file(path))
        return true;
    snprintf(g_why, sizeof(g_why),
             "SHUNT_NCCL_EP_PATH names no libnccl_ep that can be used (%s); name one of nccl-extensions",
             g_refused[0] ? g_refused : path);
    return false;
}

static void find(void)
{
    const char *setting = shim_ep_setting("SHUNT_NCCL_EP_PATH");
    atomic_store(&g_opened, setting[0] ? try_setting(setting) : search());
}

const shim_ep_real_t *shim_ep_real(void)
{
    pthread_once(&g_once, find);
    return shim_ep_real_opened();
}

const shim_ep_real_t *shim_ep_real_opened(void)
{
    return atomic_load(&g_opened) ? &g_real : NULL;
}

const char *shim_ep_real_failure(void)
{
    return g_why;
}
