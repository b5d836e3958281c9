/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_driver.h - CUDA builds only: driver functions that the runtime lacks or runs slower. libcuda may be absent, so
 * nothing links to it: net_driver looks it up. */
#ifndef SHUNT_TRANSPORT_CUDA_DRIVER_H
#define SHUNT_TRANSPORT_CUDA_DRIVER_H

#include <cuda.h>

typedef struct net_driver {
    CUresult (*context_get)(CUcontext *context);
    CUresult (*context_set)(CUcontext context);
    CUresult (*primary_state)(CUdevice device, unsigned *flags, int *active);
    CUresult (*pointer_attribute)(void *data, CUpointer_attribute attribute, CUdeviceptr at);
    CUresult (*capture_mode)(CUstreamCaptureMode *mode);
    CUresult (*granularity)(size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option);
    CUresult (*create)(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                       unsigned long long flags);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*export_handle)(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags);
    CUresult (*import_handle)(CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type);
    CUresult (*reserve)(CUdeviceptr *at, size_t size, size_t alignment, CUdeviceptr address, unsigned long long flags);
    CUresult (*unreserve)(CUdeviceptr at, size_t size);
    CUresult (*map)(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr at, size_t size);
    CUresult (*set_access)(CUdeviceptr at, size_t size, const CUmemAccessDesc *desc, size_t count);
    CUresult (*stream_capture)(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id);
    CUresult (*stream_id)(CUstream stream, unsigned long long *id);
    CUresult (*stream_wait)(CUstream stream, CUevent event, unsigned flags);
    CUresult (*event_record)(CUevent event, CUstream stream);
    CUresult (*launch)(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra);
    /* Gets a stream's green context (stream NULL: the current one). NULL before CUDA 12.5; older headers lack its
     * types. */
    CUresult (*stream_green)(void *stream, void **green);
} net_driver_t;

/* Filled on first use; NULL if the driver or a function is missing. */
const net_driver_t *net_driver(void);
int net_driver_errno(CUresult result);

#endif
