/* SPDX-License-Identifier: Apache-2.0 */
/* memory_ipc.c - device memory (cudaMalloc) opened by CUDA IPC. Only ranks of one pid namespace can open its guest
 * book (guests.h). Sizes are rounded up to 2 MiB, the driver's mapping unit, as a smaller block would expose other
 * memory. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

#include "transport/memory.h"

#define IPC_UNIT ((size_t)2 << 20)

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof((net_offer_t *)0)->as.ipc.handle, "CUDA IPC handle");

static int ipc_create(net_memory_t *memory, net_offer_t *offer)
{
    net_scope_t scope;
    cudaIpcMemHandle_t handle;
    int error = net_scope_enter(&scope, memory->device);
    if (error)
        return error;
    memory->bytes = (memory->bytes + IPC_UNIT - 1) / IPC_UNIT * IPC_UNIT;
    cudaError_t result = cudaMalloc(&memory->pointer, memory->bytes);
    if (result != cudaSuccess) {
        error = net_cuda_errno(result);
        memory->pointer = NULL;
        goto leave;
    }
    error = cudaIpcGetMemHandle(&handle, memory->pointer) == cudaSuccess
                ? net_guests_open(&memory->guests, &offer->as.ipc.guests)
                : -ENOSYS;
    if (!error)
        memcpy(offer->as.ipc.handle, &handle, sizeof handle);
leave:
    net_scope_leave(&scope);
    return error;
}

static int ipc_destroy(net_memory_t *memory)
{
    net_scope_t scope;
    if (memory->guests.page && !net_guests_have_left(&memory->guests))
        return -EAGAIN;
    int error = net_scope_enter(&scope, memory->device);
    if (error)
        return error;
    if (!net_device_lost(memory->device, memory->life))
        error = net_cuda_errno(cudaFree(memory->pointer));
    net_scope_leave(&scope);
    if (error != -EAGAIN)
        net_guests_close(&memory->guests);
    return error;
}

static int ipc_open(net_memory_t *own, const net_offer_t *peer, net_mapping_t *mapping)
{
    net_scope_t scope;
    cudaIpcMemHandle_t handle;
    if (peer->owner.pid_namespace != own->owner.pid_namespace)
        return -ENOSYS;
    memcpy(&handle, peer->as.ipc.handle, sizeof handle);
    int error = net_scope_enter(&scope, mapping->device);
    if (error)
        return error;
    error = net_guest_enter(&mapping->guest, &peer->owner, &peer->as.ipc.guests);
    if (error)
        goto leave;
    error = net_cuda_errno(cudaIpcOpenMemHandle(&mapping->pointer, handle, cudaIpcMemLazyEnablePeerAccess));
    if (error)
        net_guest_leave(&mapping->guest);
leave:
    net_scope_leave(&scope);
    return error;
}

static void ipc_close(net_mapping_t *mapping)
{
    net_scope_t scope;
    if (net_scope_enter(&scope, mapping->device) != 0)
        return;
    const bool lost = net_device_lost(mapping->device, mapping->life);
    if (lost || cudaIpcCloseMemHandle(mapping->pointer) == cudaSuccess)
        net_guest_leave(&mapping->guest);
    net_scope_leave(&scope);
}

static int ipc_share(net_memory_t *memory, int device)
{
    net_scope_t scope;
    if (memory->device == device)
        return 0;
    int error = net_scope_enter(&scope, device);
    if (error)
        return error;
    cudaError_t result = cudaDeviceEnablePeerAccess(memory->device, 0);
    if (result != cudaErrorPeerAccessAlreadyEnabled)
        error = net_cuda_errno(result);
    net_scope_leave(&scope);
    return error;
}

const net_memory_ops_t net_memory_ipc = {
    .create = ipc_create, .destroy = ipc_destroy, .open = ipc_open, .close = ipc_close, .share = ipc_share};
