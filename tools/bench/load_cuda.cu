/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_cuda.cu - the products of load.h.
 *
 * The results are not used: the blocks only occupy the multiprocessors. The matrices are not zero, since products of
 * zeros draw less power.
 */
#include "tools/bench/load.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRODUCTS = 8,
    WIDTH = 8192, /* width of cuBLAS's matrices, bf16 */
    TILE = 64,    /* width of a tile of this file's kernel */
    STEP = 16,
    TILE_THREADS = 256,
    OWN_WIDTH = 2048, /* fp32: a and b have 2048 x 1024 elements */
    OWN_DEPTH = 1024,
};

/* Declared here, since cublas_api.h need not be installed. */
typedef struct cublas {
    int (*create)(void **handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    int (*gemm)(void *handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a,
                int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                int compute, int algorithm);
    void *handle;
} cublas_t;
enum { CUBLAS_N = 0, CUBLAS_16BF = 14, CUBLAS_COMPUTE_32F = 68, CUBLAS_DEFAULT = -1 };

struct tool_load {
    cublas_t cublas; /* handle NULL: this file's kernel is used */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *matrix[3]; /* a, b, c */
};

/* A block computes a tile of c, 4 x 4 elements a thread. Its dynamic shared memory keeps other blocks off its
 * multiprocessor. */
static __global__ void __launch_bounds__(TILE_THREADS) multiply(const float *a, const float *b, float *c)
{
    __shared__ float part_a[STEP][TILE], part_b[STEP][TILE];
    const uint32_t x = threadIdx.x % STEP, y = threadIdx.x / STEP;
    const uint32_t row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    float sum[4][4] = {};
    for (uint32_t k = 0; k < OWN_DEPTH; k += STEP) {
        for (uint32_t i = threadIdx.x; i < STEP * TILE; i += TILE_THREADS) {
            part_a[i % STEP][i / STEP] = a[(row + i / STEP) * OWN_DEPTH + k + i % STEP];
            part_b[i / TILE][i % TILE] = b[(k + i / TILE) * OWN_WIDTH + column + i % TILE];
        }
        __syncthreads();
#pragma unroll
        for (uint32_t s = 0; s < STEP; s++) {
#pragma unroll
            for (uint32_t i = 0; i < 16; i++)
                sum[i / 4][i % 4] += part_a[s][4 * y + i / 4] * part_b[s][4 * x + i % 4];
        }
        __syncthreads();
    }
    for (uint32_t i = 0; i < 16; i++)
        c[(row + 4 * y + i / 4) * OWN_WIDTH + column + 4 * x + i % 4] = sum[i / 4][i % 4];
}

static bool bind(void *library, const char *name, void *pointer)
{
    void *found = dlsym(library, name);
    memcpy(pointer, &found, sizeof found);
    return found != NULL;
}

static bool open_cublas(cublas_t *cublas, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library != NULL && bind(library, "cublasCreate_v2", &cublas->create) &&
           bind(library, "cublasSetStream_v2", &cublas->set_stream) && bind(library, "cublasGemmEx", &cublas->gemm) &&
           cublas->create(&cublas->handle) == 0;
}

/* Search for cuBLAS by the dynamic linker, in the wheels beside NCCL's, and in the toolkit. */
static void find_cublas(cublas_t *cublas, const char *nccl_path)
{
    const char *end = strrchr(nccl_path, '/');
    const int folder = end != NULL ? (int)(end - nccl_path) : 0;
    char pattern[3][PATH_MAX];
    snprintf(pattern[0], PATH_MAX, "%.*s/../../c*/lib/libcublas.so.*", folder, nccl_path);
    snprintf(pattern[1], PATH_MAX, "%.*s/libcublas.so.*", folder, nccl_path);
    snprintf(pattern[2], PATH_MAX, "/usr/local/cuda/lib64/libcublas.so.*");
    if (open_cublas(cublas, "libcublas.so.13") || open_cublas(cublas, "libcublas.so.12"))
        return;
    for (int i = folder > 0 ? 0 : 2; i < 3; i++) {
        glob_t found;
        bool opened = false;
        if (glob(pattern[i], 0, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc && !opened; k++)
                opened = open_cublas(cublas, found.gl_pathv[k]);
            globfree(&found);
        }
        if (opened)
            return;
    }
    cublas->handle = NULL;
}

static bool ok(cudaError_t status, const char *call, char *error)
{
    if (status != cudaSuccess)
        snprintf(error, TOOL_LOAD_ERROR_BYTES, "%s: %s", call, cudaGetErrorString(status));
    return status == cudaSuccess;
}
#define OK(call) ok(call, #call, error)

/* Returns so much dynamic shared memory that no second block fits on a multiprocessor. */
static size_t shared_bytes()
{
    int device = 0, most = 0;
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    const size_t own = 2 * STEP * TILE * sizeof(float);
    return (size_t)most > own ? (size_t)most - own : 0;
}

static int launch_own(const tool_load_t *load)
{
    multiply<<<dim3(OWN_WIDTH / TILE, OWN_WIDTH / TILE), TILE_THREADS, shared_bytes(), load->stream>>>(
        (const float *)load->matrix[0], (const float *)load->matrix[1], (float *)load->matrix[2]);
    return (int)cudaGetLastError();
}

static int launch_cublas(const tool_load_t *load)
{
    const float one = 1, zero = 0;
    const cublas_t *cublas = &load->cublas;
    const int status = cublas->gemm(cublas->handle, CUBLAS_N, CUBLAS_N, WIDTH, WIDTH, WIDTH, &one, load->matrix[0],
                                    CUBLAS_16BF, WIDTH, load->matrix[1], CUBLAS_16BF, WIDTH, &zero, load->matrix[2],
                                    CUBLAS_16BF, WIDTH, CUBLAS_COMPUTE_32F, CUBLAS_DEFAULT);
    return status == 0 ? (int)cudaSuccess : (int)cudaErrorUnknown;
}

static int launch(const tool_load_t *load)
{
    return load->cublas.handle != NULL ? launch_cublas(load) : launch_own(load);
}

extern "C" tool_load_t *tool_load_open(const char *nccl_path, char *error)
{
    tool_load_t *load = (tool_load_t *)calloc(1, sizeof *load);
    if (load == NULL) {
        snprintf(error, TOOL_LOAD_ERROR_BYTES, "out of memory");
        return NULL;
    }
    find_cublas(&load->cublas, nccl_path);
    const size_t bytes = load->cublas.handle != NULL ? (size_t)WIDTH * WIDTH * 2 : (size_t)OWN_WIDTH * OWN_WIDTH * 4;
    bool done = OK(cudaStreamCreateWithFlags(&load->stream, cudaStreamNonBlocking)) &&
                OK(cudaEventCreateWithFlags(&load->begin, cudaEventDisableTiming)) &&
                OK(cudaEventCreateWithFlags(&load->end, cudaEventDisableTiming));
    for (int i = 0; done && i < 3; i++)
        done =
            OK(cudaMalloc(&load->matrix[i], bytes)) && OK(cudaMemsetAsync(load->matrix[i], 0x3c, bytes, load->stream));
    if (done && load->cublas.handle != NULL && load->cublas.set_stream(load->cublas.handle, load->stream) != 0) {
        snprintf(error, TOOL_LOAD_ERROR_BYTES, "cublasSetStream failed");
        done = false;
    }
    if (done && load->cublas.handle == NULL)
        done = OK(cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes()));
    /* The first product loads code and allocates a workspace. */
    if (done && OK((cudaError_t)launch(load)) && OK(cudaStreamSynchronize(load->stream)))
        return load;
    tool_load_close(load);
    return NULL;
}

extern "C" int tool_load_start(tool_load_t *load, void *stream)
{
    int status = (int)cudaEventRecord(load->begin, (cudaStream_t)stream);
    status = status == 0 ? (int)cudaStreamWaitEvent(load->stream, load->begin, 0) : status;
    for (int i = 0; i < PRODUCTS && status == 0; i++)
        status = launch(load);
    return status == 0 ? (int)cudaEventRecord(load->end, load->stream) : status;
}

extern "C" int tool_load_join(tool_load_t *load, void *stream)
{
    return (int)cudaStreamWaitEvent((cudaStream_t)stream, load->end, 0);
}

extern "C" void tool_load_close(tool_load_t *load)
{
    if (load == NULL)
        return;
    /* The process ends soon, so the cuBLAS handle is not destroyed. */
    for (int i = 0; i < 3; i++)
        (void)cudaFree(load->matrix[i]);
    if (load->begin != NULL)
        (void)cudaEventDestroy(load->begin);
    if (load->end != NULL)
        (void)cudaEventDestroy(load->end);
    if (load->stream != NULL)
        (void)cudaStreamDestroy(load->stream);
    free(load);
}
