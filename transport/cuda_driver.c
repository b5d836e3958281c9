/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_driver.c - the driver's functions. Each is requested as of the first CUDA version that has its present form
 * (with a runtime before 12.5: by name), so every driver of CUDA 12 or later gives the same ABI. */
#define _GNU_SOURCE
#include "transport/cuda_driver.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct entry {
    size_t offset;
    const char *name;
    int version; /* first CUDA with this form; above ALL_HAVE a driver may lack it */
} entry_t;

enum { OLDEST = 11020, ALL_HAVE = 12000 };

static const entry_t entries[] = {
    {offsetof(net_driver_t, context_get), "cuCtxGetCurrent", OLDEST},
    {offsetof(net_driver_t, context_set), "cuCtxSetCurrent", OLDEST},
    {offsetof(net_driver_t, primary_state), "cuDevicePrimaryCtxGetState", OLDEST},
    {offsetof(net_driver_t, pointer_attribute), "cuPointerGetAttribute", OLDEST},
    {offsetof(net_driver_t, capture_mode), "cuThreadExchangeStreamCaptureMode", OLDEST},
    {offsetof(net_driver_t, granularity), "cuMemGetAllocationGranularity", OLDEST},
    {offsetof(net_driver_t, create), "cuMemCreate", OLDEST},
    {offsetof(net_driver_t, release), "cuMemRelease", OLDEST},
    {offsetof(net_driver_t, export_handle), "cuMemExportToShareableHandle", OLDEST},
    {offsetof(net_driver_t, import_handle), "cuMemImportFromShareableHandle", OLDEST},
    {offsetof(net_driver_t, reserve), "cuMemAddressReserve", OLDEST},
    {offsetof(net_driver_t, unreserve), "cuMemAddressFree", OLDEST},
    {offsetof(net_driver_t, map), "cuMemMap", OLDEST},
    {offsetof(net_driver_t, unmap), "cuMemUnmap", OLDEST},
    {offsetof(net_driver_t, set_access), "cuMemSetAccess", OLDEST},
    {offsetof(net_driver_t, stream_capture), "cuStreamGetCaptureInfo", OLDEST},
    {offsetof(net_driver_t, stream_id), "cuStreamGetId", 12000},
    {offsetof(net_driver_t, stream_wait), "cuStreamWaitEvent", OLDEST},
    {offsetof(net_driver_t, event_record), "cuEventRecord", OLDEST},
    {offsetof(net_driver_t, launch), "cuLaunchKernelEx", 11060},
    {offsetof(net_driver_t, stream_green), "cuStreamGetGreenCtx", 12050},
};

static net_driver_t driver;
static bool driver_complete;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

#if CUDART_VERSION >= 12050
static void *look_up(const entry_t *entry)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    const unsigned version = (unsigned)entry->version;
    if (cudaGetDriverEntryPointByVersion(entry->name, &function, version, cudaEnableDefault, &found) == cudaSuccess)
        return function;
    (void)cudaGetLastError();
    return NULL;
}
#else
/* Such a runtime asks for functions of its own version, which an older driver refuses. A plain name has the first
 * form. The library is never closed: the runtime keeps it loaded. */
static void *look_up(const entry_t *entry)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, entry->name) : NULL;
}
#endif

static void fill_table(void)
{
    /* Initialises the driver without creating a context. */
    int devices;
    if (cudaGetDeviceCount(&devices) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *function = look_up(&entries[i]);
        if (!function && entries[i].version <= ALL_HAVE)
            return;
        memcpy((char *)&driver + entries[i].offset, &function, sizeof function);
    }
    driver_complete = true;
}

const net_driver_t *net_driver(void)
{
    pthread_once(&driver_once, fill_table);
    return driver_complete ? &driver : NULL;
}

int net_driver_errno(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return 0;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_INVALID_DEVICE:
        return -ENOSYS;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
        return -EAGAIN;
    default:
        return -EIO;
    }
}
