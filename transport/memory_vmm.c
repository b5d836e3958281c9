/* SPDX-License-Identifier: Apache-2.0 */
/* memory_vmm.c - device memory made of a physical block and a mapping (cuMem*). The first choice, since only it can be
 * added piece by piece to a reserved range. A block lives while any process holds it, so an owner may free it before
 * its peers. Access is granted per mapping and device, without peer access of contexts. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "transport/cuda_driver.h"
#include "transport/memory.h"

/* One thread at a time makes cuMem* calls: on 4 H200 (driver 580.159.04) cuMemUnmap crashed while other threads of the
 * process made such calls (`gpu_comms -k many`, threads). After MOST_NS a thread goes on without the turn: an unmapping
 * may wait for kernels that need a call of a waiting thread, and in a forked child no thread gives the lock back. */
static const uint64_t MOST_NS = 1000000000;
enum { NAP_NS = 50000 };
static pthread_mutex_t g_turn = PTHREAD_MUTEX_INITIALIZER;

static bool take_turn(void)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const uint64_t begin = net_now_ns();
    while (pthread_mutex_trylock(&g_turn) != 0) {
        if (net_now_ns() - begin > MOST_NS)
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

typedef struct turn {
    net_scope_t scope;
    bool taken;
} turn_t;

/* A context is made before the turn, since that takes long. */
static int enter(turn_t *turn, int device)
{
    const int error = net_scope_enter(&turn->scope, device);
    turn->taken = error == 0 && take_turn();
    return error;
}

static void leave(turn_t *turn)
{
    if (turn->taken)
        pthread_mutex_unlock(&g_turn);
    net_scope_leave(&turn->scope);
}

static CUmemAllocationProp block_of(int device)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static int round_up(const net_driver_t *driver, int device, size_t *bytes)
{
    CUmemAllocationProp block = block_of(device);
    size_t unit = 0;
    int error = net_driver_errno(driver->granularity(&unit, &block, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    if (error || unit == 0)
        return error ? error : -EIO;
    *bytes = (*bytes + unit - 1) / unit * unit;
    return 0;
}

static int grant(const net_driver_t *driver, void *at, size_t bytes, int device)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return net_driver_errno(driver->set_access((CUdeviceptr)at, bytes, &access, 1));
}

/* `place` NULL: new addresses. */
static int map_block(const net_driver_t *driver, uint64_t handle, size_t bytes, int device, void *place, void **pointer)
{
    CUdeviceptr at = (CUdeviceptr)place;
    int error = place ? 0 : net_driver_errno(driver->reserve(&at, bytes, 0, 0, 0));
    if (error)
        return error;
    error = net_driver_errno(driver->map(at, bytes, 0, handle, 0));
    if (error)
        goto unreserve;
    error = grant(driver, (void *)at, bytes, device);
    if (error)
        goto unmap;
    *pointer = (void *)at;
    return 0;
unmap:
    (void)driver->unmap(at, bytes);
unreserve:
    if (!place)
        (void)driver->unreserve(at, bytes);
    return error;
}

static int unmap_block(const net_driver_t *driver, void *pointer, size_t bytes, const void *place)
{
    int error = net_driver_errno(driver->unmap((CUdeviceptr)pointer, bytes));
    if (!error && !place)
        (void)driver->unreserve((CUdeviceptr)pointer, bytes);
    return error;
}

static int make_block(const net_driver_t *driver, net_memory_t *memory)
{
    CUmemAllocationProp block = block_of(memory->device);
    CUmemGenericAllocationHandle handle;
    int error = round_up(driver, memory->device, &memory->bytes);
    if (!error)
        error = net_driver_errno(driver->create(&handle, memory->bytes, &block, 0));
    if (!error)
        memory->handle = handle;
    return error;
}

static int vmm_create(net_memory_t *memory, net_offer_t *offer)
{
    turn_t turn;
    int error = enter(&turn, memory->device);
    if (error)
        return error;
    const net_driver_t *driver = net_driver();
    error = make_block(driver, memory);
    if (error)
        goto leave;
    error = map_block(driver, memory->handle, memory->bytes, memory->device, memory->at, &memory->pointer);
    if (error)
        goto release;
    error = net_driver_errno(
        driver->export_handle(&memory->descriptor, memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (!error && (memory->descriptor = net_descriptor(memory->descriptor)) < 0)
        error = -errno;
    memory->mark = net_mark(memory->descriptor);
    if (!error)
        error = net_box_open(&memory->box, memory->token.word, offer->as.vmm.box);
    goto leave;
release:
    (void)driver->release(memory->handle);
leave:
    leave(&turn);
    return error;
}

static int vmm_destroy(net_memory_t *memory)
{
    turn_t turn;
    int error = enter(&turn, memory->device);
    if (error)
        return error;
    const net_driver_t *driver = net_driver();
    error = unmap_block(driver, memory->pointer, memory->bytes, memory->at);
    if (error != -EAGAIN) {
        (void)driver->release(memory->handle);
        net_close(memory->descriptor, &memory->mark);
        net_box_close(&memory->box);
    }
    leave(&turn);
    return error;
}

static int vmm_send(const net_memory_t *memory, const net_offer_t *peer)
{
    return net_box_send(&memory->box, peer->as.vmm.box, peer->token.word, memory->descriptor);
}

static int vmm_import(const net_driver_t *driver, int descriptor, net_mapping_t *mapping)
{
    CUmemGenericAllocationHandle handle;
    int error = net_driver_errno(
        driver->import_handle(&handle, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (error)
        return error;
    /* Fails if an offer's size exceeds the block's. */
    error = map_block(driver, handle, mapping->bytes, mapping->device, mapping->at, &mapping->pointer);
    if (error) {
        (void)driver->release(handle);
        return error;
    }
    mapping->handle = handle;
    return 0;
}

static int vmm_open(net_memory_t *own, const net_offer_t *peer, net_mapping_t *mapping)
{
    turn_t turn;
    int descriptor;
    int error = net_box_take(&own->box, peer->token.word, &descriptor);
    if (error)
        return error;
    error = enter(&turn, mapping->device);
    if (!error) {
        error = vmm_import(net_driver(), descriptor, mapping);
        leave(&turn);
    }
    close(descriptor);
    return error;
}

static void vmm_close(net_mapping_t *mapping)
{
    turn_t turn;
    if (enter(&turn, mapping->device) != 0)
        return;
    (void)unmap_block(net_driver(), mapping->pointer, mapping->bytes, mapping->at);
    (void)net_driver()->release(mapping->handle);
    leave(&turn);
}

static int vmm_share(net_memory_t *memory, int device)
{
    turn_t turn;
    if (memory->device == device)
        return 0;
    int error = enter(&turn, device);
    if (error)
        return error;
    error = grant(net_driver(), memory->pointer, memory->bytes, device);
    leave(&turn);
    return error;
}

static int vmm_reserve(net_range_t *range)
{
    turn_t turn;
    CUdeviceptr at = 0;
    int error = enter(&turn, range->device);
    if (error)
        return error;
    error = round_up(net_driver(), range->device, &range->bytes);
    if (!error)
        error = net_driver_errno(net_driver()->reserve(&at, range->bytes, 0, 0, 0));
    leave(&turn);
    if (!error)
        range->pointer = (uint8_t *)at;
    return error;
}

static void vmm_unreserve(net_range_t *range)
{
    turn_t turn;
    if (enter(&turn, range->device) != 0)
        return;
    (void)net_driver()->unreserve((CUdeviceptr)range->pointer, range->bytes);
    leave(&turn);
}

const net_memory_ops_t net_memory_vmm = {.create = vmm_create,
                                         .destroy = vmm_destroy,
                                         .send = vmm_send,
                                         .open = vmm_open,
                                         .close = vmm_close,
                                         .share = vmm_share,
                                         .reserve = vmm_reserve,
                                         .unreserve = vmm_unreserve};
