/* SPDX-License-Identifier: Apache-2.0 */
/* numa.c - mbind is a direct system call, so that no program needs libnuma. */
#define _GNU_SOURCE
#include "transport/numa.h"

#include <ctype.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int net_numa_of_device(const char *sys, const char *bus)
{
    char path[512], text[16];
    int used = snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", sys, bus);
    if (used < 0 || used >= (int)sizeof path)
        return NET_ANY_NODE;
    for (char *at = path + used - sizeof "/numa_node"; at > path && *at != '/'; at--)
        *at = (char)tolower((unsigned char)*at); /* CUDA writes capitals, /sys lower case */
    FILE *file = fopen(path, "re");
    if (!file)
        return NET_ANY_NODE;
    const bool any = fgets(text, sizeof text, file);
    fclose(file);
    char *end = text;
    const long node = any ? strtol(text, &end, 10) : NET_ANY_NODE;
    return end > text && node >= 0 && node < NET_MOST_NODES ? (int)node : NET_ANY_NODE;
}

void net_numa_prefer(void *at, size_t bytes, int node)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NET_MOST_NODES / BITS] = {0};
    if (node < 0 || node >= NET_MOST_NODES)
        return;
    mask[node / BITS] = 1ul << node % BITS;
    (void)syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, mask, (unsigned long)NET_MOST_NODES + 1, 0);
}
