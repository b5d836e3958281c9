/* SPDX-License-Identifier: Apache-2.0 */
/* rdma.h - the RDMA port by which a rank reaches other nodes, and NCCL's variables. */
#ifndef SHUNT_SHIM_RDMA_H
#define SHUNT_SHIM_RDMA_H

#include "selector/topology/topology.h"
#include "transport/network/network.h"

typedef struct shim_rdma {
    net_rdma_t wish;
    net_port_t nearest[SEL_MAX_NICS];
} shim_rdma_t;

/* For a rank on the GPU `device` (-1: CPU device). `wish` points into `rdma`, to settings, and to values of
 * shim_nccl_env. */
void shim_rdma_read(int device, shim_rdma_t *rdma);

#endif
