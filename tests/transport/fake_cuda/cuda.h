/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - the types that transport/cuda_driver.h names and cuda_calls.c uses, and errors; the tests have the functions
 * that are called. */
#ifndef TEST_FAKE_CUDA_DRIVER_H
#define TEST_FAKE_CUDA_DRIVER_H

#include <stddef.h>

typedef enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
} CUresult;
typedef enum CUpointer_attribute { CU_POINTER_ATTRIBUTE_BUFFER_ID = 7 } CUpointer_attribute;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef int CUdevice;
typedef enum CUstreamCaptureMode { CU_STREAM_CAPTURE_MODE_RELAXED = 2 } CUstreamCaptureMode;
typedef enum CUstreamCaptureStatus {
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2
} CUstreamCaptureStatus;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef unsigned long long cuuint64_t;
enum { CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6, CU_LAUNCH_ATTRIBUTE_PRIORITY = 8 };
typedef struct CUlaunchAttribute {
    int id;
    union {
        int programmaticStreamSerializationAllowed, priority;
    } value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;
typedef int CUmemAllocationProp, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAccessDesc;

#endif
