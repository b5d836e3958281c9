/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rdma_wish.h - the transport for tests of the network: sockets or, if SHUNT_IBV_SO or RDMA_DEVICES is set, RDMA. Ranks
 * use the devices of RDMA_DEVICES ("rxe0,rxe1") in turn.
 */
#ifndef SHUNT_TESTS_RDMA_WISH_H
#define SHUNT_TESTS_RDMA_WISH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/network/network.h"

typedef struct rdma_wish {
    net_rdma_t wish;
    char device[32];
} rdma_wish_t;

/* NCCL's defaults. NULL: by sockets. */
static inline const net_rdma_t *rdma_wish(rdma_wish_t *made, uint32_t rank)
{
    const char *library = getenv("SHUNT_IBV_SO"), *devices = getenv("RDMA_DEVICES");
    *made = (rdma_wish_t){.wish = {.library = library, .gid_index = -1, .timeout = 20, .retries = 7}};
    if (devices && strchr(devices, ',')) {
        const char *one = rank % 2 ? strchr(devices, ',') + 1 : devices;
        snprintf(made->device, sizeof(made->device), "=%.*s", (int)strcspn(one, ","), one);
        made->wish.devices = made->device;
    }
    return library || devices ? &made->wish : NULL;
}

static inline bool rdma_as_wished(const net_network_t *network)
{
    char way[NET_WAY_TEXT];
    net_network_way(network, way);
    const bool right = strncmp(way, getenv("SHUNT_IBV_SO") || getenv("RDMA_DEVICES") ? "RDMA" : "sockets", 4) == 0;
    if (!right)
        fprintf(stderr, "the way is %s\n", way);
    return right;
}

#endif
