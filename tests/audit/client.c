/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - a program that opens the NCCL in its argument: audit_client PATH|NAME. Prints whether its symbols are
 * Shunt's, the version, and the number of loaded NCCLs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static int count(struct dl_phdr_info *info, size_t size, void *loaded)
{
    (void)size;
    *(int *)loaded += strstr(info->dlpi_name, "/libnccl.so") != NULL;
    return 0;
}

int main(int argc, char **argv)
{
    int version = 0, loaded = 0;
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: audit_client PATH");
        return 1;
    }
    int (*get_version)(int *) = (int (*)(int *))dlsym(library, "ncclGetVersion");
    if (!get_version || get_version(&version) != 0)
        return 1;
    dl_iterate_phdr(count, &loaded);
    printf("%s %d %d\n", dlsym(library, "shunt_version") ? "shunt" : "plain", version, loaded);
    return 0;
}
