/* SPDX-License-Identifier: Apache-2.0 */
/* link.h - a rank's GPU, and how it reaches the others. */
#ifndef SHUNT_SHIM_LINK_H
#define SHUNT_SHIM_LINK_H

#include <stdint.h>

#include "selector/topology/topology.h"

/* Sent to other processes, so it has no padding. */
typedef struct shim_gpu {
    uint8_t uuid[16];
    uint32_t pci_domain, pci_bus, pci_device;
    uint32_t arch; /* 10 * major + minor */
    uint32_t multiprocessors;
    uint32_t multicast;   /* least number of GPUs for multicast (multicast.h); 0: none */
    uint64_t fingerprint; /* sel_gpu_fingerprint of the GPU's kind */
} shim_gpu_t;

/* Fill in GPU and kind of a CUDA ordinal; 0 or a negative errno (-ENOSYS without CUDA). */
int shim_link_gpu(int device, shim_gpu_t *gpu, sel_gpu_kind_t *kind);
/* The worst path from gpu[own], CUDA ordinal `device`, to the others. Only queries; the set-up's proof shows that
 * access works. */
sel_reach_t shim_link_reach(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count);
/* False if CUDA denies `device` access to any of these GPUs. */
bool shim_link_peers(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count);
void shim_link_bus(const shim_gpu_t *gpu, char bus[SEL_BUS_BYTES]);

#endif
