/* SPDX-License-Identifier: Apache-2.0 */
/* numa.h - which NUMA node a device is at, and memory there. Private to this room. */
#ifndef SHUNT_TRANSPORT_NUMA_H
#define SHUNT_TRANSPORT_NUMA_H

#include <stddef.h>

enum { NET_ANY_NODE = -1, NET_MOST_NODES = 1024 };

/* The node of the PCI device `bus` ("0000:17:00.0", in any case), as the files below `sys` ("/sys") say; NET_ANY_NODE
 * where they do not. */
int net_numa_of_device(const char *sys, const char *bus);
/* Pages of a mapping that do not exist yet come from this node if it has any: of shared memory whoever touches them
 * first. Where the system does not allow it, they come from anywhere. */
void net_numa_prefer(void *at, size_t bytes, int node);

#endif
