/* SPDX-License-Identifier: Apache-2.0 */
/* The part of CUDA that shim/setup/link.c and shim/setup/machine.c use; link_test.c defines it. */
#ifndef FAKE_CUDA_RUNTIME_H
#define FAKE_CUDA_RUNTIME_H

#include <stddef.h>

typedef struct CUstream_st *cudaStream_t; /* for nccl.h */
typedef struct CUevent_st *cudaEvent_t;
typedef enum { cudaSuccess = 0, cudaErrorInvalidDevice = 101 } cudaError_t;
enum { cudaDevP2PAttrNativeAtomicSupported = 3 };

struct cudaDeviceProp {
    char name[256];
    struct {
        char bytes[16];
    } uuid;
    size_t totalGlobalMem;
    int major, minor, multiProcessorCount, pciDomainID, pciBusID, pciDeviceID;
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *bus);
cudaError_t cudaDeviceCanAccessPeer(int *can, int from, int to);
cudaError_t cudaDeviceGetP2PAttribute(int *value, int attribute, int from, int to);

#endif
