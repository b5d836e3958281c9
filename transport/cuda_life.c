/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_life.c - whether the program has reset a device (cudaDeviceReset), which frees all memory and mappings without
 * notice. Each device has a mark: a small allocation that only a reset frees, with a number that the driver never
 * reuses. If its address no longer has that number, the device was reset, and gets a new mark. */
#define _GNU_SOURCE
#include "transport/transport.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stddef.h>

#include "transport/cuda_driver.h"

enum { DEVICES = 64, MARK_BYTES = 256 };

typedef struct mark {
    void *at;
    unsigned long long number; /* 0: the driver does not number allocations */
    uint64_t life;
} mark_t;

/* Not a net_lock_t: a fork would wait for driver calls under it. A forked child makes no such calls. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mark_t marks[DEVICES];

static CUresult ask_number(const void *at, unsigned long long *number)
{
    *number = 0;
    return net_driver()->pointer_attribute(number, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)at);
}

static bool stands(const mark_t *mark)
{
    unsigned long long number;
    if (!mark->at || !mark->number)
        return mark->at != NULL;
    const CUresult result = ask_number(mark->at, &number);
    return result == CUDA_SUCCESS ? number == mark->number
                                  : result == CUDA_ERROR_NOT_PERMITTED; /* refused inside a callback */
}

static void renew(mark_t *mark)
{
    *mark = (mark_t){.life = mark->life + 1};
    if (cudaMalloc(&mark->at, MARK_BYTES) != cudaSuccess)
        mark->at = NULL;
    else if (ask_number(mark->at, &mark->number) != CUDA_SUCCESS)
        mark->number = 0;
}

/* False: the life is not known now. */
static bool ask_life(int device, uint64_t *life)
{
    net_scope_t scope;
    if (device < 0 || device >= DEVICES || net_scope_enter(&scope, device) != 0)
        return false;
    pthread_mutex_lock(&lock);
    mark_t *mark = &marks[device];
    if (!stands(mark))
        renew(mark);
    *life = mark->number ? mark->life : 0;
    pthread_mutex_unlock(&lock);
    net_scope_leave(&scope);
    return true;
}

uint64_t net_device_life(int device)
{
    uint64_t life = 0;
    (void)ask_life(device, &life);
    return life;
}

/* A device that was reset, and not used since, has no context; asking for its life would make one. */
static bool has_context(int device)
{
    unsigned flags;
    int active = 1;
    const net_driver_t *driver = net_driver();
    return !driver || driver->primary_state((CUdevice)device, &flags, &active) != CUDA_SUCCESS || active;
}

bool net_device_lost(int device, uint64_t life)
{
    uint64_t now;
    return life != 0 && (!has_context(device) || (ask_life(device, &now) && now != life));
}

#else

uint64_t net_device_life(int device)
{
    (void)device;
    return 0;
}

bool net_device_lost(int device, uint64_t life)
{
    (void)device;
    (void)life;
    return false;
}

#endif
