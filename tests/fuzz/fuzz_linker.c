/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_linker.c - what a program's dynamic linker prints for --list: any bytes give no path, or an absolute path from
 * the input whose last part begins with libnccl.so.
 */
#include <stdint.h>

#include "tools/run/behind.c"

/* Whether the path is in the bytes. Not strstr, since the bytes may contain NULs. */
static bool is_in(const uint8_t *data, size_t size, const char *path)
{
    const size_t length = strlen(path);
    for (size_t i = 0; i + length <= size; i++) {
        if (memcmp(data + i, path, length) == 0) {
            return true;
        }
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_MAX];
    int ends[2];
    if (size > 60000 || pipe(ends) != 0) { /* a pipe holds 64 KiB */
        return 0;
    }
    if (write(ends[1], data, size) != (ssize_t)size) {
        abort();
    }
    close(ends[1]);
    memset(path, 'x', sizeof path);
    if (read_list(ends[0], path)) {
        const char *end = memchr(path, '\0', sizeof path), *base = end != NULL ? strrchr(path, '/') : NULL;
        if (base == NULL || path[0] != '/' || strncmp(base, "/libnccl.so", 11) != 0 || !is_in(data, size, path)) {
            abort();
        }
    }
    return 0;
}
