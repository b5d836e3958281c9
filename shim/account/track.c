/* SPDX-License-Identifier: Apache-2.0 */
/* track.c - see track.h. */
#include "shim/account/track.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "transport/transport.h"

enum {
    DEVICES = 64,
    MOST_LAPS = 8192,       /* under way; later launches are left out */
    TRACKS = 256,           /* the last one is everybody's who comes later */
    FIRST_TRACK = 10000000, /* above the ids of threads */
    ANCHOR_NS = 1000000
};

struct shim_lap {
    shim_lap_t *next;
    cudaEvent_t begin, end;
    int device;
    uint64_t begin_ns, ns; /* once measured */
    shim_track_call_t call;
};

typedef struct laps {
    shim_lap_t *first, **last; /* last: where the next one is linked; NULL: at `first` */
} laps_t;

/* Kernels of one communicator run one after the other, so a track's slices do not overlap. */
typedef struct track {
    int device;
    const void *comm;
    uint32_t messages;
} track_t;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static laps_t g_running[DEVICES], g_ended; /* under the lock */
static shim_lap_t *g_free[DEVICES];        /* with events of the device. Under the lock */
static uint32_t g_laps;                    /* made. Under the lock */
/* Under the trace's lock. */
static cudaEvent_t g_anchor[DEVICES];
static cudaStream_t g_stream[DEVICES];
static track_t g_track[TRACKS];
static uint32_t g_tracks;

static void append(laps_t *laps, shim_lap_t *lap)
{
    lap->next = NULL;
    *(laps->last ? laps->last : &laps->first) = lap;
    laps->last = &lap->next;
}

static bool succeeded(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess;
}

/* ---- Launches --------------------------------------------------------------------------- */

/* With the device current. */
static shim_lap_t *make_lap(int device)
{
    shim_lap_t *lap = calloc(1, sizeof(*lap));
    if (lap == NULL)
        return NULL;
    lap->device = device;
    const int mode = net_capture_relax();
    const bool made =
        succeeded(cudaEventCreateWithFlags(&lap->begin, 0)) && succeeded(cudaEventCreateWithFlags(&lap->end, 0));
    if (!made && lap->begin)
        (void)cudaEventDestroy(lap->begin);
    net_capture_restore(mode);
    if (made)
        return lap;
    free(lap);
    return NULL;
}

static shim_lap_t *take_lap(int device)
{
    pthread_mutex_lock(&g_lock);
    shim_lap_t *lap = g_free[device];
    if (lap)
        g_free[device] = lap->next;
    const bool may_make = !lap && g_laps < MOST_LAPS;
    g_laps += may_make;
    pthread_mutex_unlock(&g_lock);
    return may_make ? make_lap(device) : lap;
}

static void give_back(shim_lap_t *lap)
{
    pthread_mutex_lock(&g_lock);
    lap->next = g_free[lap->device];
    g_free[lap->device] = lap;
    pthread_mutex_unlock(&g_lock);
}

shim_lap_t *shim_track_begin(int device, void *stream)
{
    if (atomic_load_explicit(&shim_trace_off, memory_order_relaxed) || device < 0 || device >= DEVICES)
        return NULL;
    shim_lap_t *lap = take_lap(device);
    if (lap && net_event_record(lap->begin, stream) != 0) {
        give_back(lap);
        return NULL;
    }
    return lap;
}

void shim_track_end(shim_lap_t *lap, void *stream, const shim_track_call_t *call)
{
    if (!lap)
        return;
    if (net_event_record(lap->end, stream) != 0) {
        give_back(lap);
        return;
    }
    lap->call = *call;
    pthread_mutex_lock(&g_lock);
    append(&g_running[lap->device], lap);
    pthread_mutex_unlock(&g_lock);
}

/* ---- Times ------------------------------------------------------------------------------ */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static bool has_anchor(int device)
{
    if (!g_stream[device] && !succeeded(cudaStreamCreateWithPriority(&g_stream[device], cudaStreamNonBlocking, 0)))
        return false;
    return g_anchor[device] || succeeded(cudaEventCreateWithFlags(&g_anchor[device], 0));
}

/* Records an event whose time by the host's clock is known, half a record's duration at most off. False: not now. */
static bool anchor(int device, uint64_t *at_ns)
{
    if (!has_anchor(device))
        return false;
    const uint64_t before_ns = now_ns();
    if (net_event_record(g_anchor[device], g_stream[device]) != 0)
        return false;
    cudaError_t passed;
    uint64_t after_ns;
    do {
        passed = cudaEventQuery(g_anchor[device]);
        after_ns = now_ns();
    } while (passed == cudaErrorNotReady && after_ns - before_ns < ANCHOR_NS);
    *at_ns = before_ns + (after_ns - before_ns) / 2;
    return succeeded(passed);
}

/* The anchor is near, so that a float holds its distance. */
static bool measure(shim_lap_t *lap, uint64_t anchor_ns)
{
    float to_anchor_ms, ms;
    if (!succeeded(cudaEventElapsedTime(&to_anchor_ms, lap->begin, g_anchor[lap->device])) ||
        !succeeded(cudaEventElapsedTime(&ms, lap->begin, lap->end)))
        return false;
    lap->begin_ns = anchor_ns - (uint64_t)(int64_t)((double)to_anchor_ms * 1e6);
    lap->ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return true;
}

static void collect_device(int device, laps_t *laps)
{
    uint64_t anchor_ns = 0;
    const bool anchored = anchor(device, &anchor_ns);
    for (shim_lap_t *lap = laps->first, *next; lap; lap = next) {
        next = lap->next;
        const cudaError_t ended = anchored ? cudaEventQuery(lap->end) : cudaErrorNotReady;
        const bool measured = ended == cudaSuccess && measure(lap, anchor_ns);
        if (ended != cudaSuccess)
            (void)succeeded(ended);
        pthread_mutex_lock(&g_lock);
        if (ended == cudaErrorNotReady)
            append(&g_running[device], lap);
        else if (measured)
            append(&g_ended, lap);
        pthread_mutex_unlock(&g_lock); /* else the device was reset, and its events are gone */
    }
}

static laps_t take_running(int device)
{
    pthread_mutex_lock(&g_lock);
    const laps_t laps = g_running[device];
    g_running[device] = (laps_t){NULL, NULL};
    pthread_mutex_unlock(&g_lock);
    return laps;
}

void shim_track_collect(void)
{
    for (int device = 0; device < DEVICES; device++) {
        laps_t laps = take_running(device);
        net_scope_t scope;
        if (!laps.first || net_scope_enter(&scope, device) != 0)
            continue;
        collect_device(device, &laps);
        net_scope_leave(&scope);
    }
}

/* ---- Text ------------------------------------------------------------------------------- */

/* Sets *fresh if it has no name yet. */
static int32_t track_of(const shim_lap_t *lap, bool *fresh)
{
    const track_t wanted = {lap->device, lap->call.comm, lap->call.messages != 0};
    uint32_t i = 0;
    while (i < g_tracks && (g_track[i].device != wanted.device || g_track[i].comm != wanted.comm ||
                            g_track[i].messages != wanted.messages))
        i++;
    *fresh = i == g_tracks && i < TRACKS;
    if (*fresh)
        g_track[g_tracks++] = wanted;
    return FIRST_TRACK + (int32_t)(i < TRACKS ? i : TRACKS - 1);
}

static int name_text(const shim_lap_t *lap, int pid, int32_t track, char text[SHIM_TRACE_EVENT_BYTES])
{
    return snprintf(text, SHIM_TRACE_EVENT_BYTES,
                    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"GPU %d, "
                    "communicator 0x%llx%s\"}},\n",
                    pid, track, lap->device, (unsigned long long)(uintptr_t)lap->call.comm,
                    lap->call.messages ? ", messages" : "");
}

static int slice_text(const shim_lap_t *lap, int pid, int32_t track, char *text, size_t size)
{
    const shim_track_call_t *call = &lap->call;
    return snprintf(
        text, size,
        "{\"ph\":\"X\",\"name\":\"%s %s\",\"cat\":\"gpu\",\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,\"pid\":%d,"
        "\"tid\":%d,\"args\":{\"comm\":\"0x%llx\",\"rank\":%d,\"bytes\":%llu,\"calls\":%u,\"blocks\":%u,"
        "\"threads\":%u}}",
        call->collective, call->algorithm, (unsigned long long)(lap->begin_ns / 1000),
        (unsigned long long)(lap->begin_ns % 1000), (unsigned long long)(lap->ns / 1000),
        (unsigned long long)(lap->ns % 1000), pid, track, (unsigned long long)(uintptr_t)call->comm, call->rank,
        (unsigned long long)call->bytes, call->parts, call->blocks, call->threads);
}

static shim_lap_t *take_ended(void)
{
    pthread_mutex_lock(&g_lock);
    shim_lap_t *lap = g_ended.first;
    if (lap && !(g_ended.first = lap->next))
        g_ended.last = NULL;
    pthread_mutex_unlock(&g_lock);
    return lap;
}

size_t shim_track_text(int pid, char text[SHIM_TRACE_EVENT_BYTES])
{
    bool fresh;
    int length = 0;
    shim_lap_t *lap = take_ended();
    if (!lap)
        return 0;
    const int32_t track = track_of(lap, &fresh);
    if (fresh)
        length = name_text(lap, pid, track, text);
    length += slice_text(lap, pid, track, text + length, SHIM_TRACE_EVENT_BYTES - (size_t)length);
    give_back(lap);
    return (size_t)length;
}

void shim_track_forget(void)
{
    pthread_mutex_init(&g_lock, NULL);
    memset(g_running, 0, sizeof(g_running));
    memset(g_free, 0, sizeof(g_free));
    memset(g_anchor, 0, sizeof(g_anchor));
    memset(g_stream, 0, sizeof(g_stream));
    g_ended = (laps_t){NULL, NULL};
    g_laps = g_tracks = 0;
}

#else
shim_lap_t *shim_track_begin(int device, void *stream)
{
    (void)device, (void)stream;
    return NULL;
}

void shim_track_end(shim_lap_t *lap, void *stream, const shim_track_call_t *call)
{
    (void)lap, (void)stream, (void)call;
}

void shim_track_collect(void)
{
}

size_t shim_track_text(int pid, char text[SHIM_TRACE_EVENT_BYTES])
{
    (void)pid, (void)text;
    return 0;
}

void shim_track_forget(void)
{
}
#endif
