/* SPDX-License-Identifier: Apache-2.0 */
/* control_cuda.c - control words in pinned memory, so that the host can abort kernels that occupy the device. The
 * scratch owns the page, mapped by mmap and registered with CUDA: it outlives a device reset and CUDA's end, when
 * the proxy (nodes/proxy.c) may still read it. With MAP_SHARED, host and device share it after a fork. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <errno.h>
#include <sys/mman.h>

#include "algorithms/scratch_device.h"

int alg_control_create_cuda(int ordinal, alg_control_t **host, alg_control_t **device)
{
    const size_t bytes = sizeof(alg_control_t);
    net_scope_t scope;
    void *at_device = NULL;
    void *at_host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at_host == MAP_FAILED)
        return -errno;
    int error = net_scope_enter(&scope, ordinal);
    if (error)
        goto unmap;
    error = net_cuda_errno(cudaHostRegister(at_host, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped));
    if (!error) {
        error = net_cuda_errno(cudaHostGetDevicePointer(&at_device, at_host, 0));
        if (error)
            (void)cudaHostUnregister(at_host);
    }
    net_scope_leave(&scope);
    if (error)
        goto unmap;
    *host = at_host;
    *device = at_device;
    return 0;
unmap:
    (void)munmap(at_host, bytes);
    return error;
}

/* A page that cannot be unregistered stays mapped: kernels may use it. */
void alg_control_destroy_cuda(int ordinal, alg_control_t *host)
{
    net_scope_t scope;
    if (net_scope_enter(&scope, ordinal) != 0)
        return;
    if (cudaHostUnregister(host) == cudaSuccess)
        (void)munmap(host, sizeof(*host));
    net_scope_leave(&scope);
}
