/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_calls.c - the CUDA calls of each collective, by driver functions, which save 0.5 of 3.6 us per call on H200
 * (tests/gpu/gpu_launch.cu). Driver results have the runtime's numbers. Cached kernel handles are valid on all devices,
 * and survive a reset. */
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "transport/cuda_driver.h"
#include "transport/transport.h"

int net_stream_capture(void *stream, unsigned long long *id)
{
    const net_driver_t *driver = net_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;
    if (!driver)
        return cudaErrorNotSupported;
    const CUresult result = driver->stream_capture(stream, &status, &capture);
    if (result != CUDA_SUCCESS)
        return (int)result;
    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return cudaErrorStreamCaptureInvalidated;
    *id = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? capture : 0;
    return cudaSuccess;
}

int net_stream_id(void *stream, unsigned long long *id)
{
    const net_driver_t *driver = net_driver();
    return driver ? (int)driver->stream_id(stream, id) : cudaErrorNotSupported;
}

int net_stream_wait(void *stream, void *event)
{
    const net_driver_t *driver = net_driver();
    return driver ? (int)driver->stream_wait(stream, event, 0) : cudaErrorNotSupported;
}

int net_event_record(void *event, void *stream)
{
    const net_driver_t *driver = net_driver();
    return driver ? (int)driver->event_record(event, stream) : cudaErrorNotSupported;
}

enum { KERNELS = 4096 }; /* further kernels are looked up each time */

static struct {
    _Atomic(const void *) kernel;
    _Atomic(cudaKernel_t) handle;
} known[KERNELS];

static uint32_t place_of(const void *kernel)
{
    uint32_t at = (uint32_t)((uintptr_t)kernel * UINT64_C(0x9e3779b97f4a7c15) >> 32) % KERNELS;
    for (uint32_t tried = 0; tried < KERNELS; tried++, at = (at + 1) % KERNELS) {
        const void *there = atomic_load_explicit(&known[at].kernel, memory_order_relaxed);
        if (there == kernel || (!there && atomic_compare_exchange_strong(&known[at].kernel, &there, kernel)) ||
            there == kernel)
            return at;
    }
    return KERNELS;
}

static int find_handle(const void *kernel, cudaKernel_t *handle)
{
    const uint32_t at = place_of(kernel);
    *handle = at < KERNELS ? atomic_load_explicit(&known[at].handle, memory_order_relaxed) : NULL;
    if (*handle)
        return cudaSuccess;
    const cudaError_t error = cudaGetKernel(handle, kernel);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    else if (at < KERNELS)
        atomic_store_explicit(&known[at].handle, *handle, memory_order_relaxed);
    return (int)error;
}

int net_kernel_launch(const net_launch_t *launch, const void *const *arguments)
{
    const net_driver_t *driver = net_driver();
    CUlaunchAttribute attribute[2];
    CUlaunchConfig config = {.gridDimX = launch->blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = launch->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = (unsigned)launch->shared_bytes,
                             .hStream = launch->stream,
                             .attrs = attribute};
    cudaKernel_t handle;
    const int error = driver ? find_handle(launch->kernel, &handle) : cudaErrorNotSupported;
    if (error != cudaSuccess)
        return error;
    if (launch->dependent) {
        attribute[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute[config.numAttrs++].value.programmaticStreamSerializationAllowed = 1;
    }
    if (launch->priority) {
        attribute[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        attribute[config.numAttrs++].value.priority = launch->priority;
    }
    return (int)driver->launch(&config, (CUfunction)handle, (void **)(uintptr_t)arguments, NULL);
}
