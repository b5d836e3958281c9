/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_runtime.h - the part of CUDA that kernels and their tests use, for the emulated GPUs of emulator.cc. Kernels are
 * plain functions here.
 */
#ifndef SHUNT_EMULATED_CUDA_RUNTIME_H
#define SHUNT_EMULATED_CUDA_RUNTIME_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704
} cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t; /* for nccl.h */
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 } cudaMemcpyKind_t;
enum { cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaStreamNonBlocking = 1 };
enum {
    cudaStreamCaptureModeThreadLocal = 1,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

#ifdef __cplusplus
extern "C" {
#endif

uint64_t emulator_now_ns(void); /* the clock, which counts steps */
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaMalloc(void **memory, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemset(void *memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind_t kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind_t kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream); /* lets time pass */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode);
typedef enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive
} cudaStreamCaptureStatus;
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
#ifdef __cplusplus
}

#include "emulator.h"

#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

typedef struct uint4 {
    uint32_t x, y, z, w;
} uint4;
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return uint4{x, y, z, w};
}

/* Of the running lane. */
template <uint32_t emulator_lane_t::*FIELD> struct emulator_index {
    struct {
        operator uint32_t() const
        {
            return emulator_lane()->*FIELD;
        }
    } x;
};
static const emulator_index<&emulator_lane_t::thread> threadIdx = {};
static const emulator_index<&emulator_lane_t::threads> blockDim = {};
static const emulator_index<&emulator_lane_t::block> blockIdx = {};
static const emulator_index<&emulator_lane_t::blocks> gridDim = {};
#define __syncthreads() ((void)emulator_meet(EMULATOR_BLOCK, EMULATOR_ANY, 0))
#define __syncthreads_or(x) emulator_meet(EMULATOR_BLOCK, EMULATOR_ANY, (x) ? 1 : 0)
#define __syncwarp() ((void)emulator_meet(EMULATOR_WARP, EMULATOR_ANY, 0))
#define __any_sync(mask, x) emulator_meet(EMULATOR_WARP, EMULATOR_ANY, (x) ? 1 : 0)
#define __reduce_min_sync(mask, x) emulator_meet(EMULATOR_WARP, EMULATOR_LEAST, x)
#define __reduce_add_sync(mask, x) emulator_meet(EMULATOR_WARP, EMULATOR_SUM, x)
/* A lane may always come alone. */
#define __activemask() (1u << emulator_lane()->thread % 32)
#define __shfl_sync(mask, x, from) (x)
#define __ffs(x) __builtin_ffs(x)
#define __threadfence_system() ((void)0)
static inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long old, unsigned long long now)
{
    const unsigned long long found = *at;
    *at = found == old ? now : found;
    return found;
}

typedef struct cudaFuncAttributes {
    int unused;
} cudaFuncAttributes;
enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *kernel)
{
    emulator_load(kernel, 0);
    return cudaSuccess;
}
template <class K> static inline cudaError_t cudaFuncSetAttribute(K *kernel, int, int shared_bytes)
{
    emulator_load((const void *)kernel, (size_t)shared_bytes);
    return cudaSuccess;
}
#endif
#endif
