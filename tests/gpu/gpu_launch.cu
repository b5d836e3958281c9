/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of each part of an eager call, on the host and on the stream: a measurement, not a test. One GPU; prints
 * CSV.
 *
 * A call of Shunt's is: queries of the current device and the stream's capture
 * state and the stream's id, a launch with some 300 bytes of arguments, programmatic
 * dependent launch and a priority, an event record. Each row adds or replaces a part.
 * The kernel only waits for its predecessor, as Shunt's do.
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
    BARE = 1,          /* an empty kernel without arguments instead of Shunt's */
    DEPENDENT = 2,     /* programmatic dependent launch */
    RECORD = 4,        /* an event record after it */
    IN_LAUNCH = 8,     /* an event as an attribute of the launch */
    ASK = 16,          /* context, capture state, the stream's id */
    DRIVER = 32,       /* launch by the driver's function instead of the runtime's */
    EVENT_DRIVER = 64, /* the same for the event record */
    ASK_DRIVER = 128,  /* the same for the questions */
    PRIORITY = 256,    /* as an attribute of the launch */
    PACKED = 512,      /* by the driver: all arguments in one buffer */
    TURNS = 1024       /* on two streams in turn, each waiting for the other */
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
    {"arguments; dependent; record by the driver", DEPENDENT | EVENT_DRIVER},
    {"arguments; dependent; event in the launch", DEPENDENT | IN_LAUNCH},
    {"arguments; dependent; event in the launch; by the driver", DEPENDENT | IN_LAUNCH | DRIVER},
    {"arguments; priority", PRIORITY},
    {"arguments; dependent; priority", DEPENDENT | PRIORITY},
    {"arguments; dependent; priority; by the driver", DEPENDENT | PRIORITY | DRIVER},
    {"arguments; dependent; priority; by the driver, packed", DEPENDENT | PRIORITY | DRIVER | PACKED},
    {"arguments; dependent; questions", DEPENDENT | ASK},
    {"arguments; dependent; questions to the driver", DEPENDENT | ASK | ASK_DRIVER},
    {"a whole call", DEPENDENT | PRIORITY | RECORD | ASK},
    {"a whole call; the launch by the driver", DEPENDENT | PRIORITY | DRIVER | RECORD | ASK},
    {"a whole call; all by the driver", DEPENDENT | PRIORITY | DRIVER | EVENT_DRIVER | ASK | ASK_DRIVER},
    {"a whole call; all by the driver, packed",
     DEPENDENT | PRIORITY | DRIVER | PACKED | EVENT_DRIVER | ASK | ASK_DRIVER},
    {"a whole call, on two streams in turn", DEPENDENT | PRIORITY | RECORD | ASK | TURNS},
    {"a whole call, on two streams in turn; all by the driver",
     DEPENDENT | PRIORITY | DRIVER | EVENT_DRIVER | ASK | ASK_DRIVER | TURNS},
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
    cudaStream_t stream, other;
    int priority;
    cudaEvent_t mark[2], event;
    CUfunction function[2]; /* empty, waits */
    decltype(&cuLaunchKernelEx) launch;
    decltype(&cuEventRecord) record;
    decltype(&cuStreamWaitEvent) wait;
    decltype(&cuCtxGetCurrent) context;
    decltype(&cuStreamGetId) id;
    CUresult (*capture)(CUstream, CUstreamCaptureStatus *, cuuint64_t *);
    char *out;
    arguments_t arguments;
} bench_t;

static void ask_driver(const bench_t *bench)
{
    CUcontext context;
    CUstreamCaptureStatus status;
    cuuint64_t capture;
    unsigned long long id;
    OK(bench->context(&context));
    OK(bench->capture(bench->stream, &status, &capture));
    OK(bench->id(bench->stream, &id));
}

static void ask(const bench_t *bench)
{
    CUcontext context;
    enum cudaStreamCaptureStatus status;
    unsigned long long id;
    OK(bench->context(&context)); /* the runtime has no such question */
#if CUDART_VERSION >= 13000
    OK(cudaStreamGetCaptureInfo(bench->stream, &status, &id, NULL, NULL, NULL, NULL));
#else
    OK(cudaStreamGetCaptureInfo_v2(bench->stream, &status, &id, NULL, NULL, NULL));
#endif
    OK(cudaStreamGetId(bench->stream, &id));
}

static void launch_runtime(bench_t *bench, unsigned parts)
{
    cudaLaunchAttribute attributes[3] = {};
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
    if (parts & PRIORITY) {
        attributes[used].id = cudaLaunchAttributePriority;
        attributes[used++].val.priority = bench->priority;
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
    CUlaunchAttribute attributes[3] = {};
    CUlaunchConfig config = {};
    void *arguments[] = {&bench->arguments, &bench->out};
    struct {
        arguments_t arguments;
        char *out;
    } buffer = {};
    size_t bytes = sizeof buffer;
    void *packed[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                      CU_LAUNCH_PARAM_END};
    const bool bare = (parts & BARE) != 0, pack = (parts & PACKED) != 0;
    unsigned used = 0;
    if (parts & DEPENDENT) {
        attributes[used].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[used++].value.programmaticStreamSerializationAllowed = 1;
    }
    if (parts & IN_LAUNCH) {
        attributes[used].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
        attributes[used++].value.programmaticEvent.event = bench->event;
    }
    if (parts & PRIORITY) {
        attributes[used].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        attributes[used++].value.priority = bench->priority;
    }
    if (pack) {
        buffer.arguments = bench->arguments;
        buffer.out = bench->out;
    }
    config.gridDimX = bare ? 1 : BLOCKS;
    config.blockDimX = bare ? 32 : THREADS;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = bench->stream;
    config.attrs = attributes;
    config.numAttrs = used;
    OK(bench->launch(&config, bench->function[bare ? 0 : 1], bare || pack ? NULL : arguments, pack ? packed : NULL));
}

/* Order the other stream after this one's last call. */
static void turn(bench_t *bench)
{
    cudaStream_t now = bench->other;
    bench->other = bench->stream;
    bench->stream = now;
    OK(bench->wait(bench->stream, bench->event, 0));
}

static void call(bench_t *bench, unsigned parts)
{
    if (parts & ASK && parts & ASK_DRIVER)
        ask_driver(bench);
    else if (parts & ASK)
        ask(bench);
    if (parts & TURNS)
        turn(bench);
    if (parts & DRIVER)
        launch_driver(bench, parts);
    else
        launch_runtime(bench, parts);
    if (parts & RECORD)
        OK(cudaEventRecord(bench->event, bench->stream));
    if (parts & EVENT_DRIVER)
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

/* Medians over ROUNDS: host time of a call, and time from one call to the next on the stream. */
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
    int least;
    OK(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&bench.other, cudaStreamNonBlocking));
    OK(cudaDeviceGetStreamPriorityRange(&least, &bench.priority));
    OK(cudaEventCreate(&bench.mark[0]));
    OK(cudaEventCreate(&bench.mark[1]));
    OK(cudaEventCreateWithFlags(&bench.event, cudaEventDisableTiming));
    OK(cudaMalloc(&bench.out, 1));
    OK(cudaGetFuncBySymbol(&bench.function[0], (const void *)empty));
    OK(cudaGetFuncBySymbol(&bench.function[1], (const void *)waits));
    bench.launch = (decltype(&cuLaunchKernelEx))driver("cuLaunchKernelEx");
    bench.record = (decltype(&cuEventRecord))driver("cuEventRecord");
    bench.wait = (decltype(&cuStreamWaitEvent))driver("cuStreamWaitEvent");
    bench.context = (decltype(&cuCtxGetCurrent))driver("cuCtxGetCurrent");
    bench.id = (decltype(&cuStreamGetId))driver("cuStreamGetId");
    bench.capture = (decltype(bench.capture))driver("cuStreamGetCaptureInfo");
    printf("call,host_ns,stream_us\n");
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        measure(&bench, variants[i].parts, &host_ns, &stream_us); /* once to warm up */
        measure(&bench, variants[i].parts, &host_ns, &stream_us);
        printf("%s,%.0f,%.2f\n", variants[i].name, host_ns, stream_us);
    }
    return 0;
}
