/* SPDX-License-Identifier: Apache-2.0 */
/* floor_cuda.cu - the measurements of floor.h. One process drives all GPUs by peer access; a graph of many kernels
 * keeps each GPU busy for longer than one thread needs to start them all. Each figure is the median of a few rounds.
 * Nothing is freed: the process ends when this is done. */
#include "tools/floor/floor.h"
#include "tools/floor/floor_probe.cuh"

#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS = 100, /* kernels of a graph; even: each replay begins with the same half */
    EAGER = 500, /* fewer than a stream's queue holds */
    LANES = 64,  /* lanes of 16 bytes each: 1 KB */
    COPIES = 8,  /* copies from one GPU to another in a round */
    COPY_BYTES = 128 << 20,
};

static __global__ void empty()
{
}

/* Slots of 1 KB on each GPU, indexed [half][sender]; all-ones before data arrives. */
typedef struct push_args {
    const uint4 *input;
    uint4 *output;
    uint4 *slots[TOOL_FLOOR_GPUS];
    uint32_t rank;
} push_args_t;

static __device__ __forceinline__ uint32_t slot(uint32_t half, uint32_t from)
{
    return (half * TOOL_FLOOR_GPUS + from) * LANES + threadIdx.x;
}

/* Volatile: the compiler may hoist a plain load, and __ldcv too, out of a loop. */
static __device__ __forceinline__ uint4 look(const uint4 *p)
{
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

static __device__ __forceinline__ bool absent(const uint4 &v)
{
    return v.x == ~0u || v.y == ~0u || v.z == ~0u || v.w == ~0u;
}

/* Two halves suffice: a peer that pushes call e+2 has received this rank's data of call e+1, sent only after call e. */
template <uint32_t N> static __global__ void push(const __grid_constant__ push_args_t args, uint32_t half)
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    uint4 sum = args.input[threadIdx.x];
    uint4 got[N - 1];
    uint4 *own = args.slots[args.rank];
#pragma unroll
    for (uint32_t i = 1; i < N; i++)
        args.slots[(args.rank + i) % N][slot(half, args.rank)] = sum;
    bool waits;
    do {
        waits = false;
#pragma unroll
        for (uint32_t i = 1; i < N; i++) {
            got[i - 1] = look(&own[slot(half, (args.rank + i) % N)]);
            waits |= absent(got[i - 1]);
        }
    } while (waits);
#pragma unroll
    for (uint32_t i = 1; i < N; i++) {
        own[slot(half, (args.rank + i) % N)] = make_uint4(~0u, ~0u, ~0u, ~0u);
        sum.x += got[i - 1].x, sum.y += got[i - 1].y, sum.z += got[i - 1].z, sum.w += got[i - 1].w;
    }
    args.output[threadIdx.x] = sum;
}

typedef void (*push_kernel_t)(push_args_t, uint32_t);
static const push_kernel_t push_kernels[] = {push<2>, push<3>, push<4>, push<5>, push<6>, push<7>, push<8>};

typedef struct gpu {
    cudaStream_t stream[TOOL_FLOOR_GPUS]; /* one per destination of copies; [0] for all other work */
    cudaEvent_t mark[2];
    cudaEvent_t copied[TOOL_FLOOR_GPUS];
    cudaGraphExec_t graph;
    uint64_t *flag; /* a count of completed rounds follows it */
    uint8_t *from;  /* COPY_BYTES */
    uint8_t *to;    /* room for COPY_BYTES from each GPU */
    push_args_t push;
} gpu_t;

typedef struct probe {
    tool_floor_t *floor;
    uint32_t count;
    gpu_t gpu[TOOL_FLOOR_GPUS];
} probe_t;

static bool fail(probe_t *probe, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(probe_t *probe, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(probe->floor->error, sizeof probe->floor->error, format, arguments);
    va_end(arguments);
    return false;
}

static bool ok(probe_t *probe, cudaError_t status, const char *call)
{
    return status == cudaSuccess || fail(probe, "%s: %s", call, cudaGetErrorString(status));
}
#define OK(call) ok(probe, call, #call)

static bool capture_end(probe_t *probe, gpu_t *gpu)
{
    cudaGraph_t captured;
    return OK(cudaStreamEndCapture(gpu->stream[0], &captured)) &&
           OK(cudaGraphInstantiateWithFlags(&gpu->graph, captured, 0)) &&
           OK(cudaGraphUpload(gpu->graph, gpu->stream[0]));
}

static bool capture_begin(probe_t *probe, gpu_t *gpu)
{
    return OK(cudaStreamBeginCapture(gpu->stream[0], cudaStreamCaptureModeThreadLocal));
}

/* Replays each GPU's graph once to synchronise and once for the clock. *seconds: one kernel on the slowest GPU. */
static bool replay(probe_t *probe, uint32_t gpus, double *seconds)
{
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < gpus; i++)
            if (!OK(cudaSetDevice((int)i)) || !OK(cudaGraphLaunch(probe->gpu[i].graph, probe->gpu[i].stream[0])))
                return false;
        for (uint32_t i = 0; i < gpus; i++) {
            gpu_t *gpu = &probe->gpu[i];
            if (!OK(cudaSetDevice((int)i)) || !OK(cudaEventRecord(gpu->mark[0], gpu->stream[0])) ||
                !OK(cudaGraphLaunch(gpu->graph, gpu->stream[0])) || !OK(cudaEventRecord(gpu->mark[1], gpu->stream[0])))
                return false;
        }
        times[round] = 0;
        for (uint32_t i = 0; i < gpus; i++) {
            double time;
            if (!OK(seconds_between(probe->gpu[i].mark, &time)))
                return false;
            times[round] = time / CALLS > times[round] ? time / CALLS : times[round];
        }
    }
    *seconds = median(times);
    return true;
}

int tool_floor_launch(void *stream)
{
    return (int)cudaLaunchKernel((const void *)empty, dim3(1), dim3(32), NULL, 0, (cudaStream_t)stream);
}

static bool launch_many(probe_t *probe, int calls)
{
    for (int i = 0; i < calls; i++)
        if (!ok(probe, (cudaError_t)tool_floor_launch(probe->gpu[0].stream[0]), "cudaLaunchKernel"))
            return false;
    return true;
}

static bool measure_launch(probe_t *probe)
{
    gpu_t *gpu = &probe->gpu[0];
    double times[ROUNDS];
    if (!OK(cudaSetDevice(0)) || !capture_begin(probe, gpu) || !launch_many(probe, CALLS) || !capture_end(probe, gpu) ||
        !replay(probe, 1, &probe->floor->launch_graph))
        return false;
    for (int round = 0; round < ROUNDS; round++)
        if (!launch_many(probe, EAGER / 10) || !OK(cudaEventRecord(gpu->mark[0], gpu->stream[0])) ||
            !launch_many(probe, EAGER) || !OK(cudaEventRecord(gpu->mark[1], gpu->stream[0])) ||
            !OK(seconds_between(gpu->mark, &times[round])))
            return false;
    probe->floor->launch_eager = median(times) / EAGER;
    return true;
}

/* ---- One way: the slowest of neighbouring pairs ---- */

static bool bounce_between(probe_t *probe, uint32_t a, uint32_t b, double *seconds)
{
    gpu_t *first = &probe->gpu[a], *second = &probe->gpu[b];
    uint64_t done[2] = {0, 0};
    if (!OK(cudaSetDevice((int)a)) || !OK(cudaMemset(first->flag, 0, sizeof done)) || !OK(cudaDeviceSynchronize()) ||
        !OK(cudaSetDevice((int)b)) || !OK(cudaMemset(second->flag, 0, sizeof done)) || !OK(cudaDeviceSynchronize()))
        return false;
    /* The answering kernel is launched first, or the time would include its launch. */
    bounce<<<1, 1, 0, second->stream[0]>>>(second->flag, first->flag, false, second->flag + 1);
    if (!OK(cudaGetLastError()) || !OK(cudaSetDevice((int)a)) || !OK(cudaEventRecord(first->mark[0], first->stream[0])))
        return false;
    bounce<<<1, 1, 0, first->stream[0]>>>(first->flag, second->flag, true, first->flag + 1);
    if (!OK(cudaGetLastError()) || !OK(cudaEventRecord(first->mark[1], first->stream[0])) ||
        !OK(seconds_between(first->mark, seconds)) || !OK(cudaStreamSynchronize(second->stream[0])) ||
        !OK(cudaMemcpy(done, first->flag, sizeof done, cudaMemcpyDeviceToHost)))
        return false;
    *seconds /= 2 * BOUNCES;
    return done[1] == BOUNCES || fail(probe, "GPU %u does not see what GPU %u stores", a, b);
}

static bool measure_one_way(probe_t *probe)
{
    for (uint32_t a = 0; a < probe->count; a++) {
        double times[ROUNDS];
        for (int round = 0; round < ROUNDS; round++)
            if (!bounce_between(probe, a, (a + 1) % probe->count, &times[round]))
                return false;
        double time = median(times);
        probe->floor->one_way = time > probe->floor->one_way ? time : probe->floor->one_way;
    }
    return true;
}

/* ---- The bare push ---- */

/* `dependent`: with programmatic dependent launch, as in the library where possible. */
static bool capture_push(probe_t *probe, gpu_t *gpu, bool dependent)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(LANES);
    config.stream = gpu->stream[0];
    config.attrs = &early;
    config.numAttrs = dependent ? 1 : 0;
    if (!OK(cudaSetDevice((int)gpu->push.rank)) || !capture_begin(probe, gpu))
        return false;
    for (uint32_t i = 0; i < CALLS; i++)
        if (!OK(cudaLaunchKernelEx(&config, push_kernels[probe->count - 2], gpu->push, i % 2)))
            return false;
    return capture_end(probe, gpu);
}

/* Every byte of GPU i's input is i + 1. */
static bool check_push(probe_t *probe)
{
    const uint8_t sum = (uint8_t)(probe->count * (probe->count + 1) / 2);
    for (uint32_t i = 0; i < probe->count; i++) {
        uint8_t output[LANES * sizeof(uint4)];
        if (!OK(cudaSetDevice((int)i)) ||
            !OK(cudaMemcpy(output, probe->gpu[i].push.output, sizeof output, cudaMemcpyDeviceToHost)))
            return false;
        for (size_t byte = 0; byte < sizeof output; byte++)
            if (output[byte] != sum)
                return fail(probe, "GPU %u computes a wrong sum of what the others pushed", i);
    }
    return true;
}

static bool time_push(probe_t *probe, bool dependent, double *seconds)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (!OK(cudaSetDevice((int)i)) || !OK(cudaMemset(probe->gpu[i].push.output, 0, LANES * sizeof(uint4))) ||
            !OK(cudaDeviceSynchronize()) || !capture_push(probe, &probe->gpu[i], dependent))
            return false;
    return replay(probe, probe->count, seconds) && check_push(probe);
}

/* Dependent launch needs sm_90; capturing it needs a driver of CUDA 12.3. */
static bool can_depend(probe_t *probe, bool *can)
{
    int driver = 0, major = 0;
    if (!OK(cudaDriverGetVersion(&driver)))
        return false;
    *can = driver >= 12030;
    for (uint32_t i = 0; i < probe->count; i++) {
        if (!OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)i)))
            return false;
        *can = *can && major >= 9;
    }
    return true;
}

static bool measure_push(probe_t *probe)
{
    bool can;
    double plain, dependent = 0;
    if (!can_depend(probe, &can) || !time_push(probe, false, &plain) || (can && !time_push(probe, true, &dependent)))
        return false;
    probe->floor->push = can && dependent < plain ? dependent : plain;
    return true;
}

/* ---- Bandwidth of the slowest GPU while all copy to all others ---- */

static bool start_copies(probe_t *probe, uint32_t from)
{
    gpu_t *gpu = &probe->gpu[from];
    if (!OK(cudaSetDevice((int)from)) || !OK(cudaEventRecord(gpu->mark[0], gpu->stream[0])))
        return false;
    for (uint32_t step = 1; step < probe->count; step++) {
        uint32_t to = (from + step) % probe->count;
        uint8_t *part = probe->gpu[to].to + (size_t)from * COPY_BYTES;
        cudaStream_t stream = gpu->stream[step - 1];
        if (!OK(cudaStreamWaitEvent(stream, gpu->mark[0], 0)))
            return false;
        for (int i = 0; i < COPIES; i++)
            if (!OK(cudaMemcpyPeerAsync(part, (int)to, gpu->from, (int)from, COPY_BYTES, stream)))
                return false;
        if (!OK(cudaEventRecord(gpu->copied[step], stream)) ||
            !OK(cudaStreamWaitEvent(gpu->stream[0], gpu->copied[step], 0)))
            return false;
    }
    return OK(cudaEventRecord(gpu->mark[1], gpu->stream[0]));
}

static bool measure_bandwidth(probe_t *probe)
{
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < probe->count; i++)
            if (!start_copies(probe, i))
                return false;
        times[round] = 0;
        for (uint32_t i = 0; i < probe->count; i++) {
            double time;
            if (!OK(seconds_between(probe->gpu[i].mark, &time)))
                return false;
            times[round] = time > times[round] ? time : times[round];
        }
    }
    probe->floor->bandwidth = (double)COPY_BYTES * COPIES * (probe->count - 1) / median(times);
    return true;
}

static bool open_gpu(probe_t *probe, uint32_t index)
{
    gpu_t *gpu = &probe->gpu[index];
    size_t slots = sizeof(uint4) * 2 * TOOL_FLOOR_GPUS * LANES;
    uint4 *memory;
    if (!OK(cudaSetDevice((int)index)) || !OK(cudaEventCreate(&gpu->mark[0])) || !OK(cudaEventCreate(&gpu->mark[1])))
        return false;
    for (uint32_t i = 0; i < probe->count; i++) {
        int can = 1;
        if (i != index && !OK(cudaDeviceCanAccessPeer(&can, (int)index, (int)i)))
            return false;
        if (!can)
            return fail(probe, "GPU %u has no access to GPU %u", index, i);
        if ((i != index && !OK(cudaDeviceEnablePeerAccess((int)i, 0))) ||
            !OK(cudaStreamCreateWithFlags(&gpu->stream[i], cudaStreamNonBlocking)) ||
            !OK(cudaEventCreateWithFlags(&gpu->copied[i], cudaEventDisableTiming)))
            return false;
    }
    if (!OK(cudaMalloc(&gpu->flag, 2 * sizeof(uint64_t))) || !OK(cudaMalloc(&gpu->from, COPY_BYTES)) ||
        !OK(cudaMalloc(&gpu->to, (size_t)COPY_BYTES * probe->count)) ||
        !OK(cudaMalloc(&memory, slots + 2 * sizeof(uint4) * LANES)) || !OK(cudaMemset(memory, 0xFF, slots)) ||
        !OK(cudaMemset((uint8_t *)memory + slots, (int)index + 1, sizeof(uint4) * LANES)) ||
        !OK(cudaDeviceSynchronize()))
        return false;
    gpu->push.input = memory + slots / sizeof(uint4);
    gpu->push.output = memory + slots / sizeof(uint4) + LANES;
    gpu->push.rank = index;
    for (uint32_t i = 0; i < probe->count; i++)
        probe->gpu[i].push.slots[index] = memory;
    return true;
}

void tool_floor_measure(uint32_t gpus, tool_floor_t *floor)
{
    static probe_t the_probe;
    probe_t *probe = &the_probe;
    memset(floor, 0, sizeof *floor);
    probe->floor = floor;
    probe->count = gpus;
    bool right = true;
    for (uint32_t i = 0; i < gpus && right; i++)
        right = open_gpu(probe, i);
    if (right && measure_launch(probe) && measure_one_way(probe) && measure_push(probe))
        measure_bandwidth(probe);
    /* If this fails, the pinned figures stay 0; the others remain valid. */
    tool_floor_t pinned = {};
    if (tool_floor_pinned(gpus, &pinned)) {
        floor->pinned_one_way = pinned.pinned_one_way;
        floor->pinned_store = pinned.pinned_store;
        floor->pinned_load = pinned.pinned_load;
    }
}
