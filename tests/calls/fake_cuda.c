/*
 * fake_cuda.c - fake.h's GPU.
 */
#include "fake.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 16 };

typedef struct stream {
    uint64_t known;
    bool destroyed;
    unsigned long long capture;
} stream_t;

struct CUevent_st {
    uint64_t known;
    unsigned long long capture;
};

struct CUuserObject_st {
    cudaHostFn_t destroy;
    void *pointer;
};

fake_t fake;
static stream_t streams[FAKE_STREAMS];
static struct CUuserObject_st *held[OBJECTS];
static uint32_t held_count;

/* Streams are numbers times 16, so that none looks like a special handle; those are stream 0. */
static stream_t *stream_of(cudaStream_t stream)
{
    uintptr_t number = (uintptr_t)stream / 16;
    return number < FAKE_STREAMS ? &streams[number] : NULL;
}

void fake_reset(void)
{
    fake_graphs_destroy();
    memset(&fake, 0, sizeof(fake));
    memset(streams, 0, sizeof(streams));
}

cudaStream_t fake_stream(int number)
{
    return (cudaStream_t)((uintptr_t)number * 16);
}

void fake_stream_destroy(cudaStream_t stream)
{
    stream_of(stream)->destroyed = true;
}

void fake_stream_capture(cudaStream_t stream, unsigned long long id)
{
    stream_of(stream)->capture = id;
}

uint64_t fake_known(cudaStream_t stream)
{
    return stream_of(stream)->known;
}

void fake_work(fake_kind_t kind, cudaStream_t stream, uint64_t scalar_bits)
{
    stream_t *s = stream_of(stream);
    fake.work[fake.works] = (fake_work_t){.kind = kind,
                                          .device = fake.device,
                                          .stream = stream,
                                          .before = s->known,
                                          .capture = s->capture,
                                          .scalar_bits = scalar_bits};
    s->known |= UINT64_C(1) << fake.works++;
}

void fake_graphs_destroy(void)
{
    for (uint32_t i = 0; i < held_count; i++) {
        held[i]->destroy(held[i]->pointer);
        free(held[i]);
    }
    held_count = fake.graph_references = 0;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = fake.device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    fake.cuda_calls++;
    fake.device = device;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "fake error";
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const void *dependencies, const void *edges, size_t *count)
{
    (void)dependencies, (void)edges, (void)count;
    fake.queries++;
    const stream_t *s = stream_of(stream);
    if (s == NULL || s->destroyed)
        return cudaErrorInvalidResourceHandle;
    if (s->capture == ~0ull)
        return cudaErrorStreamCaptureImplicit;
    *status = s->capture != 0 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *id = s->capture;
    *graph = (cudaGraph_t)(uintptr_t)s->capture;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    static enum cudaStreamCaptureMode now = cudaStreamCaptureModeGlobal;
    enum cudaStreamCaptureMode before = now;
    now = *mode;
    *mode = before;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    fake.cuda_calls++;
    *event = calloc(1, sizeof(**event));
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    fake.cuda_calls++;
    const stream_t *s = stream_of(stream);
    if (s == NULL || s->destroyed)
        return cudaErrorInvalidResourceHandle;
    event->known = s->known;
    event->capture = s->capture;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    fake.cuda_calls++;
    stream_t *s = stream_of(stream);
    if (s == NULL || s->destroyed)
        return cudaErrorInvalidResourceHandle;
    if (s->capture != event->capture) {
        fake.wrong_waits++;
        return cudaErrorStreamCaptureIsolation;
    }
    s->known |= event->known;
    return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy, unsigned references,
                                 unsigned flags)
{
    (void)references, (void)flags;
    *object = malloc(sizeof(**object));
    **object = (struct CUuserObject_st){destroy, pointer};
    return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count)
{
    (void)count;
    object->destroy(object->pointer);
    free(object);
    return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags)
{
    (void)graph, (void)count, (void)flags;
    held[held_count++] = object;
    fake.graph_references++;
    return cudaSuccess;
}
