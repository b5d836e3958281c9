/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share_cuda.c - the multiprocessors that kernels on a stream can be placed on: those of its green context if it has
 * one, else those of the context (fewer under MPS).
 */
#include "shim/comm/share.h"

#if SHUNT_HAS_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>

#if CUDA_VERSION >= 12050 /* the first driver whose streams report their green context */
static void *driver_function(const char *name)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion(name, &function, 12050, cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return function;
}

/* 0: the stream and the context are those of the whole device. */
static uint32_t of_green_context(void *stream)
{
    CUresult (*stream_context)(CUstream, CUgreenCtx *) = driver_function("cuStreamGetGreenCtx");
    CUresult (*green_resource)(CUgreenCtx, CUdevResource *, CUdevResourceType) =
        driver_function("cuGreenCtxGetDevResource");
    CUresult (*context_resource)(CUcontext, CUdevResource *, CUdevResourceType) =
        driver_function("cuCtxGetDevResource");
    CUresult (*current)(CUcontext *) = driver_function("cuCtxGetCurrent");
    CUgreenCtx green = NULL;
    CUcontext context = NULL;
    CUdevResource resource;
    const bool named = stream && stream != (void *)cudaStreamLegacy && stream != (void *)cudaStreamPerThread;
    if (named && stream_context && green_resource && stream_context(stream, &green) == CUDA_SUCCESS && green &&
        green_resource(green, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS)
        return resource.sm.smCount;
    if (current && context_resource && current(&context) == CUDA_SUCCESS && context &&
        context_resource(context, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS)
        return resource.sm.smCount;
    return 0;
}
#else
static uint32_t of_green_context(void *stream)
{
    (void)stream;
    return 0;
}
#endif

uint32_t shim_share_multiprocessors(int device, void *stream)
{
    int whole = 0;
    if (cudaDeviceGetAttribute(&whole, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    /* Another thread may capture in global mode. */
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    const uint32_t part = of_green_context(stream);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return part > 0 && part < (uint32_t)whole ? part : (uint32_t)whole;
}

#else

uint32_t shim_share_multiprocessors(int device, void *stream)
{
    (void)device, (void)stream;
    return 0;
}
#endif
