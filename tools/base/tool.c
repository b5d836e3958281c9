/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.c - messages, and the libraries that the command opens.
 */
#include "tools/base/tool.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int tool_usage(const char *command, const char *format, ...)
{
    fprintf(stderr, "shunt %s: ", command);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "; see: shunt %s --help\n", command);
    return TOOL_USAGE;
}

bool tool_number(const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0 || *end != '\0' || number < low || number > high) {
        return false;
    }
    *value = number;
    return true;
}

bool tool_size(const char *text, uint64_t *value)
{
    static const uint64_t most = 1ull << 40;
    static const char units[] = "KMG";
    size_t length = strlen(text);
    char digits[24];
    int shift = 0;
    if (length == 0 || length >= sizeof digits) {
        return false;
    }
    memcpy(digits, text, length + 1);
    const char *unit = strchr(units, toupper((unsigned char)digits[length - 1]));
    if (unit != NULL) {
        shift = 10 * (int)(unit - units + 1);
        digits[length - 1] = '\0';
    }
    uint64_t number = 0;
    if (!tool_number(digits, 1, most >> shift, &number)) {
        return false;
    }
    *value = number << shift;
    return true;
}

/* The path with links resolved; false if there is no such file. */
static bool existing(const char *name, char path[PATH_MAX])
{
    return realpath(name, path) != NULL && access(path, R_OK) == 0;
}

bool tool_library_path(char path[PATH_MAX], char error[TOOL_ERROR_BYTES])
{
    const char *named = secure_getenv("SHUNT_LIB");
    if (named != NULL && named[0] != '\0') {
        if (existing(named, path)) {
            return true;
        }
        snprintf(error, TOOL_ERROR_BYTES, "SHUNT_LIB=%s: no such file", named);
        return false;
    }
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) {
        snprintf(error, TOOL_ERROR_BYTES, "/proc/self/exe cannot be read: set SHUNT_LIB to libnccl.so.2");
        return false;
    }
    program[length] = '\0';
    char *slash = strrchr(program, '/');
    *slash = '\0';
    /* Relative paths in the build tree and after cmake --install. */
    static const char *const folders[] = {"../lib", SHUNT_LIBRARY_FOLDER};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char name[PATH_MAX + 64];
        snprintf(name, sizeof name, "%s/%s/libnccl.so.2", program, folders[i]);
        if (existing(name, path)) {
            return true;
        }
    }
    snprintf(error, TOOL_ERROR_BYTES, "no libnccl.so.2 in %.300s/../lib: set SHUNT_LIB to it", program);
    return false;
}

static bool find(void *library, const char *path, const char *name, void *pointer, char error[TOOL_ERROR_BYTES])
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        snprintf(error, TOOL_ERROR_BYTES, "%.400s lacks %s", path, name);
        return false;
    }
    memcpy(pointer, &found, sizeof found);
    return true;
}

static void *open_library(const char *path, char error[TOOL_ERROR_BYTES])
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(error, TOOL_ERROR_BYTES, "%s", dlerror());
    }
    return library;
}

static bool find_nccl(void *library, const char *path, tool_nccl_t *nccl, char error[TOOL_ERROR_BYTES])
{
    char lacking[TOOL_ERROR_BYTES];
#define FIND_LATER(name)                                     \
    if (!find(library, path, #name, &nccl->name, lacking)) { \
        nccl->name = NULL;                                   \
    }
    TOOL_LATER_NCCL_CALLS(FIND_LATER)
#undef FIND_LATER
#define FIND(name) find(library, path, #name, &nccl->name, error) &&
    return TOOL_NCCL_CALLS(FIND) true;
#undef FIND
}

bool tool_open_shunt(tool_shunt_t *shunt, tool_nccl_t *nccl, char error[TOOL_ERROR_BYTES])
{
    char path[PATH_MAX];
    if (!tool_library_path(path, error)) {
        return false;
    }
    void *library = open_library(path, error);
    if (library == NULL) {
        return false;
    }
#define FIND(name) find(library, path, #name, &shunt->name, error) &&
    return TOOL_SHUNT_CALLS(FIND)(nccl == NULL || find_nccl(library, path, nccl, error));
#undef FIND
}

bool tool_open_nccl(const char *path, tool_nccl_t *nccl, char error[TOOL_ERROR_BYTES])
{
    void *library = open_library(path, error);
    return library != NULL && find_nccl(library, path, nccl, error);
}

void tool_version_text(int code, char text[16])
{
    /* NCCL up to 2.8 coded versions differently, but Shunt requires a newer one. */
    snprintf(text, 16, "%d.%d.%d", code / 10000 % 100, code / 100 % 100, code % 100);
}

void tool_duration_text(double us, char text[16])
{
    const double size = us < 0 ? -us : us;
    if (size >= 1e6) {
        snprintf(text, 16, "%.2f s", us * 1e-6);
    } else if (size >= 1e3) {
        snprintf(text, 16, "%.2f ms", us * 1e-3);
    } else {
        snprintf(text, 16, "%.2f us", us);
    }
}

bool tool_grow(void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    const uint32_t more = *capacity != 0 ? 2 * *capacity : 64;
    void *grown = realloc(*array, more * size);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *capacity = more;
    return true;
}
