/* SPDX-License-Identifier: Apache-2.0 */
/* numa.h - the NUMA node of a device, and memory on it. */
#ifndef SHUNT_TRANSPORT_NUMA_H
#define SHUNT_TRANSPORT_NUMA_H

#include <stddef.h>

enum { NET_ANY_NODE = -1, NET_MOST_NODES = 1024 };

/* Node of the PCI device `bus` ("0000:17:00.0", in any case), from files below `sys` ("/sys"), or NET_ANY_NODE. */
int net_numa_of_device(const char *sys, const char *bus);
/* New pages will come from this node while it has free ones, whatever thread touches them, if the system allows. */
void net_numa_prefer(void *at, size_t bytes, int node);

#endif
