/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.cc - memory, streams and graphs of emulated GPUs: the part of CUDA's runtime that tests of kernels use. Work
 * runs when a stream is waited for, on all streams.
 */
#include "streams.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

enum { GPUS = 4, TURNS = 1000 };

typedef struct work {
    launch_t launch; /* no kernel: a copy */
    bool early;
    void *to;
    const void *from; /* NULL: set to `value` */
    int value;
    size_t bytes;
} work_t;

struct CUstream_st {
    std::deque<work_t> queue;
    std::deque<grid_t *> under_way;
    bool captures;
    std::vector<work_t> captured;
};
struct CUgraph_st {
    std::vector<work_t> work;
};
struct CUgraphExec_st {
    std::vector<work_t> work;
};

static std::vector<cudaStream_t> g_streams;
static std::map<void *, size_t> g_memory;

/* ---- Streams ---- */

static void move(const work_t &w)
{
    if (w.from)
        memcpy(w.to, w.from, w.bytes);
    else
        memset(w.to, w.value, w.bytes);
}

/* Begin all work that can begin; false: there is none. */
static bool advance(cudaStream_t s)
{
    bool any = false;
    while (!s->under_way.empty() && emulator_over(s->under_way.front())) {
        s->under_way.pop_front();
        any = true;
    }
    while (!s->queue.empty()) {
        const work_t &w = s->queue.front();
        grid_t *before = s->under_way.empty() ? NULL : s->under_way.back();
        if (before && !(w.early && emulator_lets_in(before)))
            break;
        if (w.launch.kernel)
            s->under_way.push_back(emulator_begin(w.launch, before));
        else
            move(w);
        s->queue.pop_front();
        any = true;
    }
    return any;
}

static bool idle(cudaStream_t s)
{
    return s->queue.empty() && s->under_way.empty();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    for (;;) {
        bool any = false;
        for (cudaStream_t s : g_streams)
            any |= advance(s);
        if (idle(stream))
            return cudaSuccess;
        if (!emulator_run(TURNS) && !any) {
            fprintf(stderr, "emulator: lanes wait for each other\n");
            abort();
        }
    }
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    for (cudaStream_t s : g_streams)
        advance(s);
    emulator_run(TURNS / 4);
    return idle(stream) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    for (cudaStream_t s : g_streams)
        cudaStreamSynchronize(s);
    return cudaSuccess;
}

static cudaError_t enqueue(cudaStream_t stream, const work_t &w)
{
    if (stream->captures)
        stream->captured.push_back(w);
    else
        stream->queue.push_back(w);
    return cudaSuccess;
}

static std::map<const void *, size_t> g_loaded; /* kernels, and the memory of their blocks */

void emulator_load(const void *kernel, size_t shared_bytes)
{
    enum { DEFAULT = 4 << 10 }; /* CUDA's is 48 KiB; bulk copies have small stages here (CMakeLists.txt) */
    size_t &room = g_loaded[kernel];
    room = std::max({room, shared_bytes, (size_t)DEFAULT});
}

void emulator_launch(cudaStream_t stream, const void *kernel, uint32_t blocks, uint32_t threads, size_t shared_bytes,
                     bool early, const std::function<void()> &run)
{
    const auto found = g_loaded.find(kernel);
    if (found == g_loaded.end() || shared_bytes > found->second) {
        fprintf(stderr, "a kernel is launched that was not loaded, or not for %zu bytes a block\n", shared_bytes);
        exit(1);
    }
    enqueue(stream, work_t{{blocks, threads, shared_bytes, run}, early, NULL, NULL, 0, 0});
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    return enqueue(stream, work_t{{}, false, memory, NULL, value, bytes});
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind_t kind, cudaStream_t stream)
{
    enqueue(stream, work_t{{}, false, to, from, 0, bytes});
    return kind == cudaMemcpyHostToDevice ? cudaStreamSynchronize(stream) : cudaSuccess; /* from pageable memory */
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    if (g_streams.empty()) {
        const char *seed = getenv("EMULATOR_SEED");
        emulator_seed(seed ? strtoull(seed, NULL, 0) : 1);
    }
    *stream = new CUstream_st();
    g_streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaStreamSynchronize(stream);
    g_streams.erase(std::find(g_streams.begin(), g_streams.end(), stream));
    delete stream;
    return cudaSuccess;
}

/* ---- Graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int)
{
    stream->captures = true;
    stream->captured.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    *status = stream->captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    stream->captures = false;
    *graph = new CUgraph_st{stream->captured};
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned)
{
    *exec = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    for (const work_t &w : exec->work)
        enqueue(stream, w);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

/* ---- Memory and devices ---- */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*memory == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    g_memory[*memory] = bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    munmap(memory, g_memory[memory]);
    g_memory.erase(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    const auto all = g_memory.find(memory);
    if (value == 0 && all != g_memory.end() && all->second == bytes)
        madvise(memory, bytes, MADV_DONTNEED); /* zeroes it, and takes no pages */
    else
        memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind_t)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = GPUS;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int)
{
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 227 << 10; /* sm_90 */
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "error";
}
