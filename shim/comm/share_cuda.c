/* SPDX-License-Identifier: Apache-2.0 */
/* share_cuda.c - share.c's queries of CUDA. A stream's kernels use the multiprocessors of its green context, else the
 * current context's (fewer under MPS). */
#include "shim/comm/share.h"

#include "shim/comm/capture.h"

#if SHUNT_HAS_CUDA
#include <cuda.h>
#include <cuda_runtime_api.h>

#if CUDA_VERSION >= 12050 /* first driver whose streams report their green context */
static struct {
    CUresult (*stream_context)(CUstream, CUgreenCtx *);
    CUresult (*green_resource)(CUgreenCtx, CUdevResource *, CUdevResourceType);
    CUresult (*context_resource)(CUcontext, CUdevResource *, CUdevResourceType);
    CUresult (*current)(CUcontext *);
} g_driver;

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

static void find_functions(void)
{
    g_driver.stream_context = driver_function("cuStreamGetGreenCtx");
    g_driver.green_resource = driver_function("cuGreenCtxGetDevResource");
    g_driver.context_resource = driver_function("cuCtxGetDevResource");
    g_driver.current = driver_function("cuCtxGetCurrent");
}

static CUcontext current_context(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CUcontext context = NULL;
    pthread_once(&once, find_functions);
    return g_driver.current && g_driver.current(&context) == CUDA_SUCCESS ? context : NULL;
}

/* 0: not limited, or unknown. */
static uint32_t of_green_context(void *stream)
{
    const CUcontext context = current_context();
    CUgreenCtx green = NULL;
    CUdevResource resource;
    const bool named = stream && stream != (void *)cudaStreamLegacy && stream != (void *)cudaStreamPerThread;
    if (named && g_driver.stream_context && g_driver.green_resource &&
        g_driver.stream_context(stream, &green) == CUDA_SUCCESS && green &&
        g_driver.green_resource(green, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS)
        return resource.sm.smCount;
    if (context && g_driver.context_resource &&
        g_driver.context_resource(context, &resource, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS)
        return resource.sm.smCount;
    return 0;
}
#else
static void *current_context(void)
{
    return NULL;
}

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
    const int mode = net_capture_relax();
    const uint32_t part = of_green_context(stream);
    net_capture_restore(mode);
    return part > 0 && part < (uint32_t)whole ? part : (uint32_t)whole;
}

unsigned long long shim_share_place(void *stream, unsigned long long stream_id)
{
    const bool named = stream && stream_id != SHIM_STREAM_UNKNOWN;
    return named ? stream_id : (uintptr_t)current_context();
}

#else

uint32_t shim_share_multiprocessors(int device, void *stream)
{
    (void)device, (void)stream;
    return 0;
}

unsigned long long shim_share_place(void *stream, unsigned long long stream_id)
{
    (void)stream;
    return stream_id;
}
#endif
