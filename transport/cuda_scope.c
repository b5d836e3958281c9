/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_scope.c - make CUDA calls that leave the program's state as it was.
 *
 * The context is saved and restored through the driver: a thread may have none, or
 * one that the runtime does not know, and cudaSetDevice can restore neither. The
 * capture mode is relaxed meanwhile, because in the strict modes an allocation
 * breaks a capture of another thread. Both use driver functions because a runtime
 * call before the device is set would create a context on device 0.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include "transport/transport.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>

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
        context = NULL; /* the driver is not initialised, so no context is current */
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

#else

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
