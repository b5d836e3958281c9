/* SPDX-License-Identifier: Apache-2.0 */
/*
 * newer_client.c - a program linked against an NCCL newer than Shunt. Prints whether the names that Shunt knows are
 * bound to Shunt, the version, the result of the newest call, the number of calls that Shunt has counted since, and the
 * number of loaded NCCLs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <shunt.h>

int ncclGetVersion(int *version);
int ncclNewest(void *buffer);

static int count(struct dl_phdr_info *info, size_t size, void *loaded)
{
    (void)size;
    *(int *)loaded += strstr(info->dlpi_name, "/libnccl.so") != NULL;
    return 0;
}

int main(void)
{
    int version = 0, loaded = 0, calls = 0;
    shunt_statistics_t statistics = {.size = sizeof(statistics)};
    if (ncclGetVersion(&version) != 0 || ncclNewest(&calls) != 0)
        return 1;
    int (*stats)(shunt_statistics_t *) = (int (*)(shunt_statistics_t *))dlsym(RTLD_DEFAULT, "shunt_stats");
    if (stats && stats(&statistics) != 0)
        return 1;
    dl_iterate_phdr(count, &loaded);
    printf("%s %d %d %d %d\n", dlsym(RTLD_DEFAULT, "shunt_version") ? "shunt" : "plain", version, calls,
           (int)statistics.calls_forwarded, loaded);
    return 0;
}
