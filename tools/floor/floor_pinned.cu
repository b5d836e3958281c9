/* SPDX-License-Identifier: Apache-2.0 */
/* floor_pinned.cu - floor.h's limits of communication through pinned memory: the latency of a word, and the bandwidth
 * of kernels' stores and loads while all GPUs use it. As in the algorithms, a GPU stores into its own area and loads
 * from the next one's, with areas of their size. */
#include "tools/floor/floor.h"
#include "tools/floor/floor_probe.cuh"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AREA_VECTORS = (4 << 20) / 16, PASSES = 32, BLOCKS = 16, THREADS = 512, AT_ONCE = 8 };

/* ---- Kernels: each goes over AREA_VECTORS vectors PASSES times ---- */

static __global__ void store_all(uint4 *area)
{
    for (uint32_t pass = 0; pass < PASSES; pass++)
        for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < AREA_VECTORS; i += BLOCKS * THREADS)
            asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(area + i), "r"(pass) : "memory");
}

static __global__ void load_all(const uint4 *area, uint32_t *sum)
{
    uint32_t all = 0;
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < AREA_VECTORS; i += AT_ONCE * BLOCKS * THREADS) {
            uint4 v[AT_ONCE];
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++)
                asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                             : "l"(area + i + k * BLOCKS * THREADS)
                             : "memory");
#pragma unroll
            for (uint32_t k = 0; k < AT_ONCE; k++)
                all ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
        }
    }
    if (all == 1) /* never true: keeps the compiler from removing the loads */
        *sum = all;
}

static_assert(AREA_VECTORS % (AT_ONCE * BLOCKS * THREADS) == 0, "loads leave the area");

typedef struct pinned_gpu {
    cudaStream_t stream;
    cudaEvent_t mark[2];
    uint64_t *flag; /* pinned memory; a count of completed rounds follows */
    uint4 *area;    /* pinned memory */
    uint32_t *sum;
} pinned_gpu_t;

typedef struct pinned_probe {
    tool_floor_t *floor;
    uint32_t count;
    pinned_gpu_t gpu[TOOL_FLOOR_GPUS];
} pinned_probe_t;

static bool ok(pinned_probe_t *probe, cudaError_t status, const char *call)
{
    if (status != cudaSuccess)
        snprintf(probe->floor->error, sizeof probe->floor->error, "%s: %s", call, cudaGetErrorString(status));
    return status == cudaSuccess;
}
#define OK(call) ok(probe, call, #call)

static bool open_gpu(pinned_probe_t *probe, uint32_t index)
{
    const unsigned flags = cudaHostAllocMapped | cudaHostAllocPortable;
    pinned_gpu_t *gpu = &probe->gpu[index];
    return OK(cudaSetDevice((int)index)) && OK(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking)) &&
           OK(cudaEventCreate(&gpu->mark[0])) && OK(cudaEventCreate(&gpu->mark[1])) &&
           OK(cudaHostAlloc((void **)&gpu->flag, 2 * sizeof(uint64_t), flags)) &&
           OK(cudaHostAlloc((void **)&gpu->area, (size_t)AREA_VECTORS * sizeof(uint4), flags)) &&
           OK(cudaMalloc((void **)&gpu->sum, sizeof(uint32_t)));
}

/* ---- One way: the slowest of neighbouring pairs ---- */

static bool bounce_between(pinned_probe_t *probe, uint32_t a, uint32_t b, double *seconds)
{
    pinned_gpu_t *first = &probe->gpu[a], *second = &probe->gpu[b];
    first->flag[0] = first->flag[1] = second->flag[0] = second->flag[1] = 0;
    if (!OK(cudaSetDevice((int)b)))
        return false;
    bounce<<<1, 1, 0, second->stream>>>(second->flag, first->flag, false, second->flag + 1);
    if (!OK(cudaGetLastError()) || !OK(cudaSetDevice((int)a)) || !OK(cudaEventRecord(first->mark[0], first->stream)))
        return false;
    bounce<<<1, 1, 0, first->stream>>>(first->flag, second->flag, true, first->flag + 1);
    if (!OK(cudaGetLastError()) || !OK(cudaEventRecord(first->mark[1], first->stream)) ||
        !OK(seconds_between(first->mark, seconds)) || !OK(cudaStreamSynchronize(second->stream)))
        return false;
    *seconds /= 2 * BOUNCES;
    if (first->flag[1] == BOUNCES)
        return true;
    snprintf(probe->floor->error, sizeof probe->floor->error,
             "GPU %u does not see what GPU %u stores into pinned memory", a, b);
    return false;
}

static bool measure_one_way(pinned_probe_t *probe)
{
    for (uint32_t a = 0; a < probe->count; a++) {
        double times[ROUNDS];
        for (int round = 0; round < ROUNDS; round++)
            if (!bounce_between(probe, a, (a + 1) % probe->count, &times[round]))
                return false;
        const double time = median(times);
        if (time > probe->floor->pinned_one_way)
            probe->floor->pinned_one_way = time;
    }
    return true;
}

static bool start(pinned_probe_t *probe, uint32_t index, bool stores)
{
    pinned_gpu_t *gpu = &probe->gpu[index];
    if (!OK(cudaSetDevice((int)index)) || !OK(cudaEventRecord(gpu->mark[0], gpu->stream)))
        return false;
    if (stores)
        store_all<<<BLOCKS, THREADS, 0, gpu->stream>>>(gpu->area);
    else
        load_all<<<BLOCKS, THREADS, 0, gpu->stream>>>(probe->gpu[(index + 1) % probe->count].area, gpu->sum);
    return OK(cudaGetLastError()) && OK(cudaEventRecord(gpu->mark[1], gpu->stream));
}

static bool measure_bandwidth(pinned_probe_t *probe, bool stores, double *bandwidth)
{
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < probe->count; i++)
            if (!start(probe, i, stores))
                return false;
        times[round] = 0;
        for (uint32_t i = 0; i < probe->count; i++) {
            double time;
            if (!OK(seconds_between(probe->gpu[i].mark, &time)))
                return false;
            times[round] = time > times[round] ? time : times[round];
        }
    }
    *bandwidth = (double)AREA_VECTORS * sizeof(uint4) * PASSES / median(times);
    return true;
}

bool tool_floor_pinned(uint32_t gpus, tool_floor_t *floor)
{
    static pinned_probe_t the_probe;
    pinned_probe_t *probe = &the_probe;
    probe->floor = floor;
    probe->count = gpus;
    for (uint32_t i = 0; i < gpus; i++)
        if (!open_gpu(probe, i))
            return false;
    double store, load;
    if (!measure_one_way(probe) || !measure_bandwidth(probe, true, &store) || !measure_bandwidth(probe, false, &load))
        return false;
    floor->pinned_store = store;
    floor->pinned_load = load;
    return true;
}
