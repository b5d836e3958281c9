/* SPDX-License-Identifier: Apache-2.0 */
/* real.c - the real NCCL: found, opened and prepared once. It is opened by absolute path: for its SONAME the linker
 * would return Shunt. RTLD_LOCAL keeps its names out of the global scope. The answer is final, even "none", so that a
 * program gets one NCCL for all communicators. Nothing is freed: NCCL's threads may run until the process ends. */
#define _GNU_SOURCE
#include "shim/real/real.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shim/base/device.h"
#include "shim/base/log.h"
#include "shim/base/settings.h"
#include "shim/real/real_parts.h"
#include "transport/transport.h"

enum { REAL_OLDEST = 21800 };

typedef enum real_state { REAL_UNKNOWN = 0, REAL_OPEN = 1, REAL_NONE = 2 } real_state_t;

static _Atomic int real_state;
/* Recursive: a constructor of the library being opened may call NCCL. */
static pthread_mutex_t real_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t real_fork_once = PTHREAD_ONCE_INIT;
static bool real_searching;
static shim_real_t real;
static char real_path[PATH_MAX];
static char real_why[PATH_MAX + 512];     /* shim_real_failure's text */
static char real_refused[PATH_MAX + 256]; /* first file found and refused */

void shim_real_log_missing(const char *name)
{
    if (shim_cpu_mode()) {
        shim_warn("%s does not exist on the CPU device and returns ncclInvalidUsage; it needs GPUs and the real NCCL "
                  "(SHUNT_DEVICE=cuda)",
                  name);
        return;
    }
    const shim_real_t *library = shim_real();
    if (library)
        shim_warn("%s is not in NCCL %d.%d.%d (%s): calls of it return ncclInvalidUsage; install a newer NCCL, or name "
                  "one with SHUNT_NCCL_PATH",
                  name, SHIM_VERSION_PARTS(library->version), library->path);
    else
        shim_warn("%s needs a real NCCL and returns ncclInvalidUsage; %s", name, shim_real_failure());
}

/* missing_<name> replaces a treated function that the library lacks. It ignores its arguments: one signature serves
 * all. Every library must have the two functions that return text (real_version). */
#define SHIM_TREATED(name)                   \
    static ncclResult_t missing_##name(void) \
    {                                        \
        static atomic_bool said;             \
        if (!atomic_exchange(&said, true))   \
            shim_real_log_missing(#name);    \
        return ncclInvalidUsage;             \
    }
#include "shim/names/names.def"

void shim_real_fill_missing(shim_real_t *table)
{
#define SHIM_TREATED(name) table->name = (__typeof__(table->name))(void *)missing_##name;
#include "shim/names/names.def"
}

void *shim_real_symbol(const shim_real_t *library, const char *name)
{
    return shim_open_symbol(library->handle, name);
}

static void real_fill(void)
{
    void *address;
    shim_real_fill_missing(&real);
#define SHIM_TREATED(name)                    \
    address = shim_real_symbol(&real, #name); \
    if (address)                              \
        real.name = (__typeof__(real.name))address;
#include "shim/names/names.def"
}

static bool real_is_self(const char *path)
{
    Dl_info own;
    struct stat ours, theirs;
    return dladdr((void *)shim_real, &own) && own.dli_fname && stat(own.dli_fname, &ours) == 0 &&
           stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* Returns the library's version; 0 and a reason: it is unusable. */
static int real_version(void *handle, char *why, size_t capacity)
{
    static const char *const required[] = {"ncclCommInitRank", "ncclGetErrorString", "ncclGetLastError"};
    const shim_real_t candidate = {.handle = handle};
    ncclResult_t (*get_version)(int *) = (ncclResult_t(*)(int *))shim_real_symbol(&candidate, "ncclGetVersion");
    int version = 0;
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        if (shim_real_symbol(&candidate, required[i]))
            continue;
        snprintf(why, capacity, "it has no %s", required[i]);
        return 0;
    }
    if (!get_version || get_version(&version) != ncclSuccess) {
        snprintf(why, capacity, "its ncclGetVersion fails");
        return 0;
    }
    if (version < REAL_OLDEST) {
        snprintf(why, capacity, "its version code is %d, older than 2.18", version);
        return 0;
    }
    return version;
}

/* `path` is absolute and has no links. */
static bool real_open(const char *path, char *why, size_t capacity)
{
    if (real_is_self(path)) {
        snprintf(why, capacity, "it is Shunt itself");
        return false;
    }
    if (!shim_elf_check(path, why, capacity))
        return false;
    void *handle = shim_open_path(path);
    const struct link_map *library = shim_open_map(handle);
    if (!library) {
        const char *error = handle ? "the dynamic linker returns Shunt itself for it" : dlerror();
        snprintf(why, capacity, "%s", error ? error : "dlopen failed");
        if (handle)
            dlclose(handle);
        return false;
    }
    if (!shim_bind_own_slots(library))
        shim_warn(
            "%s: some of its calls to its own functions go through Shunt; results stay right, but traces and counts "
            "may show calls that the program did not make; nothing needs to be done",
            path);
    int version = real_version(handle, why, capacity);
    if (version == 0) {
        dlclose(handle);
        return false;
    }
    snprintf(real_path, sizeof real_path, "%s", path);
    real.handle = handle;
    real.path = real_path;
    real.version = version;
    real_fill();
    shim_child_find(path, library);
    return true;
}

static bool real_try(const char *path)
{
    char file[PATH_MAX], why[384] = "";
    if (!realpath(path, file)) {
        if (errno == ENOENT || errno == ENOTDIR)
            return false;
        snprintf(why, sizeof why, "%s", strerror(errno));
    } else if (real_open(file, why, sizeof why)) {
        return true;
    }
    shim_trace("%s is not used as the real NCCL: %s", path, why);
    if (real_refused[0] == '\0')
        snprintf(real_refused, sizeof real_refused, "%s: %s", path, why);
    return false;
}

static int real_is_versioned(const struct dirent *entry)
{
    return strncmp(entry->d_name, "libnccl.so.2.", 13) == 0;
}

static bool real_try_folder(const char *folder)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/libnccl.so.2", folder) >= sizeof path)
        return false;
    if (real_try(path))
        return true;
    /* Where Shunt has replaced the file or its link, the real one is beside it, with a longer name. */
    struct dirent **names = NULL;
    int count = scandir(folder, &names, real_is_versioned, versionsort);
    bool opened = false;
    for (int i = count - 1; i >= 0; i--) {
        if (!opened && (size_t)snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name) < sizeof path)
            opened = real_try(path);
        free(names[i]);
    }
    free(names);
    return opened;
}

static bool real_try_setting(const char *setting)
{
    struct stat status;
    char why[sizeof real_refused];
    bool folder = stat(setting, &status) == 0 && S_ISDIR(status.st_mode);
    if (folder ? real_try_folder(setting) : real_try(setting))
        return true;
    snprintf(why, sizeof why, "%s", real_refused);
    if (why[0] == '\0')
        snprintf(why, sizeof why, "%s: %s", setting, folder ? "no libnccl.so.2 in this folder" : "no such file");
    snprintf(real_why, sizeof real_why,
             "SHUNT_NCCL_PATH names no NCCL that can be used (%s); name the file or folder of a real libnccl.so.2",
             why);
    return false;
}

static bool real_search(void)
{
    shim_folders_t folders = {0};
    bool opened = false;
    shim_find_folders(&folders, NULL);
    for (size_t i = 0; i < folders.count && !opened; i++)
        opened = real_try_folder(folders.path[i]);
    if (!opened)
        snprintf(real_why, sizeof real_why,
                 "no real NCCL found in %zu folders (run paths, Python's wheels, LD_LIBRARY_PATH, the linker's cache, "
                 "CUDA's)%s%s; set SHUNT_NCCL_PATH to a real libnccl.so.2",
                 folders.count, real_refused[0] ? "; not taken: " : "", real_refused);
    shim_folders_free(&folders);
    return opened;
}

/* A fork during a load would give the child a held lock and a half-loaded library, so the fork waits. */
static void real_before_fork(void)
{
    pthread_mutex_lock(&real_lock);
    shim_child_expected();
}

static void real_after_fork(void)
{
    pthread_mutex_unlock(&real_lock);
}

/* Makes the lock anew: only the holder can unlock, and the child's thread has another id. */
static void real_in_child(void)
{
    real_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    shim_child_begins();
}

static void real_watch_forks(void)
{
    net_lock_watch_forks(); /* first, so that a fork takes real_lock before the log's */
    pthread_atfork(real_before_fork, real_after_fork, real_in_child);
}

static const shim_real_t *real_load(void)
{
    pthread_once(&real_fork_once, real_watch_forks);
    pthread_mutex_lock(&real_lock);
    int state = atomic_load_explicit(&real_state, memory_order_relaxed);
    if (state == REAL_UNKNOWN && !real_searching) {
        real_searching = true;
        const char *setting = shim_setting_nccl_path();
        bool opened = setting && setting[0] ? real_try_setting(setting) : real_search();
        state = opened ? REAL_OPEN : REAL_NONE;
        real_searching = false;
        atomic_store_explicit(&real_state, state, memory_order_release);
        if (opened)
            shim_info("opened the real NCCL: nccl_version=%d.%d.%d nccl_path=%s", SHIM_VERSION_PARTS(real.version),
                      real.path);
    }
    pthread_mutex_unlock(&real_lock);
    return state == REAL_OPEN ? &real : NULL;
}

const shim_real_t *shim_real(void)
{
    int state = atomic_load_explicit(&real_state, memory_order_acquire);
    if (state == REAL_UNKNOWN)
        return real_load();
    return state == REAL_OPEN ? &real : NULL;
}

const char *shim_real_failure(void)
{
    return atomic_load_explicit(&real_state, memory_order_acquire) == REAL_NONE ? real_why : "";
}
