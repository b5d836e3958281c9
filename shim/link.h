/*
 * link.h - the GPU of a rank, and how it reaches the others.
 */
#ifndef SHUNT_SHIM_LINK_H
#define SHUNT_SHIM_LINK_H

#include <stdbool.h>
#include <stdint.h>

/* What other processes need to know of a GPU; plain data, without padding. */
typedef struct shim_gpu {
    uint8_t uuid[16];
    uint32_t pci_domain, pci_bus, pci_device;
    uint32_t arch; /* 10 * major + minor */
    uint32_t multiprocessors;
    uint32_t multicast; /* the device has NVLink multicast, which the real NCCL may use */
} shim_gpu_t;

/* The GPU of a CUDA ordinal; 0 or a negative errno (-ENOSYS in a build without CUDA). */
int shim_link_gpu(int device, shim_gpu_t *gpu);
/* Does `gpu[own]`, which is `device` here, reach every other of the `count` GPUs over NVLink? False
 * where that cannot be found out. Looks only; that peers can be reached is proven later, with bytes. */
bool shim_link_nvlink(int device, const shim_gpu_t *gpu, uint32_t own, uint32_t count);

#endif
