/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_runtime_api.h - the part of CUDA that transport/memory_cuda.c calls, made of host memory in parked_test.c. */
#ifndef TEST_FAKE_CUDA_MEMORY_H
#define TEST_FAKE_CUDA_MEMORY_H

#include <stddef.h>

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNotPermitted = 800,
    cudaErrorPeerAccessAlreadyEnabled = 704
} cudaError_t;
typedef struct cudaIpcMemHandle_st {
    char reserved[64];
} cudaIpcMemHandle_t;
enum { cudaIpcMemLazyEnablePeerAccess = 1 };

cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer);
cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *pointer);
cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags);

#endif
