/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - the GPU of a rank, and how it reaches the others.
 */
#ifndef SHUNT_SHIM_LINK_H
#define SHUNT_SHIM_LINK_H

#include <stdint.h>

#include "selector/topology.h"

/* What other processes need to know of a GPU; plain data, without padding. */
typedef struct shim_gpu {
    uint8_t uuid[16];
    uint32_t pci_domain, pci_bus, pci_device;
    uint32_t arch; /* 10 * major + minor */
    uint32_t multiprocessors;
    uint32_t multicast;   /* the device has NVLink multicast, which the real NCCL may use */
    uint64_t fingerprint; /* of its kind: sel_gpu_fingerprint */
} shim_gpu_t;

/* The GPU of a CUDA ordinal, and its kind; 0 or a negative errno (-ENOSYS in a build without CUDA). */
int shim_link_gpu(int device, shim_gpu_t *gpu, sel_gpu_kind_t *kind);
/* How `gpu[own]`, which is `device` here, reaches the others of the `count` GPUs. Looks only; that peers
 * can be reached is proven later, with bytes. */
sel_reach_t shim_link_reach(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count);
/* CUDA does not say that the memory of one of them cannot be reached from here. */
bool shim_link_peers(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count);
/* Its PCI address. */
void shim_link_bus(const shim_gpu_t *gpu, char bus[SEL_BUS_BYTES]);

#endif
