/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of each part of an eager call, on the host and on the stream: a program
 * for decisions, not a test. One GPU; prints CSV.
 *
 * A call of Shunt's is: queries of the current device and the stream's capture
 * state, a launch with some 300 bytes of arguments and programmatic dependent
 * launch, an event record. Each row adds or replaces a part. The kernel only waits
 * for its predecessor, as Shunt's do.
 */
#include <cuda.h>
#include <cuda_runtime.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 200, ROUNDS = 15, BLOCKS = 8, THREADS = 64, ARGUMENT_BYTES = 304 };

enum part {
    BARE = 1,         /* an empty kernel without arguments instead of Shunt's */
    DEPENDENT = 2,    /* programmatic dependent launch */
    RECORD = 4,       /* an event record after it */
    IN_LAUNCH = 8,    /* an event as an attribute of the launch */
    ASK = 16,         /* device and capture state */
    DRIVER = 32,      /* launch by the driver's function instead of the runtime's */
    DRIVER_EVENT = 64 /* the same for the event record */
};

typedef struct variant {
    const char *name;
    unsigned parts;
} variant_t;

static const variant_t variants[] = {
    {"an empty kernel", BARE},
    {"an empty kernel; by the driver", BARE | DRIVER},
    {"arguments", 0},
    {"arguments; by the driver", DRIVER},
    {"arguments; dependent", DEPENDENT},
    {"arguments; dependent; by the driver", DEPENDENT | DRIVER},
    {"arguments; record", RECORD},
    {"arguments; dependent; record", DEPENDENT | RECORD},
    {"arguments; dependent; record by the driver", DEPENDENT | DRIVER_EVENT},
    {"arguments; dependent; event in the launch", DEPENDENT | IN_LAUNCH},
    {"arguments; dependent; device and capture asked for", DEPENDENT | ASK},
    {"a whole call", DEPENDENT | RECORD | ASK},
    {"a whole call; launch and record by the driver", DEPENDENT | DRIVER | DRIVER_EVENT | ASK},
};

typedef struct arguments {
    char bytes[ARGUMENT_BYTES];
} arguments_t;

static __global__ void empty()
{
}

static __global__ void waits(const __grid_constant__ arguments_t arguments, char *out)
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    if (threadIdx.x == THREADS)
        *out = arguments.bytes[1];
}

#define OK(call)                                                     \
    do {                                                             \
        int ok_error = (int)(call);                                  \
        if (ok_error != 0) {                                         \
            fprintf(stderr, "%s: CUDA error %d\n", #call, ok_error); \
            exit(1);                                                 \
        }                                                            \
    } while (0)

typedef struct bench {
    cudaStream_t stream;
    cudaEvent_t mark[2], event;
    CUfunction function[2]; /* empty, waits */
    decltype(&cuLaunchKernelEx) launch;
    decltype(&cuEventRecord) record;
    char *out;
    arguments_t arguments;
} bench_t;

static void ask(const bench_t *bench)
{
    int device;
    enum cudaStreamCaptureStatus status;
    unsigned long long id;
    OK(cudaGetDevice(&device));
#if CUDART_VERSION >= 13000
    OK(cudaStreamGetCaptureInfo(bench->stream, &status, &id, NULL, NULL, NULL, NULL));
#else
    OK(cudaStreamGetCaptureInfo_v2(bench->stream, &status, &id, NULL, NULL, NULL));
#endif
}

static void launch_runtime(bench_t *bench, unsigned parts)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    unsigned used = 0;
    if (parts & DEPENDENT) {
        attributes[used].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[used++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (parts & IN_LAUNCH) {
        attributes[used].id = cudaLaunchAttributeProgrammaticEvent;
        attributes[used++].val.programmaticEvent.event = bench->event;
    }
    config.gridDim = dim3(BLOCKS);
    config.blockDim = dim3(THREADS);
    config.stream = bench->stream;
    config.attrs = attributes;
    config.numAttrs = used;
    if (parts & BARE)
        OK(cudaLaunchKernel((const void *)empty, dim3(1), dim3(32), NULL, 0, bench->stream));
    else
        OK(cudaLaunchKernelEx(&config, waits, bench->arguments, bench->out));
}

static void launch_driver(bench_t *bench, unsigned parts)
{
    CUlaunchAttribute dependent = {};
    CUlaunchConfig config = {};
    void *arguments[] = {&bench->arguments, &bench->out};
    bool bare = (parts & BARE) != 0;
    dependent.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    dependent.value.programmaticStreamSerializationAllowed = 1;
    config.gridDimX = bare ? 1 : BLOCKS;
    config.blockDimX = bare ? 32 : THREADS;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = bench->stream;
    config.attrs = &dependent;
    config.numAttrs = parts & DEPENDENT ? 1 : 0;
    OK(bench->launch(&config, bench->function[bare ? 0 : 1], bare ? NULL : arguments, NULL));
}

static void call(bench_t *bench, unsigned parts)
{
    if (parts & ASK)
        ask(bench);
    if (parts & DRIVER)
        launch_driver(bench, parts);
    else
        launch_runtime(bench, parts);
    if (parts & RECORD)
        OK(cudaEventRecord(bench->event, bench->stream));
    if (parts & DRIVER_EVENT)
        OK(bench->record(bench->event, bench->stream));
}

static double now_ns()
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Medians of ROUNDS: until a call returns, and from one to the next on the stream. */
static void measure(bench_t *bench, unsigned parts, double *host_ns, double *stream_us)
{
    double host[ROUNDS], stream[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        float milliseconds;
        OK(cudaEventRecord(bench->mark[0], bench->stream));
        double start = now_ns();
        for (int i = 0; i < CALLS; i++)
            call(bench, parts);
        host[round] = (now_ns() - start) / CALLS;
        OK(cudaEventRecord(bench->mark[1], bench->stream));
        OK(cudaEventSynchronize(bench->mark[1]));
        OK(cudaEventElapsedTime(&milliseconds, bench->mark[0], bench->mark[1]));
        stream[round] = milliseconds * 1e3 / CALLS;
    }
    qsort(host, ROUNDS, sizeof(host[0]), by_size);
    qsort(stream, ROUNDS, sizeof(stream[0]), by_size);
    *host_ns = host[ROUNDS / 2];
    *stream_us = stream[ROUNDS / 2];
}

/* The runtime has loaded the driver's library. */
static void *driver(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = library != NULL ? dlsym(library, name) : NULL;
    OK(found == NULL);
    return found;
}

int main()
{
    static bench_t bench;
    double host_ns, stream_us;
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
        printf("SKIP: no GPU here\n");
        return 77;
    }
    OK(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
    OK(cudaEventCreate(&bench.mark[0]));
    OK(cudaEventCreate(&bench.mark[1]));
    OK(cudaEventCreateWithFlags(&bench.event, cudaEventDisableTiming));
    OK(cudaMalloc(&bench.out, 1));
    OK(cudaGetFuncBySymbol(&bench.function[0], (const void *)empty));
    OK(cudaGetFuncBySymbol(&bench.function[1], (const void *)waits));
    bench.launch = (decltype(&cuLaunchKernelEx))driver("cuLaunchKernelEx");
    bench.record = (decltype(&cuEventRecord))driver("cuEventRecord");
    printf("call,host_ns,stream_us\n");
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        measure(&bench, variants[i].parts, &host_ns, &stream_us); /* once to warm up */
        measure(&bench, variants[i].parts, &host_ns, &stream_us);
        printf("%s,%.0f,%.2f\n", variants[i].name, host_ns, stream_us);
    }
    return 0;
}
