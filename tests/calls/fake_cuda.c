/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.c - fake.h's GPU.
 *
 * Sets of works and of a graph's nodes are bit masks.
 */
#include "algorithms/stamp.h"
#include "fake.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 64, NODES = 64, ALL_STREAMS = FAKE_STREAMS + 4 };

typedef struct stream {
    uint64_t known; /* works; not captured */
    uint64_t front; /* nodes; captured */
    unsigned long long capture, id;
    bool destroyed, made; /* made: by the code under test */
    uint64_t life;        /* made in it */
} stream_t;

struct CUevent_st {
    uint64_t known, front;
    unsigned long long capture;
    bool recorded; /* ever */
    uint64_t life; /* made in it */
    uint32_t ms;   /* when it was recorded: each record of an event takes one */
};

struct CUgraphNode_st {
    fake_node_t kind;
    unsigned long long capture;
    uint64_t after; /* nodes */
    uint32_t work;  /* FAKE_WORK: the captured one */
    cudaEvent_t event;
    uint64_t known; /* in a replay */
    alg_stamps_t *stamps;
    uint32_t count, what; /* of a stamp */
};

struct CUuserObject_st {
    cudaHostFn_t destroy;
    void *pointer;
};

fake_t fake;
static enum cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
static stream_t streams[ALL_STREAMS];
static unsigned long long next_id;
static struct CUgraphNode_st nodes[NODES];
static uint32_t node_count;
static struct CUgraphNode_st late_stamps[NODES]; /* they wait for running work */
static uint32_t late_count;
static struct CUuserObject_st *held[OBJECTS];
static uint32_t held_count;

/* Streams are numbers times 16, so that none equals a special handle; special handles are stream 0. */
static stream_t *stream_of(cudaStream_t stream)
{
    uintptr_t number = (uintptr_t)stream / 16;
    if (number >= ALL_STREAMS)
        return NULL;
    if (streams[number].id == 0)
        streams[number].id = ++next_id;
    return &streams[number];
}

void fake_reset(void)
{
    fake_graphs_destroy();
    memset(&fake, 0, sizeof(fake));
    memset(streams, 0, sizeof(streams));
    node_count = 0;
}

void fake_device_reset(void)
{
    fake.life++;
    fake.events = fake.streams_made = 0;
}

static cudaError_t check_life(uint64_t life)
{
    fake.stale += life != fake.life; /* the driver crashes */
    return life == fake.life ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaStream_t fake_stream(int number)
{
    return (cudaStream_t)((uintptr_t)number * 16);
}

void fake_stream_destroy(cudaStream_t stream)
{
    stream_of(stream)->destroyed = true;
}

void fake_stream_again(cudaStream_t stream)
{
    *stream_of(stream) = (stream_t){.id = ++next_id};
}

void fake_stream_capture(cudaStream_t stream, unsigned long long id)
{
    stream_t *s = stream_of(stream);
    s->capture = id;
    s->front = 0;
}

/* ---- Graphs ------------------------------------------------------------------------------ */

static uint64_t bit(uint32_t number)
{
    return UINT64_C(1) << number;
}

static uint32_t number_of(const struct CUgraphNode_st *node)
{
    return (uint32_t)(node - nodes);
}

/* The nodes, and all before them. */
static uint64_t closed(uint64_t set)
{
    for (uint64_t before = 0; before != set;) {
        before = set;
        for (uint32_t i = 0; i < node_count; i++)
            if (set & bit(i))
                set |= nodes[i].after;
    }
    return set;
}

static uint64_t works_in(uint64_t set)
{
    uint64_t works = 0;
    for (uint32_t i = 0; i < node_count; i++)
        if (set & bit(i) && nodes[i].kind == FAKE_WORK)
            works |= bit(nodes[i].work);
    return works;
}

static struct CUgraphNode_st *node_add(fake_node_t kind, unsigned long long capture, uint64_t after)
{
    nodes[node_count] = (struct CUgraphNode_st){.kind = kind, .capture = capture, .after = after};
    return &nodes[node_count++];
}

uint32_t fake_nodes(unsigned long long capture, fake_node_t kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node_count; i++)
        count += nodes[i].capture == capture && nodes[i].kind == kind;
    return count;
}

uint32_t fake_edges(unsigned long long capture)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node_count; i++)
        if (nodes[i].capture == capture && nodes[i].kind == FAKE_WORK)
            count += (uint32_t)__builtin_popcountll(nodes[i].after);
    return count;
}

void fake_stream_rewind(cudaStream_t stream, uint32_t work)
{
    for (uint32_t i = 0; i < node_count; i++)
        if (nodes[i].kind == FAKE_WORK && nodes[i].work == work)
            stream_of(stream)->front = bit(i);
}

uint64_t fake_recorded(unsigned long long capture)
{
    uint64_t works = 0;
    for (uint32_t i = 0; i < node_count; i++)
        if (nodes[i].capture == capture && nodes[i].kind == FAKE_RECORD)
            works |= works_in(nodes[i].after);
    return works;
}

uint64_t fake_before_waits(unsigned long long capture)
{
    uint64_t works = 0;
    for (uint32_t i = 0; i < node_count; i++)
        if (nodes[i].capture == capture && nodes[i].kind == FAKE_WAIT)
            works |= works_in(closed(nodes[i].after));
    return works;
}

uint64_t fake_after_waits(unsigned long long capture)
{
    uint64_t waits = 0, works = 0;
    for (uint32_t i = 0; i < node_count; i++)
        if (nodes[i].capture == capture && nodes[i].kind == FAKE_WAIT)
            waits |= bit(i);
    for (uint32_t i = 0; i < node_count; i++)
        if (nodes[i].capture == capture && nodes[i].kind == FAKE_WORK && (closed(bit(i)) & waits) == waits)
            works |= bit(nodes[i].work);
    return works;
}

/* Each takes a millisecond of the GPU's clock. */
static void take_stamp(alg_stamps_t *stamps, uint32_t count, uint32_t what)
{
    static uint64_t ms = 1000;
    const uint64_t number = stamps->taken++;
    ((alg_stamp_t *)(stamps + 1))[number % count] =
        (alg_stamp_t){.ns = ++ms * 1000000, .mark = alg_stamp_mark(number, what)};
}

static void take_late_stamps(void)
{
    for (uint32_t i = 0; i < late_count && !fake.running; i++)
        take_stamp(late_stamps[i].stamps, late_stamps[i].count, late_stamps[i].what);
    late_count = fake.running ? late_count : 0;
}

static uint64_t run_node(struct CUgraphNode_st *node, uint64_t known, cudaStream_t stream)
{
    if (node->kind == FAKE_WAIT)
        return known | node->known;
    if (node->kind == FAKE_RECORD) {
        *node->event = (struct CUevent_st){.known = known, .recorded = true};
        return known;
    }
    if (node->kind == FAKE_STAMP) {
        take_stamp(node->stamps, node->count, node->what);
        return known;
    }
    fake.work[fake.works] = fake.work[node->work];
    fake.work[fake.works].before = known;
    fake.work[fake.works].stream = stream;
    fake.work[fake.works].capture = 0;
    return known | bit(fake.works++);
}

/* A node waits for the event's state at the launch, whatever the graph itself records. */
void fake_graph_launch(unsigned long long capture, cudaStream_t stream)
{
    stream_t *s = stream_of(stream);
    uint64_t start = s->known, left = 0, done = 0;
    take_late_stamps();
    for (uint32_t i = 0; i < node_count; i++) {
        if (nodes[i].capture != capture)
            continue;
        left |= bit(i);
        nodes[i].known = nodes[i].kind == FAKE_WAIT ? nodes[i].event->known : 0;
    }
    while (left) {
        for (uint32_t i = 0; i < node_count; i++) {
            if (!(left & bit(i)) || (nodes[i].after & ~done))
                continue;
            uint64_t known = start;
            for (uint32_t k = 0; k < node_count; k++)
                known |= nodes[i].after & bit(k) ? nodes[k].known : 0;
            nodes[i].known = run_node(&nodes[i], known, stream);
            s->known |= nodes[i].known;
            left &= ~bit(i);
            done |= bit(i);
        }
    }
}

/* ---- Work --------------------------------------------------------------------------------- */

static uint64_t known_on(const stream_t *s)
{
    return s->capture != 0 ? works_in(closed(s->front)) : s->known;
}

uint64_t fake_known(cudaStream_t stream)
{
    return known_on(stream_of(stream));
}

void fake_work(fake_kind_t kind, cudaStream_t stream, uint64_t scalar_bits)
{
    stream_t *s = stream_of(stream);
    fake.work[fake.works] = (fake_work_t){.kind = kind,
                                          .device = fake.device,
                                          .stream = stream,
                                          .before = known_on(s),
                                          .capture = s->capture,
                                          .scalar_bits = scalar_bits,
                                          .relaxed = capture_mode == cudaStreamCaptureModeRelaxed};
    if (s->capture != 0) {
        struct CUgraphNode_st *node = node_add(FAKE_WORK, s->capture, s->front);
        node->work = fake.works;
        s->front = bit(number_of(node));
    }
    s->known |= s->capture != 0 ? 0 : bit(fake.works);
    fake.works++;
}

void fake_join(cudaStream_t stream, cudaStream_t other)
{
    stream_of(stream)->known |= stream_of(other)->known;
    stream_of(stream)->front |= stream_of(other)->front;
}

void fake_graphs_destroy(void)
{
    for (uint32_t i = 0; i < held_count; i++) {
        held[i]->destroy(held[i]->pointer);
        free(held[i]);
    }
    held_count = fake.graph_references = 0;
}

/* ---- Device and streams --------------------------------------------------------------------- */

cudaError_t cudaGetDevice(int *device)
{
    *device = fake.device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    fake.cuda_calls++;
    fake.devices_set++;
    fake.device = device;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    const int error = fake.last_error;
    fake.last_error = cudaSuccess;
    return (cudaError_t)error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "fake error";
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    (void)at, (void)bytes, (void)flags;
    fake.pinned += fake.pin_error == 0;
    return (cudaError_t)fake.pin_error;
}

cudaError_t cudaHostUnregister(void *at)
{
    (void)at;
    fake.pinned--;
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *at, unsigned flags)
{
    (void)flags;
    *device = at;
    return cudaSuccess;
}

int alg_stamp_preload(void)
{
    return cudaSuccess;
}

int alg_stamp_launch(alg_stamps_t *stamps, uint32_t count, uint32_t what, void *stream)
{
    stream_t *s = stream_of(stream);
    if (s->capture != 0) {
        struct CUgraphNode_st *node = node_add(FAKE_STAMP, s->capture, s->front);
        node->stamps = stamps;
        node->count = count;
        node->what = what;
        s->front = bit(number_of(node));
    } else {
        late_stamps[late_count++] = (struct CUgraphNode_st){.stamps = stamps, .count = count, .what = what};
        take_late_stamps();
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    for (int i = FAKE_STREAMS; i < ALL_STREAMS; i++) {
        if (streams[i].made)
            continue;
        *stream = fake_stream(i);
        streams[i] = (stream_t){.id = ++next_id, .made = true, .life = fake.life};
        fake.streams_made++;
        return cudaSuccess;
    }
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (check_life(stream_of(stream)->life) != cudaSuccess)
        return cudaErrorInvalidResourceHandle;
    stream_of(stream)->made = false;
    fake.streams_made--;
    return cudaSuccess;
}

int net_stream_id(void *stream, unsigned long long *id)
{
    const stream_t *s = stream_of(stream);
    if (s == NULL || s->destroyed)
        return cudaErrorInvalidResourceHandle;
    *id = s->id;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

int net_capture_relax(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    return (int)mode;
}

void net_capture_restore(int mode)
{
    capture_mode = (enum cudaStreamCaptureMode)mode;
}

int net_stream_make(void **stream)
{
    return (int)cudaStreamCreateWithPriority((cudaStream_t *)stream, cudaStreamNonBlocking, 0);
}

/* ---- Captures --------------------------------------------------------------------------------- */

static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                cudaGraph_t *graph, const cudaGraphNode_t **front, size_t *count)
{
    static cudaGraphNode_t list[NODES];
    const stream_t *s = stream_of(stream);
    fake.queried |= id != NULL ? 1u << fake.device : 0;
    if (s == NULL || s->destroyed)
        return cudaErrorInvalidResourceHandle;
    if (s->capture == ~0ull)
        return cudaErrorStreamCaptureImplicit;
    *status = s->capture != 0 ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    if (id != NULL) {
        fake.queries++;
        *id = s->capture;
    }
    if (graph != NULL)
        *graph = (cudaGraph_t)(uintptr_t)s->capture;
    if (front == NULL)
        return cudaSuccess;
    *front = list;
    *count = 0;
    for (uint32_t i = 0; i < node_count; i++)
        if (s->front & bit(i))
            list[(*count)++] = &nodes[i];
    return cudaSuccess;
}

static cudaError_t update_dependencies(cudaStream_t stream, cudaGraphNode_t *list, size_t count, unsigned flags)
{
    stream_t *s = stream_of(stream);
    if (s->capture == 0)
        return cudaErrorIllegalState;
    if (flags == cudaStreamSetCaptureDependencies)
        s->front = 0;
    for (size_t i = 0; i < count; i++) {
        if (list[i]->capture != s->capture)
            return cudaErrorInvalidValue;
        s->front |= bit(number_of(list[i]));
    }
    return cudaSuccess;
}

static cudaError_t add_edges(const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (closed(bit(number_of(from[i]))) & bit(number_of(to[i])) || to[i]->after & bit(number_of(from[i])))
            return cudaErrorInvalidValue; /* a cycle, or an edge that exists */
        to[i]->after |= bit(number_of(from[i]));
    }
    return cudaSuccess;
}

static cudaError_t remove_edges(const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t count)
{
    if (fake.remove_error != 0)
        return (cudaError_t)fake.remove_error;
    for (size_t i = 0; i < count; i++) {
        if (!(to[i]->after & bit(number_of(from[i]))))
            return cudaErrorInvalidValue;
        to[i]->after &= ~bit(number_of(from[i]));
    }
    return cudaSuccess;
}

static cudaError_t node_dependencies(cudaGraphNode_t node, cudaGraphNode_t *list, size_t *count)
{
    const size_t room = *count;
    fake.searched++;
    if (fake.search_error != 0)
        return (cudaError_t)fake.search_error;
    *count = 0;
    for (uint32_t i = 0; i < node_count && *count < room; i++)
        if (node->after & bit(i))
            list[(*count)++] = &nodes[i];
    return cudaSuccess;
}

int net_stream_capture(void *stream, unsigned long long *id)
{
    enum cudaStreamCaptureStatus status;
    return capture_info(stream, &status, id, NULL, NULL, NULL);
}

/* With edge data, under the names of the toolkit. */
#if CUDART_VERSION >= 13000
#define INFO_WITH_EDGES cudaStreamGetCaptureInfo
#define DEPENDENCIES_WITH_EDGES cudaGraphNodeGetDependencies
#define EDGES const cudaGraphEdgeData *edges,
#define NO_EDGES (void)edges
#else
#define INFO_WITH_EDGES cudaStreamGetCaptureInfo_v3
#define DEPENDENCIES_WITH_EDGES cudaGraphNodeGetDependencies_v2
#define EDGES
#define NO_EDGES (void)0
#endif

#if CUDART_VERSION >= 12030
cudaError_t INFO_WITH_EDGES(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                            cudaGraph_t *graph, const cudaGraphNode_t **front, const cudaGraphEdgeData **edges,
                            size_t *count)
{
    if (FAKE_DRIVER < 12030)
        return cudaErrorCallRequiresNewerDriver;
    if (edges != NULL)
        *edges = NULL;
    return capture_info(stream, status, id, graph, front, count);
}

/* As the driver does, with room for edge data alone: an edge may have some. */
cudaError_t DEPENDENCIES_WITH_EDGES(cudaGraphNode_t node, cudaGraphNode_t *list, cudaGraphEdgeData *edges,
                                    size_t *count)
{
    if (FAKE_DRIVER < 12030)
        return cudaErrorCallRequiresNewerDriver;
    return edges != NULL ? node_dependencies(node, list, count) : cudaErrorInvalidValue;
}
#endif

#if CUDART_VERSION < 13000
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **front,
                                        size_t *count)
{
    if (front != NULL && FAKE_DRIVER >= 12030)
        return cudaErrorLossyQuery;
    return capture_info(stream, status, id, graph, front, count);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *list, size_t *count)
{
    return FAKE_DRIVER < 12030 ? node_dependencies(node, list, count) : cudaErrorLossyQuery;
}
#endif

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *list, EDGES size_t count,
                                                unsigned flags)
{
    NO_EDGES;
    return update_dependencies(stream, list, count, flags);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                     EDGES size_t count)
{
    NO_EDGES;
    (void)graph;
    return add_edges(from, to, count);
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
                                        EDGES size_t count)
{
    NO_EDGES;
    (void)graph;
    return remove_edges(from, to, count);
}

static uint64_t set_of(const cudaGraphNode_t *list, size_t count)
{
    uint64_t set = 0;
    for (size_t i = 0; i < count; i++)
        set |= bit(number_of(list[i]));
    return set;
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                      size_t count, cudaEvent_t event)
{
    fake.cuda_calls++;
    if (fake.wait_error != 0)
        return (cudaError_t)fake.wait_error;
    *node = node_add(FAKE_WAIT, (unsigned long long)(uintptr_t)graph, set_of(after, count));
    (*node)->event = event;
    return check_life(event->life);
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *after,
                                        size_t count, cudaEvent_t event)
{
    if (fake.record_error != 0)
        return (cudaError_t)fake.record_error;
    *node = node_add(FAKE_RECORD, (unsigned long long)(uintptr_t)graph, set_of(after, count));
    (*node)->event = event;
    return cudaSuccess;
}

/* ---- Events --------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    fake.cuda_calls++;
    fake.events++;
    *event = calloc(1, sizeof(**event));
    (*event)->life = fake.life;
    return cudaSuccess;
}

int net_event_make(void **event, bool timed)
{
    const int mode = net_capture_relax();
    const cudaError_t error = cudaEventCreateWithFlags((cudaEvent_t *)event, timed ? 0 : cudaEventDisableTiming);
    net_capture_restore(mode);
    return (int)error;
}

int net_event_record(void *handle, void *stream)
{
    cudaEvent_t event = handle;
    fake.cuda_calls++;
    const stream_t *s = stream_of(stream);
    if (s == NULL || s->destroyed)
        return cudaErrorInvalidResourceHandle;
    if (fake.record_error != 0)
        return (cudaError_t)fake.record_error;
    const uint64_t life = event->life;
    *event = (struct CUevent_st){.known = s->known,
                                 .front = s->front,
                                 .capture = s->capture,
                                 .recorded = true,
                                 .life = life,
                                 .ms = s->made ? fake.ms : ++fake.ms};
    return check_life(life);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    if (check_life(begin->life) != cudaSuccess || check_life(end->life) != cudaSuccess)
        return cudaErrorInvalidResourceHandle;
    *ms = (float)end->ms - (float)begin->ms;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (check_life(event->life) != cudaSuccess)
        return cudaErrorInvalidResourceHandle;
    if (fake.ends_after > 0 && --fake.ends_after == 0)
        fake.running = false;
    return fake.running ? cudaErrorNotReady : cudaSuccess;
}

int net_event_query(void *event)
{
    return (int)cudaEventQuery(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (check_life(event->life) != cudaSuccess)
        return cudaErrorInvalidResourceHandle;
    fake.events--;
    free(event);
    return cudaSuccess;
}

/* A wait may add a stream to a capture: intended for Shunt's streams, an error for the program's. */
static bool may_wait(const stream_t *s, const struct CUevent_st *event)
{
    return s->capture == event->capture || (s->made && s->capture == 0);
}

int net_stream_wait(void *stream, void *handle)
{
    const struct CUevent_st *event = handle;
    fake.cuda_calls++;
    stream_t *s = stream_of(stream);
    if (s == NULL || s->destroyed)
        return cudaErrorInvalidResourceHandle;
    if (fake.wait_error != 0)
        return (cudaError_t)fake.wait_error;
    if (check_life(event->life) != cudaSuccess)
        return cudaErrorInvalidResourceHandle;
    if (!event->recorded) /* nothing to wait for, so there may be no node */
        return cudaSuccess;
    if (!may_wait(s, event)) {
        fake.wrong_waits++;
        return cudaErrorStreamCaptureIsolation;
    }
    s->capture = event->capture;
    s->known |= event->capture == 0 ? event->known : 0;
    s->front |= event->front;
    return cudaSuccess;
}

/* ---- User objects --------------------------------------------------------------------------- */

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy, unsigned references,
                                 unsigned flags)
{
    (void)references, (void)flags;
    if (fake.retain_error != 0)
        return (cudaError_t)fake.retain_error;
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
