/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/account/track.h"
#include "shim/account/stamps.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/transport.h"

enum {
    DEVICES = 64,
    MOST_LAPS = 8192,       /* timed launches; those beyond get no slice */
    TRACKS = 256,           /* later communicators have no slices */
    FIRST_TRACK = 10000000, /* above the ids of threads */
    ANCHOR_NS = 1000000
};

struct shim_lap {
    shim_lap_t *next;
    void *begin, *end; /* events */
    int device;
    uint64_t life; /* of the device when the events were made */
    shim_slice_t slice;
};

typedef struct laps {
    shim_lap_t *first, **last; /* last: the pointer that an append sets; NULL: `first` */
} laps_t;

/* Kernels of one communicator run one after the other. Replayed kernels are read apart, so they have another track. */
typedef struct track {
    int device;
    const void *comm;
    shim_track_kind_t kind;
    bool captured;
    uint64_t ended_ns; /* of its last slice */
} track_t;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static laps_t g_running[DEVICES], g_ended; /* under the lock, like the next three */
static shim_lap_t *g_free[DEVICES];        /* unused laps by device */
static uint64_t g_life[DEVICES];           /* device's life in which g_running's and g_free's events were made */
static uint32_t g_laps;
static _Atomic uint64_t g_left_out; /* not yet reported */
/* Used only by the thread that collects. */
static struct anchor {
    uint64_t life;
    void *event, *stream;
} g_anchor[DEVICES];
/* Under the trace's lock. */
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

/* Frees laps whose events no longer exist. Under the lock. */
static void forget(shim_lap_t *lap)
{
    for (shim_lap_t *next; lap; lap = next) {
        next = lap->next;
        free(lap);
        g_laps--;
    }
}

/* Call with the device current. */
static shim_lap_t *make_lap(int device)
{
    shim_lap_t *lap = calloc(1, sizeof(*lap));
    if (lap == NULL)
        return NULL;
    lap->device = device;
    if (net_event_make(&lap->begin, true) == 0 && net_event_make(&lap->end, true) == 0)
        return lap;
    if (lap->begin)
        (void)succeeded(cudaEventDestroy(lap->begin));
    free(lap);
    return NULL;
}

static shim_lap_t *take_lap(int device, uint64_t life)
{
    pthread_mutex_lock(&g_lock);
    if (life > g_life[device]) { /* the device was reset */
        forget(g_free[device]);
        forget(g_running[device].first);
        g_free[device] = NULL;
        g_running[device] = (laps_t){NULL, NULL};
        g_life[device] = life;
    }
    shim_lap_t *lap = g_free[device];
    if (lap)
        g_free[device] = lap->next;
    const bool may_make = !lap && life == g_life[device] && g_laps < MOST_LAPS;
    g_laps += may_make;
    pthread_mutex_unlock(&g_lock);
    if (may_make) {
        lap = make_lap(device);
        if (!lap) {
            pthread_mutex_lock(&g_lock);
            g_laps--;
            pthread_mutex_unlock(&g_lock);
        }
    }
    if (lap)
        lap->life = life;
    else
        atomic_fetch_add(&g_left_out, 1);
    return lap;
}

static void give_back(shim_lap_t *lap)
{
    pthread_mutex_lock(&g_lock);
    if (lap->life == g_life[lap->device]) {
        lap->next = g_free[lap->device];
        g_free[lap->device] = lap;
    } else {
        lap->next = NULL;
        forget(lap);
    }
    pthread_mutex_unlock(&g_lock);
}

/* Destroys a lap whose events belong to another context than the stream, or cannot be measured. */
static void drop(shim_lap_t *lap)
{
    (void)succeeded(cudaEventDestroy(lap->begin));
    (void)succeeded(cudaEventDestroy(lap->end));
    lap->next = NULL;
    pthread_mutex_lock(&g_lock);
    forget(lap);
    pthread_mutex_unlock(&g_lock);
}

static shim_lap_t *begin_lap(const shim_track_call_t *call, void *stream)
{
    if (call->device < 0 || call->device >= DEVICES)
        return NULL;
    shim_lap_t *lap = take_lap(call->device, call->life);
    if (lap && net_event_record(lap->begin, stream) != 0) {
        drop(lap);
        return NULL;
    }
    return lap;
}

static void end_lap(shim_lap_t *lap, const shim_track_call_t *call, void *stream)
{
    if (net_event_record(lap->end, stream) != 0) {
        drop(lap);
        return;
    }
    lap->slice.call = *call;
    pthread_mutex_lock(&g_lock);
    append(&g_running[lap->device], lap);
    pthread_mutex_unlock(&g_lock);
}

void shim_track_prepare(int device, uint64_t life)
{
    shim_stamps_prepare(device, life);
}

shim_timed_t shim_track_begin(const shim_track_call_t *call, void *stream)
{
    if (call->captured)
        return (shim_timed_t){.stamped = shim_stamps_begin(call, stream)};
    return (shim_timed_t){.lap = begin_lap(call, stream)};
}

void shim_track_end(shim_timed_t timed, const shim_track_call_t *call, void *stream)
{
    if (timed.lap)
        end_lap(timed.lap, call, stream);
    shim_stamps_end(&timed.stamped, stream);
}

static bool has_anchor(int device, uint64_t life)
{
    struct anchor *anchor = &g_anchor[device];
    if (anchor->life != life)
        *anchor = (struct anchor){.life = life};
    return (anchor->stream || net_stream_make(&anchor->stream) == 0) &&
           (anchor->event || net_event_make(&anchor->event, true) == 0);
}

/* Records an event between two readings of the host's clock. False: it did not pass in time, as on a full GPU. */
static bool anchor(int device, uint64_t life, uint64_t *at_ns)
{
    if (!has_anchor(device, life))
        return false;
    const uint64_t before_ns = net_now_ns();
    if (net_event_record(g_anchor[device].event, g_anchor[device].stream) != 0)
        return false;
    int passed;
    uint64_t ns;
    do {
        passed = net_event_query(g_anchor[device].event);
        ns = net_now_ns() - before_ns;
    } while (passed == NET_NOT_READY && ns < ANCHOR_NS);
    *at_ns = before_ns + ns / 2;
    return passed == 0 && ns < ANCHOR_NS;
}

/* The time from a lap to the anchor is short, so a float suffices. */
static bool measure(shim_lap_t *lap, uint64_t anchor_ns)
{
    float to_anchor_ms, ms;
    if (!succeeded(cudaEventElapsedTime(&to_anchor_ms, lap->begin, g_anchor[lap->device].event)) ||
        !succeeded(cudaEventElapsedTime(&ms, lap->begin, lap->end)))
        return false;
    lap->slice.begin_ns = anchor_ns - (uint64_t)(int64_t)((double)to_anchor_ms * 1e6);
    lap->slice.ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return true;
}

/* The laps in `ended` go to g_ended. Those in `left` still run: they go back, before newer laps. */
static void return_laps(int device, uint64_t life, laps_t *ended, laps_t *left)
{
    pthread_mutex_lock(&g_lock);
    if (left->first && life != g_life[device]) {
        forget(left->first);
    } else if (left->first) {
        *left->last = g_running[device].first;
        if (!g_running[device].first)
            g_running[device].last = left->last;
        g_running[device].first = left->first;
    }
    if (ended->first) {
        *(g_ended.last ? g_ended.last : &g_ended.first) = ended->first;
        g_ended.last = ended->last;
    }
    pthread_mutex_unlock(&g_lock);
}

static void collect_device(int device, uint64_t life, const laps_t *laps)
{
    uint64_t anchor_ns = 0;
    laps_t ended = {NULL, NULL}, left = {NULL, NULL};
    const bool anchored = anchor(device, life, &anchor_ns);
    for (shim_lap_t *lap = laps->first, *next; lap; lap = next) {
        next = lap->next;
        const int passed = anchored ? net_event_query(lap->end) : NET_NOT_READY;
        if (passed == NET_NOT_READY)
            append(&left, lap);
        else if (passed == 0 && measure(lap, anchor_ns))
            append(&ended, lap);
        else
            drop(lap);
    }
    return_laps(device, life, &ended, &left);
}

static void forget_lost(shim_lap_t *laps)
{
    pthread_mutex_lock(&g_lock);
    forget(laps);
    pthread_mutex_unlock(&g_lock);
}

static laps_t take_running(int device, uint64_t *life)
{
    pthread_mutex_lock(&g_lock);
    const laps_t laps = g_running[device];
    g_running[device] = (laps_t){NULL, NULL};
    *life = g_life[device];
    pthread_mutex_unlock(&g_lock);
    return laps;
}

void shim_track_collect(void)
{
    for (int device = 0; device < DEVICES; device++) {
        uint64_t life;
        const laps_t laps = take_running(device, &life);
        net_scope_t scope;
        if (!laps.first)
            continue;
        if (net_device_lost(device, life) || net_scope_enter(&scope, device) != 0) {
            forget_lost(laps.first);
            continue;
        }
        collect_device(device, life, &laps);
        net_scope_leave(&scope);
    }
    shim_stamps_collect();
}

/* NULL: too many tracks. */
static track_t *track_of(const shim_track_call_t *call)
{
    const track_t wanted = {call->device, call->comm, call->kind, call->captured, 0};
    uint32_t i = 0;
    while (i < g_tracks && (g_track[i].device != wanted.device || g_track[i].comm != wanted.comm ||
                            g_track[i].kind != wanted.kind || g_track[i].captured != wanted.captured))
        i++;
    if (i == TRACKS)
        return NULL;
    if (i == g_tracks)
        g_track[g_tracks++] = wanted;
    return &g_track[i];
}

/* The clocks' distance is known to microseconds, so slices may overlap; viewers drop such slices. */
static void clip(track_t *track, shim_slice_t *slice)
{
    const uint64_t end_ns = slice->begin_ns + slice->ns;
    if (slice->begin_ns < track->ended_ns)
        slice->begin_ns = track->ended_ns;
    slice->ns = end_ns > slice->begin_ns ? end_ns - slice->begin_ns : 0;
    track->ended_ns = slice->begin_ns + slice->ns;
}

static int name_text(const track_t *track, int pid, int32_t number, char *text, size_t size)
{
    static const char *const kinds[] = {
        [SHIM_TRACK_COLLECTIVES] = "", [SHIM_TRACK_MESSAGES] = ", messages", [SHIM_TRACK_EXPERTS] = ", experts"};
    return snprintf(text, size,
                    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"GPU %d, "
                    "communicator 0x%llx%s%s\"}},\n",
                    pid, number, track->device, (unsigned long long)(uintptr_t)track->comm, kinds[track->kind],
                    track->captured ? ", replays" : "");
}

static int slice_text(const shim_slice_t *slice, int pid, int32_t number, char *text, size_t size)
{
    const shim_track_call_t *call = &slice->call;
    return snprintf(
        text, size,
        "{\"ph\":\"X\",\"name\":\"%s %s\",\"cat\":\"gpu\",\"ts\":%llu.%03llu,\"dur\":%llu.%03llu,\"pid\":%d,"
        "\"tid\":%d,\"args\":{\"comm\":\"0x%llx\",\"rank\":%d,\"bytes\":%llu,\"calls\":%u,\"blocks\":%u,"
        "\"threads\":%u,\"captured\":%s}}",
        call->collective, call->algorithm, SHIM_TRACE_US(slice->begin_ns), SHIM_TRACE_US(slice->ns), pid, number,
        (unsigned long long)(uintptr_t)call->comm, call->rank, (unsigned long long)call->bytes, call->parts,
        call->blocks, call->threads, call->captured ? "true" : "false");
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

static bool next_slice(shim_slice_t *slice)
{
    shim_lap_t *lap = take_ended();
    if (!lap)
        return shim_stamps_next(slice);
    *slice = lap->slice;
    give_back(lap);
    return true;
}

static size_t text_of(shim_slice_t *slice, track_t *track, int pid, char *text, size_t size)
{
    const int32_t number = FIRST_TRACK + (int32_t)(track - g_track);
    const int length = track->ended_ns == 0 ? name_text(track, pid, number, text, size) : 0;
    clip(track, slice);
    return (size_t)(length + slice_text(slice, pid, number, text + length, size - (size_t)length));
}

size_t shim_track_text(int pid, char *text, size_t size)
{
    shim_slice_t slice;
    while (next_slice(&slice)) {
        track_t *track = track_of(&slice.call);
        if (track)
            return text_of(&slice, track, pid, text, size);
        atomic_fetch_add(&g_left_out, 1);
    }
    return 0;
}

uint64_t shim_track_left_out(void)
{
    return atomic_exchange(&g_left_out, 0) + shim_stamps_left_out();
}

void shim_track_forget(void)
{
    shim_stamps_forget();
    atomic_store(&g_left_out, 0);
    pthread_mutex_init(&g_lock, NULL);
    memset(g_running, 0, sizeof(g_running));
    memset(g_free, 0, sizeof(g_free));
    memset(g_life, 0, sizeof(g_life));
    memset(g_anchor, 0, sizeof(g_anchor));
    g_ended = (laps_t){NULL, NULL};
    g_laps = g_tracks = 0;
}

#else
void shim_track_prepare(int device, uint64_t life)
{
    (void)device, (void)life;
}

shim_timed_t shim_track_begin(const shim_track_call_t *call, void *stream)
{
    (void)call, (void)stream;
    return (shim_timed_t){0};
}

void shim_track_end(shim_timed_t timed, const shim_track_call_t *call, void *stream)
{
    (void)timed, (void)call, (void)stream;
}

void shim_track_collect(void)
{
}

size_t shim_track_text(int pid, char *text, size_t size)
{
    (void)pid, (void)text, (void)size;
    return 0;
}

uint64_t shim_track_left_out(void)
{
    return 0;
}

void shim_track_forget(void)
{
}
#endif
