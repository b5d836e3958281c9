/* SPDX-License-Identifier: Apache-2.0 */
/* real_find.c - the folders in which to look for the real NCCL. Shunt, loaded under NCCL's SONAME, replaces the search
 * of the dynamic linker, or of Python. So shim_find_folders lists the folders that these search, in their order. The
 * list owns its strings. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/real/real_parts.h"

#if defined(__x86_64__)
#define FIND_MACHINE "x86_64"
#define FIND_CACHE_FLAGS 0x0303 /* flags of an ld.so.cache entry: glibc 2, this ABI */
#else
#define FIND_MACHINE "aarch64"
#define FIND_CACHE_FLAGS 0x0a03
#endif
#define FIND_ANY "*"
#define FIND_HPC_SDK "/opt/nvidia/hpc_sdk/Linux_" FIND_MACHINE "/" FIND_ANY "/comm_libs"

/* Adds nothing if the folder is listed already, its path is too long or memory is short. */
static void find_add(shim_folders_t *folders, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void find_add(shim_folders_t *folders, const char *format, ...)
{
    char path[PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    if (length <= 0 || (size_t)length >= sizeof path)
        return;
    for (size_t i = 0; i < folders->count; i++)
        if (strcmp(folders->path[i], path) == 0)
            return;
    if (folders->count == folders->capacity) {
        size_t capacity = folders->capacity ? 2 * folders->capacity : 64;
        char **grown = realloc(folders->path, capacity * sizeof *grown);
        if (!grown)
            return;
        folders->path = grown;
        folders->capacity = capacity;
    }
    char *copy = strdup(path);
    if (copy)
        folders->path[folders->count++] = copy;
}

void shim_folders_free(shim_folders_t *folders)
{
    for (size_t i = 0; i < folders->count; i++)
        free(folders->path[i]);
    free(folders->path);
    *folders = (shim_folders_t){0};
}

/* Length of the path's folder, without slash; 0: none. */
static size_t find_folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

/* The program's file, links resolved; "" if unknown. */
static void find_program(char path[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
}

typedef struct find_objects {
    shim_folders_t *folders;
    int64_t tag;
} find_objects_t;

/* In a set-user-id program the unprivileged caller chooses the executed path. */
static bool find_is_secure(void)
{
    return getauxval(AT_SECURE) != 0;
}

/* In practice $ORIGIN is only at an entry's start. */
static void find_add_run_path(shim_folders_t *folders, const char *entry, size_t length, const char *object)
{
    static const char *const origin[] = {"$ORIGIN", "${ORIGIN}"};
    for (size_t i = 0; i < sizeof origin / sizeof *origin; i++) {
        size_t skip = strlen(origin[i]);
        size_t folder = find_folder_length(object);
        if (length < skip || strncmp(entry, origin[i], skip) != 0)
            continue;
        if (folder > 0 && !find_is_secure())
            find_add(folders, "%.*s%.*s", (int)folder, object, (int)(length - skip), entry + skip);
        return;
    }
    if (length > 0 && entry[0] == '/' && !memchr(entry, '$', length))
        find_add(folders, "%.*s", (int)length, entry);
}

/* Adds a list like LD_LIBRARY_PATH. $ORIGIN is the folder of `object`. */
static void find_add_list(shim_folders_t *folders, const char *list, const char *object)
{
    while (list && *list) {
        size_t length = strcspn(list, ":;");
        find_add_run_path(folders, list, length, object);
        list += length + (list[length] != '\0');
    }
}

static const char *find_dynamic_text(const struct dl_phdr_info *info, const ElfW(Dyn) * dynamic, int64_t tag)
{
    const char *strings = NULL;
    bool found = false, newer = false;
    ElfW(Xword) offset = 0;
    for (const ElfW(Dyn) *entry = dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) {
            /* glibc has made the offset an address, except in the vDSO. */
            ElfW(Addr) table = entry->d_un.d_ptr;
            strings = (const char *)(table < info->dlpi_addr ? info->dlpi_addr + table : table);
        }
        if (entry->d_tag == DT_RUNPATH)
            newer = true;
        if (entry->d_tag == tag) {
            offset = entry->d_un.d_val;
            found = true;
        }
    }
    /* A DT_RUNPATH makes the linker ignore DT_RPATH. */
    if (!found || !strings || (tag == DT_RPATH && newer))
        return NULL;
    return strings + offset;
}

static int find_run_paths(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    const find_objects_t *objects = data;
    char object[PATH_MAX];
    if (info->dlpi_name && info->dlpi_name[0])
        snprintf(object, sizeof object, "%s", info->dlpi_name);
    else
        find_program(object);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        find_add_list(objects->folders, find_dynamic_text(info, dynamic, objects->tag), object);
    }
    return 0;
}

/* Adds the folder of an NCCL opened by path, since a second NCCL would have its own state. */
static int find_loaded(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    const find_objects_t *objects = data;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (slash && strncmp(slash, "/libnccl.so", 11) == 0)
        find_add(objects->folders, "%.*s", (int)(slash - info->dlpi_name), info->dlpi_name);
    return 0;
}

/* A loaded extension module in site-packages lies beside NVIDIA's wheels. */
static int find_wheels_beside(struct dl_phdr_info *info, size_t size, void *data)
{
    static const char *const marks[] = {"/site-packages/", "/dist-packages/"};
    (void)size;
    const find_objects_t *objects = data;
    for (size_t i = 0; info->dlpi_name && i < sizeof marks / sizeof *marks; i++) {
        const char *last = NULL;
        for (const char *at = info->dlpi_name; (at = strstr(at, marks[i])) != NULL; at++)
            last = at;
        if (last) {
            int length = (int)(last - info->dlpi_name + strlen(marks[i]));
            find_add(objects->folders, "%.*snvidia/nccl/lib", length, info->dlpi_name);
        }
    }
    return 0;
}

/* Adds <prefix>/lib/python3.N/site-packages, Debian's <prefix>/lib/python3/dist-packages, and both in lib64. */
static void find_add_prefix(shim_folders_t *folders, const char *prefix)
{
    static const char *const library[] = {"lib", "lib64"};
    for (size_t i = 0; i < sizeof library / sizeof *library; i++) {
        char path[PATH_MAX];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", prefix, library[i]) >= sizeof path)
            continue;
        DIR *folder = opendir(path);
        if (!folder)
            continue;
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            if (strncmp(entry->d_name, "python3", 7) != 0)
                continue;
            find_add(folders, "%s/%s/site-packages/nvidia/nccl/lib", path, entry->d_name);
            find_add(folders, "%s/%s/dist-packages/nvidia/nccl/lib", path, entry->d_name);
        }
        closedir(folder);
    }
    /* conda's package */
    char conda[PATH_MAX];
    struct stat status;
    if ((size_t)snprintf(conda, sizeof conda, "%s/conda-meta", prefix) < sizeof conda && stat(conda, &status) == 0)
        find_add(folders, "%s/lib", prefix);
}

/* `file`: <prefix>/bin/python3. */
static void find_add_python_file(shim_folders_t *folders, const char *file)
{
    size_t length = find_folder_length(file);
    if (file[0] != '/' || length < 4 || strncmp(file + length - 4, "/bin", 4) != 0)
        return;
    char prefix[PATH_MAX];
    snprintf(prefix, sizeof prefix, "%.*s", (int)(length - 4), file);
    find_add_prefix(folders, prefix);
    if (strcmp(prefix, "/usr") == 0) /* where Debian's pip for /usr/bin/python3 installs */
        find_add_prefix(folders, "/usr/local");
}

static bool find_program_is_python(const char *program)
{
    const char *slash = strrchr(program, '/');
    return slash && strncmp(slash + 1, "python", 6) == 0;
}

static void find_add_python(shim_folders_t *folders, const char *executed, const char *program)
{
    static const char *const variables[] = {"VIRTUAL_ENV", "PYTHONHOME", "CONDA_PREFIX"};
    /* The executed path belongs to a virtual environment, the real file does not. */
    if (executed && find_program_is_python(executed) && !find_is_secure())
        find_add_python_file(folders, executed);
    const char *path = secure_getenv("PYTHONPATH");
    while (path && *path) {
        size_t length = strcspn(path, ":");
        if (path[0] == '/')
            find_add(folders, "%.*s/nvidia/nccl/lib", (int)length, path);
        path += length + (path[length] != '\0');
    }
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *prefix = secure_getenv(variables[i]);
        if (prefix && prefix[0] == '/')
            find_add_prefix(folders, prefix);
    }
    const char *home = secure_getenv("HOME");
    if (home && home[0] == '/') {
        char user[PATH_MAX];
        snprintf(user, sizeof user, "%s/.local", home);
        find_add_prefix(folders, user);
    }
    if (find_program_is_python(program) && !find_is_secure())
        find_add_python_file(folders, program);
}

/* Adds a virtual environment, and the Python to which it links. */
static void find_add_python_link(shim_folders_t *folders, const char *file)
{
    char real[PATH_MAX];
    find_add_python_file(folders, file);
    if (realpath(file, real))
        find_add_python_file(folders, real);
}

/* For programs other than Python: adds the user's and the system's Python. */
static void find_add_usual_python(shim_folders_t *folders)
{
    const char *path = secure_getenv("PATH");
    for (size_t length; path && *path; path += length + (path[length] != '\0')) {
        char file[PATH_MAX];
        struct stat status;
        length = strcspn(path, ":");
        int bytes = snprintf(file, sizeof file, "%.*s/python3", (int)length, path);
        if (path[0] == '/' && bytes < (int)sizeof file && stat(file, &status) == 0 && S_ISREG(status.st_mode) &&
            access(file, X_OK) == 0) {
            find_add_python_link(folders, file);
            break;
        }
    }
    find_add_python_link(folders, "/usr/bin/python3");
}

enum { FIND_CACHE_BYTES = 32 << 20 }; /* limit; a large system's cache has 200 KB */

/* glibc's format: header, entries, strings at offsets from the header. */
typedef struct find_cache_header {
    char magic[20]; /* "glibc-ld.so.cache1.1", without a final NUL */
    uint32_t entries;
    uint32_t string_bytes;
    uint32_t unused[5];
} find_cache_header_t;

typedef struct find_cache_entry {
    int32_t flags;
    uint32_t name, path;
    uint32_t system;
    uint64_t hardware;
} find_cache_entry_t;

_Static_assert(sizeof(find_cache_header_t) == 48 && sizeof(find_cache_entry_t) == 24, "format of ld.so.cache");

static char *find_read_file(const char *path, size_t *bytes)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    char *text = NULL;
    ssize_t got = 0;
    if (descriptor < 0)
        return NULL;
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= FIND_CACHE_BYTES)
        text = malloc((size_t)status.st_size);
    if (text)
        got = read(descriptor, text, (size_t)status.st_size);
    close(descriptor);
    if (got <= 0) {
        free(text);
        return NULL;
    }
    *bytes = (size_t)got;
    return text;
}

static const char *find_cache_text(const char *base, size_t bytes, uint32_t offset)
{
    return offset < bytes && memchr(base + offset, '\0', bytes - offset) ? base + offset : NULL;
}

static void find_add_cache(shim_folders_t *folders, const char *file)
{
    static const char magic[] = "glibc-ld.so.cache1.1";
    size_t bytes = 0;
    char *text = find_read_file(file, &bytes);
    if (!text)
        return;
    /* Until glibc 2.32 the file begins with a table of an older format. */
    const char *base = memmem(text, bytes, magic, sizeof magic - 1);
    find_cache_header_t header;
    if (!base || bytes - (size_t)(base - text) < sizeof header)
        goto free_text;
    size_t left = bytes - (size_t)(base - text);
    memcpy(&header, base, sizeof header);
    for (uint32_t i = 0; i < header.entries && sizeof header + (i + 1) * sizeof(find_cache_entry_t) <= left; i++) {
        find_cache_entry_t entry;
        memcpy(&entry, base + sizeof header + i * sizeof entry, sizeof entry);
        const char *name = find_cache_text(base, left, entry.name);
        const char *path = find_cache_text(base, left, entry.path);
        if (!name || !path || entry.flags != FIND_CACHE_FLAGS || strcmp(name, "libnccl.so.2") != 0)
            continue;
        find_add(folders, "%.*s", (int)find_folder_length(path), path);
    }
free_text:
    free(text);
}

static void find_add_glob(shim_folders_t *folders, const char *pattern)
{
    glob_t found = {0};
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i-- > 0;) /* newest first, by name */
            find_add(folders, "%s", found.gl_pathv[i]);
    globfree(&found);
}

static void find_add_system(shim_folders_t *folders)
{
    static const char *const fixed[] = {"/lib/" FIND_MACHINE "-linux-gnu",
                                        "/usr/lib/" FIND_MACHINE "-linux-gnu",
                                        "/lib64",
                                        "/usr/lib64",
                                        "/lib",
                                        "/usr/lib",
                                        "/usr/local/lib",
                                        "/usr/local/lib64"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        find_add(folders, "%s", fixed[i]);
}

static void find_add_cuda(shim_folders_t *folders)
{
    static const char *const variables[] = {"CUDA_HOME", "CUDA_PATH"};
    static const char *const patterns[] = {"/usr/local/cuda/lib64",
                                           "/usr/local/cuda/lib",
                                           "/usr/local/cuda-*/lib64",
                                           "/usr/local/cuda-*/lib",
                                           "/opt/nvidia/nccl*/lib",
                                           FIND_HPC_SDK "/nccl/lib",
                                           FIND_HPC_SDK "/" FIND_ANY "/nccl/lib"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *home = secure_getenv(variables[i]);
        if (!home || home[0] != '/')
            continue;
        find_add(folders, "%s/lib64", home);
        find_add(folders, "%s/lib", home);
    }
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        find_add_glob(folders, patterns[i]);
}

static void find_add_own(shim_folders_t *folders)
{
    Dl_info own;
    if (dladdr((void *)shim_find_folders, &own) && own.dli_fname)
        find_add(folders, "%.*s", (int)find_folder_length(own.dli_fname), own.dli_fname);
}

void shim_find_folders(shim_folders_t *folders, const char *executed)
{
    find_objects_t objects = {.folders = folders};
    char program[PATH_MAX];
    if (!executed || !realpath(executed, program))
        find_program(program);
    if (!executed)
        executed = (const char *)getauxval(AT_EXECFN);
    bool python = find_program_is_python(program);

    dl_iterate_phdr(find_loaded, &objects);
    objects.tag = DT_RPATH;
    dl_iterate_phdr(find_run_paths, &objects);
    dl_iterate_phdr(find_wheels_beside, &objects);
    if (python)
        find_add_python(folders, executed, program);
    find_add_own(folders);
    find_add_list(folders, secure_getenv("LD_LIBRARY_PATH"), program);
    objects.tag = DT_RUNPATH;
    dl_iterate_phdr(find_run_paths, &objects);
    find_add_cache(folders, "/etc/ld.so.cache");
    find_add_system(folders);
    find_add_cuda(folders);
    if (!python) { /* active environments before other Pythons */
        find_add_python(folders, executed, program);
        find_add_usual_python(folders);
    }
}
