/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/account/stamps.h"

#include <stdatomic.h>
#include <stddef.h>

atomic_bool shim_stamps_made;

#if SHUNT_HAS_CUDA
#include <assert.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "algorithms/stamp.h"
#include "transport/transport.h"

enum {
    DEVICES = 64,
    STAMPS = 65536, /* of a GPU, reused in turn: the trace's thread reads them ten times a second */
    CHUNK_CALLS = 1024,
    CHUNKS = 64,         /* of captured calls; the trace lacks later ones */
    ANCHOR_NS = 1000000, /* longest wait for an anchor: a stamp timed by the host's clock too */
    ANCHORS = 3          /* anchors in a row; the one with the shortest wait is used */
};

/* A shared mapping: copy-on-write after a fork would replace the GPU's pages. It is never unmapped: a device reset
 * would unmap the driver's own memory while the trace's thread reads it. */
typedef struct ring {
    alg_stamps_t anchor;
    alg_stamp_t anchor_stamp;
    alg_stamps_t stamps;
    alg_stamp_t stamp[STAMPS];
} ring_t;
static_assert(offsetof(ring_t, anchor_stamp) == sizeof(alg_stamps_t) &&
                  offsetof(ring_t, stamp) == offsetof(ring_t, stamps) + sizeof(alg_stamps_t),
              "stamps follow their count");

typedef struct gpu {
    ring_t *host, *device; /* device: `host` as the GPU addresses it; NULL: none in this life */
    uint64_t life;
    bool tried; /* making the stamps was tried in this life */
    void *stream;
    uint64_t anchors; /* launched so far */
    bool anchored;
    int64_t offset_ns; /* the host's clock less the GPU's */
    uint64_t until;    /* stamps taken before the last anchor; later ones wait for the next one */
    uint64_t read;     /* stamps read so far */
} gpu_t;

typedef struct captured {
    shim_track_call_t call;
    uint64_t begin_ns; /* when the running replay began it, on the GPU's clock; 0: none runs */
} captured_t;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static gpu_t g_gpu[DEVICES];        /* under the lock */
static captured_t *g_chunk[CHUNKS]; /* by number; under the lock */
static uint32_t g_calls;            /* captured; under the lock */
static _Atomic uint64_t g_left_out; /* not yet reported */

static bool succeeded(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess;
}

/* Call with the device current. NULL: no memory. */
static ring_t *pin(ring_t *host)
{
    void *device = NULL;
    if (!succeeded(cudaHostRegister(host, sizeof *host, cudaHostRegisterPortable | cudaHostRegisterMapped)))
        return NULL;
    if (succeeded(cudaHostGetDevicePointer(&device, host, 0)))
        return device;
    (void)succeeded(cudaHostUnregister(host));
    return NULL;
}

/* In a new life of the device nothing uses the old one's stamps. */
static gpu_t make_gpu(ring_t *host, uint64_t life)
{
    if (host) {
        memset(host, 0, sizeof *host);
    } else {
        host = mmap(NULL, sizeof *host, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        host = host == MAP_FAILED ? NULL : host;
    }
    gpu_t gpu = {.host = host, .life = life, .tried = true};
    if (host && net_stream_make(&gpu.stream) == 0 && succeeded((cudaError_t)alg_stamp_preload()))
        gpu.device = pin(host);
    return gpu;
}

/* Calls the driver without the lock, which captures of other GPUs take. */
void shim_stamps_prepare(int device, uint64_t life)
{
    if (device < 0 || device >= DEVICES)
        return;
    gpu_t *gpu = &g_gpu[device];
    pthread_mutex_lock(&g_lock);
    const bool tries = !gpu->tried || gpu->life < life;
    ring_t *host = gpu->host;
    if (tries)
        *gpu = (gpu_t){.host = host, .life = life, .tried = true};
    pthread_mutex_unlock(&g_lock);
    if (!tries)
        return;
    const gpu_t made = make_gpu(host, life);
    pthread_mutex_lock(&g_lock);
    if (gpu->life == life)
        *gpu = made;
    if (made.device)
        atomic_store(&shim_stamps_made, true);
    pthread_mutex_unlock(&g_lock);
}

/* Under the lock. 0: no room. */
static uint32_t add_call(const shim_track_call_t *call)
{
    if (g_calls == CHUNKS * CHUNK_CALLS)
        return 0;
    captured_t **chunk = &g_chunk[g_calls / CHUNK_CALLS];
    if (!*chunk)
        *chunk = calloc(CHUNK_CALLS, sizeof **chunk);
    if (!*chunk)
        return 0;
    (*chunk)[g_calls % CHUNK_CALLS] = (captured_t){.call = *call};
    return ++g_calls;
}

/* NULL: no stamps in this life. */
static alg_stamps_t *stamps_of(const shim_track_call_t *call)
{
    const gpu_t *gpu = call->device >= 0 && call->device < DEVICES ? &g_gpu[call->device] : NULL;
    return gpu && gpu->device && gpu->life == call->life ? &gpu->device->stamps : NULL;
}

static bool take(alg_stamps_t *stamps, uint32_t number, bool ends, void *stream)
{
    return succeeded((cudaError_t)alg_stamp_launch(stamps, STAMPS, number << 1 | ends, stream));
}

/* Adds a stamp even where there is no room for the call: a graph captured again must have the same nodes, so that it
 * can update the first one. */
shim_stamped_t shim_stamps_begin(const shim_track_call_t *call, void *stream)
{
    pthread_mutex_lock(&g_lock);
    shim_stamped_t stamped = {.stamps = stamps_of(call)};
    stamped.number = stamped.stamps ? add_call(call) : 0;
    pthread_mutex_unlock(&g_lock);
    if (stamped.stamps && !take(stamped.stamps, stamped.number, false, stream))
        stamped = (shim_stamped_t){NULL, 0};
    atomic_fetch_add(&g_left_out, stamped.number == 0);
    return stamped;
}

void shim_stamps_end(const shim_stamped_t *stamped, void *stream)
{
    if (stamped->stamps && !take(stamped->stamps, stamped->number, true, stream))
        atomic_fetch_add(&g_left_out, stamped->number != 0);
}

/* Stamps are read while kernels write them. */
static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Launches one stamp, whose time on the host's clock lies between two readings, *wait_ns apart. False: the stamp has
 * not come in time, as on a full GPU. */
static bool anchor(gpu_t *gpu, uint64_t *wait_ns, int64_t *offset_ns)
{
    const alg_stamp_t *stamp = &gpu->host->anchor_stamp;
    if (gpu->anchors > 0 && load(&stamp->mark) != alg_stamp_mark(gpu->anchors - 1, 0))
        return false;
    const uint64_t before_ns = net_now_ns(), mark = alg_stamp_mark(gpu->anchors, 0);
    if (!succeeded((cudaError_t)alg_stamp_launch(&gpu->device->anchor, 1, 0, gpu->stream)))
        return false;
    gpu->anchors++;
    do
        *wait_ns = net_now_ns() - before_ns;
    while (load(&stamp->mark) != mark && *wait_ns < ANCHOR_NS);
    if (load(&stamp->mark) != mark)
        return false;
    *offset_ns = (int64_t)(before_ns + *wait_ns / 2 - stamp->ns);
    return true;
}

static void anchor_again(int device, gpu_t *gpu)
{
    uint64_t wait_ns, least_ns = UINT64_MAX;
    int64_t offset_ns;
    for (int i = 0; i < ANCHORS && !net_device_lost(device, gpu->life) && anchor(gpu, &wait_ns, &offset_ns); i++) {
        if (wait_ns >= least_ns)
            continue;
        least_ns = wait_ns;
        gpu->offset_ns = offset_ns;
        gpu->anchored = true;
    }
}

static gpu_t copy_of(int device)
{
    pthread_mutex_lock(&g_lock);
    const gpu_t gpu = g_gpu[device];
    pthread_mutex_unlock(&g_lock);
    return gpu;
}

static void keep_anchor(int device, const gpu_t *gpu)
{
    pthread_mutex_lock(&g_lock);
    gpu_t *to = &g_gpu[device];
    if (to->life == gpu->life && to->device == gpu->device) {
        to->anchors = gpu->anchors;
        to->anchored = gpu->anchored;
        to->offset_ns = gpu->offset_ns;
        to->until = gpu->until;
    }
    pthread_mutex_unlock(&g_lock);
}

void shim_stamps_collect(void)
{
    for (int device = 0; device < DEVICES; device++) {
        gpu_t gpu = copy_of(device);
        net_scope_t scope;
        gpu.until = gpu.device ? load(&gpu.host->stamps.taken) : 0;
        if (gpu.until == gpu.read || net_device_lost(device, gpu.life) || net_scope_enter(&scope, device) != 0)
            continue;
        anchor_again(device, &gpu);
        net_scope_leave(&scope);
        keep_anchor(device, &gpu);
    }
}

/* Forgets which of the GPU's kernels run: the ends of some were overwritten. */
static void forget_begun(const gpu_t *gpu)
{
    for (uint32_t i = 0; i < g_calls; i++) {
        captured_t *call = &g_chunk[i / CHUNK_CALLS][i % CHUNK_CALLS];
        if (&g_gpu[call->call.device] == gpu)
            call->begin_ns = 0;
    }
}

/* False: the next stamp has yet to come, or is newer than the anchor. Skips overwritten stamps. Under the lock. */
static bool read_stamp(gpu_t *gpu, uint64_t *ns, uint32_t *what)
{
    uint64_t mark, taken;
    for (;;) {
        const alg_stamp_t *stamp = &gpu->host->stamp[gpu->read % STAMPS];
        mark = load(&stamp->mark);
        *ns = load(&stamp->ns);
        taken = load(&gpu->host->stamps.taken); /* read last: a kernel counts its stamp before it overwrites another */
        if (taken <= gpu->read + STAMPS)
            break;
        atomic_fetch_add(&g_left_out, (taken - STAMPS - gpu->read + 1) / 2);
        gpu->read = taken - STAMPS;
        forget_begun(gpu);
    }
    if (gpu->read >= gpu->until || mark >> 32 != (uint32_t)(gpu->read + 1))
        return false;
    *what = (uint32_t)mark;
    gpu->read++;
    return true;
}

/* Under the lock. True: the stamp ends a kernel, which becomes `slice`. */
static bool add_stamp(const gpu_t *gpu, uint64_t ns, uint32_t what, shim_slice_t *slice)
{
    const uint32_t number = what >> 1;
    if (number == 0 || number > g_calls)
        return false;
    captured_t *call = &g_chunk[(number - 1) / CHUNK_CALLS][(number - 1) % CHUNK_CALLS];
    if ((what & 1) == 0) {
        call->begin_ns = ns;
        return false;
    }
    if (call->begin_ns == 0)
        return false;
    *slice = (shim_slice_t){.begin_ns = call->begin_ns + (uint64_t)gpu->offset_ns,
                            .ns = ns > call->begin_ns ? ns - call->begin_ns : 0,
                            .call = call->call};
    call->begin_ns = 0;
    return true;
}

static bool next_of(gpu_t *gpu, shim_slice_t *slice)
{
    uint64_t ns;
    uint32_t what;
    while (read_stamp(gpu, &ns, &what))
        if (add_stamp(gpu, ns, what, slice))
            return true;
    return false;
}

bool shim_stamps_next(shim_slice_t *slice)
{
    bool found = false;
    pthread_mutex_lock(&g_lock);
    for (int device = 0; device < DEVICES && !found; device++)
        if (g_gpu[device].device && g_gpu[device].anchored)
            found = next_of(&g_gpu[device], slice);
    pthread_mutex_unlock(&g_lock);
    return found;
}

uint64_t shim_stamps_left_out(void)
{
    return atomic_exchange(&g_left_out, 0);
}

void shim_stamps_forget(void)
{
    pthread_mutex_init(&g_lock, NULL);
    atomic_store(&g_left_out, 0);
    memset(g_gpu, 0, sizeof(g_gpu));
    memset(g_chunk, 0, sizeof(g_chunk));
    atomic_store(&shim_stamps_made, false);
    g_calls = 0;
}
#endif
