/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.c - a program that uses nccl_ep: ep_client PATH|linked [create [NCCL]]. It opens the library of that path as
 * Python's nccl.ep does, or has it linked; before, it opens an NCCL, locally. Prints the file that its functions are
 * in, how many libnccl_ep are loaded, and with `create` the version after a group was created.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "structures.h"

static int count(struct dl_phdr_info *info, size_t size, void *loaded)
{
    (void)size;
    *(int *)loaded += strstr(info->dlpi_name, "/libnccl_ep.so") != NULL;
    return 0;
}

int main(int argc, char **argv)
{
    const ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    ncclEpGroup_t group = NULL;
    Dl_info info;
    int version = 0, loaded = 0;
    void *library = RTLD_DEFAULT;
    if (argc > 3 && !dlopen(argv[3], RTLD_NOW | RTLD_LOCAL))
        return 1;
    if (argc > 1 && strcmp(argv[1], "linked") != 0 && !(library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL))) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    __typeof__(&ncclEpCreateGroup) create = (__typeof__(create))dlsym(library, "ncclEpCreateGroup");
    __typeof__(&ncclEpGetVersion) get_version = (__typeof__(get_version))dlsym(library, "ncclEpGetVersion");
    if (!create || !get_version || !dladdr((void *)create, &info))
        return 1;
    if (argc > 2 && create(&group, COMM, &config) != ncclSuccess)
        return 1;
    get_version(&version);
    dl_iterate_phdr(count, &loaded);
    printf("%s %d %d\n", info.dli_fname, loaded, version);
    return 0;
}
