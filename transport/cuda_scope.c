/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_scope.c - CUDA calls that leave the program's state unchanged. Driver calls save and restore the context:
 * cudaSetDevice cannot restore one unknown to the runtime, nor the lack of one. The capture mode is relaxed: in the
 * stricter modes an allocation breaks another thread's capture. The device is set before any other runtime call, which
 * would create a context on device 0. Contexts are compared, not devices: the runtime reports a cuCtxCreate context's
 * device as current, but no kernel launches there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include "transport/transport.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "transport/cuda_driver.h"

int net_cuda_errno(int cuda_error)
{
    switch ((cudaError_t)cuda_error) {
    case cudaSuccess:
        return 0;
    case cudaErrorMemoryAllocation:
        return -ENOMEM;
    case cudaErrorNotSupported:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorPeerAccessUnsupported:
        return -ENOSYS;
    case cudaErrorNotPermitted:
    case cudaErrorStreamCaptureUnsupported:
        return -EAGAIN;
    default:
        return -EIO;
    }
}

int net_scope_enter(net_scope_t *scope, int device)
{
    *scope = (net_scope_t){.entered = false};
    const net_driver_t *driver = net_driver();
    if (!driver)
        return -ENOSYS;
    CUcontext context = NULL;
    if (driver->context_get(&context) != CUDA_SUCCESS)
        context = NULL; /* the driver is not initialised */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (driver->capture_mode(&mode) != CUDA_SUCCESS)
        return -ENOSYS;
    *scope = (net_scope_t){.context = context, .capture_mode = (int)mode, .entered = true};
    cudaError_t error = cudaSetDevice(device);
    if (error != cudaSuccess)
        net_scope_leave(scope);
    return net_cuda_errno(error);
}

void net_scope_leave(net_scope_t *scope)
{
    if (!scope->entered)
        return;
    CUstreamCaptureMode mode = (CUstreamCaptureMode)scope->capture_mode;
    (void)net_driver()->capture_mode(&mode);
    (void)net_driver()->context_set(scope->context);
    (void)cudaGetLastError();
    scope->entered = false;
}

enum { DEVICES = 64 };

static _Atomic(CUcontext) primary[DEVICES];

static bool is_primary(CUcontext context, int device)
{
    return context && context == atomic_load_explicit(&primary[(unsigned)device % DEVICES], memory_order_relaxed);
}

/* In stricter capture modes the query may break a capture. */
static bool is_green(const net_driver_t *driver, int device)
{
    void *green = NULL;
    int current = -1;
    if (!driver->stream_green)
        return false;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)driver->capture_mode(&mode);
    const bool asked = driver->stream_green(NULL, &green) == CUDA_SUCCESS;
    (void)driver->capture_mode(&mode);
    return asked && green && cudaGetDevice(&current) == cudaSuccess && current == device;
}

static cudaError_t make_primary(const net_driver_t *driver, net_visit_t *visit, int device)
{
    CUcontext now = NULL;
    const cudaError_t error = cudaSetDevice(device);
    if (driver->context_get(&now) != CUDA_SUCCESS)
        now = NULL;
    visit->changed = now != visit->context;
    if (error == cudaSuccess)
        atomic_store_explicit(&primary[(unsigned)device % DEVICES], now, memory_order_relaxed);
    return error;
}

int net_device_enter(net_visit_t *visit, int device)
{
    CUcontext context = NULL;
    const net_driver_t *driver = net_driver();
    *visit = (net_visit_t){.changed = false};
    if (!driver)
        return cudaErrorNotSupported;
    if (driver->context_get(&context) != CUDA_SUCCESS)
        context = NULL;
    visit->context = context;
    if (is_primary(context, device) || (context && is_green(driver, device)))
        return cudaSuccess;
    const cudaError_t error = make_primary(driver, visit, device);
    if (error == cudaSuccess)
        return cudaSuccess;
    net_device_leave(visit);
    (void)cudaGetLastError();
    return (int)error;
}

void net_device_leave(net_visit_t *visit)
{
    if (visit->changed)
        (void)net_driver()->context_set(visit->context);
    visit->changed = false;
}

int net_capture_relax(void)
{
    const net_driver_t *driver = net_driver();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (driver)
        (void)driver->capture_mode(&mode);
    return (int)mode;
}

void net_capture_restore(int mode)
{
    const net_driver_t *driver = net_driver();
    CUstreamCaptureMode before = (CUstreamCaptureMode)mode;
    if (driver)
        (void)driver->capture_mode(&before);
}

#else

int net_device_enter(net_visit_t *visit, int device)
{
    (void)device;
    *visit = (net_visit_t){.changed = false};
    return 0;
}

void net_device_leave(net_visit_t *visit)
{
    (void)visit;
}

int net_capture_relax(void)
{
    return 0;
}

void net_capture_restore(int mode)
{
    (void)mode;
}

int net_event_query(void *event)
{
    (void)event;
    return 0;
}

int net_cuda_errno(int cuda_error)
{
    return cuda_error == 0 ? 0 : -ENOSYS;
}

int net_scope_enter(net_scope_t *scope, int device)
{
    (void)device;
    *scope = (net_scope_t){.entered = false};
    return -ENOSYS;
}

void net_scope_leave(net_scope_t *scope)
{
    (void)scope;
}

#endif
