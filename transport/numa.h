/* SPDX-License-Identifier: Apache-2.0 */
/* numa.h - a device's NUMA node, and memory from it. */
#ifndef SHUNT_TRANSPORT_NUMA_H
#define SHUNT_TRANSPORT_NUMA_H

#include <stddef.h>

enum { NET_ANY_NODE = -1, NET_MOST_NODES = 1024 };

/* The node of the PCI device `bus` ("0000:17:00.0", in any case) by the files below `sys` ("/sys"); NET_ANY_NODE:
 * unknown. */
int net_numa_of_device(const char *sys, const char *bus);
/* Pages not allocated yet come from this node while it has free ones, whichever process touches shared memory first;
 * from any where the system forbids it. */
void net_numa_prefer(void *at, size_t bytes, int node);

#endif
