/* SPDX-License-Identifier: Apache-2.0 */
/* numa.h - a device's NUMA node, and memory from it. Private to this folder. */
#ifndef SHUNT_TRANSPORT_NUMA_H
#define SHUNT_TRANSPORT_NUMA_H

#include <stddef.h>

enum { NET_ANY_NODE = -1, NET_MOST_NODES = 1024 };

/* The node of the PCI device `bus` ("0000:17:00.0", in any case) according to the files below `sys` ("/sys");
 * NET_ANY_NODE if they do not tell. */
int net_numa_of_device(const char *sys, const char *bus);
/* Pages of a mapping that are not allocated yet come from this node while it has free ones; of shared memory, whichever
 * process touches them first. Where the system does not allow it, they come from any node. */
void net_numa_prefer(void *at, size_t bytes, int node);

#endif
