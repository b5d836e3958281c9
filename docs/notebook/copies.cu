/* SPDX-License-Identifier: Apache-2.0 */
#include <algorithm>
#include <cuda.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define CK(x)                                                           \
    do {                                                                \
        cudaError_t e_ = (x);                                           \
        if (e_) {                                                       \
            printf("%s:%d %s\n", #x, __LINE__, cudaGetErrorString(e_)); \
            exit(1);                                                    \
        }                                                               \
    } while (0)
#define DK(x)                                            \
    do {                                                 \
        CUresult e_ = (x);                               \
        if (e_) {                                        \
            printf("%s:%d %d\n", #x, __LINE__, (int)e_); \
            exit(1);                                     \
        }                                                \
    } while (0)
static double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
__global__ void spin(volatile int *stop)
{
    while (!*stop)
        ;
}
__global__ void meet(volatile unsigned long long *mine, volatile unsigned long long *peer, unsigned long long v)
{
    *peer = v;
    __threadfence_system();
    while (*mine < v)
        ;
}
static CUdeviceptr vmm(int dev, size_t n, CUmemGenericAllocationHandle *h)
{
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = dev;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    DK(cuMemCreate(h, n, &p, 0));
    CUdeviceptr a;
    DK(cuMemAddressReserve(&a, n, 0, 0, 0));
    DK(cuMemMap(a, n, 0, *h, 0));
    CUmemAccessDesc d = {};
    d.location = p.location;
    d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DK(cuMemSetAccess(a, n, &d, 1));
    return a;
}
static CUdeviceptr import(int dev, size_t n, CUmemGenericAllocationHandle h, bool ro)
{
    int fd;
    DK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle g;
    DK(cuMemImportFromShareableHandle(&g, (void *)(long)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr a;
    DK(cuMemAddressReserve(&a, n, 0, 0, 0));
    DK(cuMemMap(a, n, 0, g, 0));
    DK(cuMemRelease(g));
    CUmemAccessDesc d = {};
    d.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    d.location.id = dev;
    if (ro) {
        d.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
        CUresult r = cuMemSetAccess(a, n, &d, 1);
        printf("read-only access: %d\n", r);
        if (!r)
            return a;
    }
    d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DK(cuMemSetAccess(a, n, &d, 1));
    return a;
}
int main()
{
    size_t N = (size_t)256 << 20;
    cudaStream_t s[2][4];
    cudaEvent_t a[2], b[2], f[2][4];
    char *buf[2], *peer[2], *out[2];
    unsigned long long *w[2];
    CUmemGenericAllocationHandle h[2];
    for (int d = 0; d < 2; d++) {
        CK(cudaSetDevice(d));
        CK(cudaDeviceEnablePeerAccess(!d, 0));
        int lo, hi;
        cudaDeviceGetStreamPriorityRange(&lo, &hi);
        for (int i = 0; i < 4; i++) {
            CK(cudaStreamCreateWithPriority(&s[d][i], cudaStreamNonBlocking, hi));
            CK(cudaEventCreateWithFlags(&f[d][i], cudaEventDisableTiming));
        }
        CK(cudaEventCreate(&a[d]));
        CK(cudaEventCreate(&b[d]));
        buf[d] = (char *)vmm(d, N, &h[d]);
        CK(cudaMalloc(&out[d], N));
        CK(cudaMalloc(&w[d], 4096));
        CK(cudaMemset(w[d], 0, 4096));
    }
    for (int d = 0; d < 2; d++) {
        CK(cudaSetDevice(d));
        peer[d] = (char *)import(d, N, h[!d], false);
    }
    unsigned long long v = 0;
    const char *names[] = {"pull", "pull2", "pull3", "push", "pull+own", "pull halves serial"};
    for (size_t mb : {1, 4, 8, 16, 32, 64, 128, 256})
        for (int mode = 0; mode < 6; mode++) {
            size_t n = mb << 20;
            double t[2][21];
            for (int r = 0; r < 21; r++) {
                v++;
                for (int d = 0; d < 2; d++) {
                    CK(cudaSetDevice(d));
                    meet<<<1, 1, 0, s[d][0]>>>(w[d], w[!d], v * 3);
                }
                for (int d = 0; d < 2; d++) {
                    CK(cudaSetDevice(d));
                    CK(cudaEventRecord(a[d], s[d][0]));
                    meet<<<1, 1, 0, s[d][0]>>>(w[d], w[!d], v * 3 + 1);
                    int k = mode == 1 ? 2 : mode == 2 ? 3 : 1;
                    if (k > 1 || mode == 4) {
                        CK(cudaEventRecord(f[d][0], s[d][0]));
                        for (int i = 1; i < (mode == 4 ? 2 : k); i++)
                            CK(cudaStreamWaitEvent(s[d][i], f[d][0], 0));
                    }
                    if (mode == 3)
                        CK(cudaMemcpyAsync(peer[d], out[d], n, cudaMemcpyDeviceToDevice, s[d][0]));
                    else if (mode == 5) {
                        CK(cudaMemcpyAsync(out[d], peer[d], n / 2, cudaMemcpyDeviceToDevice, s[d][0]));
                        CK(cudaMemcpyAsync(out[d] + n / 2, peer[d] + n / 2, n / 2, cudaMemcpyDeviceToDevice, s[d][0]));
                    } else {
                        size_t c = n / k / 4096 * 4096;
                        for (int i = 0; i < k; i++) {
                            size_t o = i * c, l = i == k - 1 ? n - o : c;
                            CK(cudaMemcpyAsync(out[d] + o, peer[d] + o, l, cudaMemcpyDeviceToDevice, s[d][i]));
                            if (i) {
                                CK(cudaEventRecord(f[d][i], s[d][i]));
                            }
                        }
                        for (int i = 1; i < k; i++)
                            CK(cudaStreamWaitEvent(s[d][0], f[d][i], 0));
                    }
                    if (mode == 4) {
                        CK(cudaMemcpyAsync(out[d] + (N - n) / 2, buf[d], n < N / 2 ? n : N / 2,
                                           cudaMemcpyDeviceToDevice, s[d][1]));
                        CK(cudaEventRecord(f[d][1], s[d][1]));
                        CK(cudaStreamWaitEvent(s[d][0], f[d][1], 0));
                    }
                    meet<<<1, 1, 0, s[d][0]>>>(w[d], w[!d], v * 3 + 2);
                    CK(cudaEventRecord(b[d], s[d][0]));
                }
                for (int d = 0; d < 2; d++) {
                    CK(cudaSetDevice(d));
                    CK(cudaStreamSynchronize(s[d][0]));
                    float ms;
                    CK(cudaEventElapsedTime(&ms, a[d], b[d]));
                    t[d][r] = ms * 1e3;
                }
            }
            for (int d = 0; d < 2; d++)
                std::sort(t[d], t[d] + 21);
            printf("%-18s %4zu MB %8.1f %8.1f us  %.0f GB/s\n", names[mode], mb, t[0][10], t[1][10],
                   n / t[0][10] / 1e3);
        }
    // does mapping wait for kernels?
    int *stop;
    CK(cudaHostAlloc(&stop, 64, cudaHostAllocMapped));
    *stop = 0;
    CK(cudaSetDevice(0));
    spin<<<1, 1, 0, s[0][0]>>>(stop);
    CK(cudaSetDevice(1));
    spin<<<1, 1, 0, s[1][0]>>>(stop);
    CK(cudaSetDevice(0));
    double t0 = now();
    CUdeviceptr extra = import(0, N, h[1], false);
    printf("import+map beside a kernel: %.0f us\n", now() - t0);
    CK(cudaMemcpyAsync(out[0], (void *)extra, 1 << 20, cudaMemcpyDeviceToDevice, s[0][1]));
    CK(cudaStreamSynchronize(s[0][1]));
    printf("copy beside it done %.0f\n", now() - t0);
    fflush(stdout);
    pid_t x = 0;
    (void)x;
    // unmap in main while a timer thread frees the kernel after 2 s
    struct arg {
        int *stop;
    };
    static int *st;
    st = stop;
    pthread_t th;
    pthread_create(
        &th, NULL,
        [](void *) -> void * {
            timespec t = {2, 0};
            nanosleep(&t, NULL);
            *(volatile int *)st = 1;
            return NULL;
        },
        NULL);
    t0 = now();
    DK(cuMemUnmap(extra, N));
    printf("unmap beside a kernel: %.0f us\n", now() - t0);
    t0 = now();
    DK(cuMemAddressFree(extra, N));
    printf("address free %.0f us\n", now() - t0);
    pthread_join(th, NULL);
    CK(cudaDeviceSynchronize());
    printf("end\n");
    return 0;
}
