/* SPDX-License-Identifier: Apache-2.0 */
/* memory_pinned.c - shared memory (memory_shared.c) that each process registers with CUDA for all its devices, for GPUs
 * without peer access. Registering and unregistering may wait for kernels. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <errno.h>

#include "transport/memory.h"
#include "transport/numa.h"

static int pin(void *at, size_t bytes, int device)
{
    net_scope_t scope;
    int one_address = 0;
    int error = net_scope_enter(&scope, device);
    if (error)
        return error;
    error = net_cuda_errno(cudaDeviceGetAttribute(&one_address, cudaDevAttrCanUseHostPointerForRegisteredMem, device));
    if (!error && !one_address)
        error = -ENOSYS;
    if (!error)
        error = net_cuda_errno(cudaHostRegister(at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    net_scope_leave(&scope);
    return error;
}

static int unpin(void *at, int device, uint64_t life)
{
    net_scope_t scope;
    if (net_device_lost(device, life))
        return 0;
    int error = net_scope_enter(&scope, device);
    if (error)
        return error;
    error = net_cuda_errno(cudaHostUnregister(at));
    net_scope_leave(&scope);
    return error;
}

/* NUMA node of the owner's GPU. So its stores stay local; peers may read across nodes. */
static int node_of(int device)
{
    char bus[32];
    return cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess ? net_numa_of_device("/sys", bus)
                                                                         : NET_ANY_NODE;
}

static int pinned_create(net_memory_t *memory, net_offer_t *offer)
{
    memory->node = node_of(memory->device);
    int error = net_memory_shared.create(memory, offer);
    if (error)
        return error;
    error = pin(memory->pointer, memory->bytes, memory->device);
    if (error) {
        (void)net_memory_shared.destroy(memory);
        memory->pointer = NULL;
    }
    return error;
}

static int pinned_destroy(net_memory_t *memory)
{
    int error = unpin(memory->pointer, memory->device, memory->life);
    return error ? error : net_memory_shared.destroy(memory);
}

static int pinned_send(const net_memory_t *memory, const net_offer_t *peer)
{
    return net_memory_shared.send(memory, peer);
}

static int pinned_open(net_memory_t *own, const net_offer_t *peer, net_mapping_t *mapping)
{
    int error = net_memory_shared.open(own, peer, mapping);
    if (error)
        return error;
    error = pin(mapping->pointer, mapping->bytes, mapping->device);
    if (error)
        net_memory_shared.close(mapping);
    return error;
}

/* Memory that cannot be unregistered stays mapped, since kernels may be using it. */
static void pinned_close(net_mapping_t *mapping)
{
    if (unpin(mapping->pointer, mapping->device, mapping->life) == 0)
        net_memory_shared.close(mapping);
}

const net_memory_ops_t net_memory_pinned = {.create = pinned_create,
                                            .destroy = pinned_destroy,
                                            .send = pinned_send,
                                            .open = pinned_open,
                                            .close = pinned_close};
