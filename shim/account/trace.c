/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - rings of calls, and the thread that writes them to the file. A ring has one producer, its thread, and one
 * consumer, the holder of the lock. Later threads reuse the rings of ended ones.
 * The file ends in "]" after each write; the next write overwrites that. A process that finds the file locked by
 * another adds its process id to the name. A forked child begins its own file with its first call. At exit the rest is
 * written; later calls are not traced. */
#define _GNU_SOURCE
#include "shim/account/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "shim/account/track.h"
#include "shim/base/file.h"
#include "shim/base/log.h"
#include "shim/base/settings.h"
#include "transport/transport.h"

enum {
    RING_CALLS = 8192, /* a power of two; about 1 MiB */
    MOST_RINGS = 32,
    PERIOD_MS = 100,
    TEXT_BYTES = 65536,
    PATH_BYTES = 4096,
    TAIL_BYTES = 3
};
static const char tail[] = "\n]\n";

typedef struct ring {
    struct ring *next;
    atomic_bool owned; /* by a living thread */
    _Alignas(64) _Atomic uint32_t begun;
    _Alignas(64) _Atomic uint32_t ended;
    _Alignas(64) shim_trace_call_t call[RING_CALLS];
} ring_t;

atomic_bool shim_trace_off; /* once set, stays set */

static _Atomic(ring_t *) rings;
static atomic_uint ring_count;
static _Thread_local ring_t *own_ring;
static _Thread_local int32_t own_tid; /* 0: not known yet */
static _Atomic uint64_t dropped;      /* events, not yet reported */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards the file; a call takes it only to start the trace */
static pthread_cond_t wake, collected;                    /* made by once_a_program */
static uint64_t rounds_asked, rounds_begun, rounds_ended; /* rounds in which the writer collects kernels' times */
static atomic_bool running;                               /* file open, thread started */
static pthread_t writer;
static int file = -1;
static net_mark_t mark; /* of `file` */
static off_t position;
static int pid;
static char text[TEXT_BYTES];
static size_t text_bytes;
static uint64_t dropped_in_all;

static uint64_t now_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static pthread_key_t ring_key;

static void release_ring(void *ring)
{
    own_ring = NULL;
    atomic_store_explicit(&((ring_t *)ring)->owned, false, memory_order_release);
}

static ring_t *free_ring(void)
{
    for (ring_t *ring = atomic_load(&rings); ring != NULL; ring = ring->next) {
        bool owned = false;
        if (atomic_compare_exchange_strong(&ring->owned, &owned, true))
            return ring;
    }
    return NULL;
}

static ring_t *new_ring(void)
{
    if (atomic_fetch_add(&ring_count, 1) >= MOST_RINGS)
        return NULL;
    ring_t *ring = aligned_alloc(_Alignof(ring_t), sizeof(*ring));
    if (ring == NULL)
        return NULL;
    atomic_init(&ring->owned, true);
    atomic_init(&ring->begun, 0);
    atomic_init(&ring->ended, 0);
    ring->next = atomic_load(&rings);
    while (!atomic_compare_exchange_weak(&rings, &ring->next, ring))
        ;
    return ring;
}

static ring_t *take_ring(void)
{
    ring_t *ring = free_ring();
    if (ring == NULL && atomic_load(&ring_count) < MOST_RINGS)
        ring = new_ring();
    if (ring != NULL)
        pthread_setspecific(ring_key, ring);
    own_ring = ring;
    return ring;
}

void shim_trace_end(shim_trace_call_t *call)
{
    call->host_ns = now_of(CLOCK_MONOTONIC) - call->start_ns;
    if (own_tid == 0)
        own_tid = (int32_t)net_thread_id();
    call->tid = own_tid;
    ring_t *ring = own_ring != NULL ? own_ring : take_ring();
    if (ring == NULL) {
        atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
        return;
    }
    uint32_t begun = atomic_load_explicit(&ring->begun, memory_order_relaxed);
    uint32_t used = begun - atomic_load_explicit(&ring->ended, memory_order_acquire);
    if (used == RING_CALLS) {
        atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
        return;
    }
    ring->call[begun % RING_CALLS] = *call;
    atomic_store_explicit(&ring->begun, begun + 1, memory_order_release);
    if (used == RING_CALLS / 2)
        pthread_cond_signal(&wake);
}

/* ---- The file; all of it under the lock ------------------------------------------------ */

static void give_up(const char *why)
{
    shim_warn("SHUNT_TRACE=%.200s cannot be written (%s); there is no trace; name a file that you may write",
              shim_settings()->trace, why);
    atomic_store(&shim_trace_off, true);
}

static void close_file(void)
{
    net_close(file, &mark);
    file = -1;
}

/* Cuts the file behind the last complete write, and closes it. */
static void close_early(void)
{
    if (ftruncate(file, position) != 0 || pwrite(file, tail, TAIL_BYTES, position) != TAIL_BYTES)
        shim_info("SHUNT_TRACE: the end of the trace could not be written, so the file is incomplete: see whether its "
                  "disk is full");
    close_file();
}

static void write_out(void)
{
    size_t size = text_bytes + TAIL_BYTES;
    memcpy(text + text_bytes, tail, TAIL_BYTES);
    errno = ENOSPC; /* a short write does not set errno */
    if (file >= 0 && !net_means(file, &mark)) {
        give_up("the program has closed it");
        file = -1;
    }
    if (file >= 0 && text_bytes > 0) {
        if (pwrite(file, text, size, position) == (ssize_t)size) {
            position += (off_t)text_bytes;
        } else {
            give_up(strerror(errno));
            close_early();
        }
    }
    text_bytes = 0;
}

static char *next_event(void)
{
    if (text_bytes + SHIM_TRACE_EVENT_BYTES + TAIL_BYTES + 2 > TEXT_BYTES)
        write_out();
    if (position + (off_t)text_bytes == 0) {
        text[text_bytes++] = '[';
    } else {
        text[text_bytes++] = ',';
        text[text_bytes++] = '\n';
    }
    return text + text_bytes;
}

static void drain(ring_t *ring)
{
    uint32_t end = atomic_load_explicit(&ring->begun, memory_order_acquire);
    for (uint32_t i = atomic_load_explicit(&ring->ended, memory_order_relaxed); i != end; i++) {
        char *event = next_event();
        text_bytes += shim_trace_call_text(&ring->call[i % RING_CALLS], pid, event);
        atomic_store_explicit(&ring->ended, i + 1, memory_order_release);
    }
}

static void drain_tracks(void)
{
    char slice[SHIM_TRACE_EVENT_BYTES];
    size_t bytes;
    while ((bytes = shim_track_text(pid, slice, sizeof(slice))) > 0) {
        memcpy(next_event(), slice, bytes);
        text_bytes += bytes;
    }
}

static void flush(void)
{
    for (ring_t *ring = atomic_load(&rings); ring != NULL; ring = ring->next)
        drain(ring);
    drain_tracks();
    uint64_t calls = atomic_exchange(&dropped, 0) + shim_track_left_out();
    if (calls > 0) {
        char *event = next_event();
        text_bytes += shim_trace_dropped_text(calls, pid, now_of(CLOCK_MONOTONIC), event);
        dropped_in_all += calls;
    }
    write_out();
}

static void *write_behind(void *unused)
{
    pthread_mutex_lock(&lock);
    while (file >= 0) {
        if (rounds_asked <= rounds_begun)
            net_condition_wait(&wake, &lock, now_of(CLOCK_MONOTONIC) + PERIOD_MS * UINT64_C(1000000));
        rounds_begun++;
        pthread_mutex_unlock(&lock);
        shim_track_collect();
        pthread_mutex_lock(&lock);
        rounds_ended = rounds_begun;
        pthread_cond_broadcast(&collected);
        flush();
    }
    pthread_cond_broadcast(&collected);
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Waits at most two periods for a round of the writer, which the driver may block. */
static void await_round(void)
{
    const uint64_t wanted = rounds_asked = rounds_begun + 1;
    const uint64_t limit_ns = now_of(CLOCK_MONOTONIC) + 2 * PERIOD_MS * UINT64_C(1000000);
    pthread_cond_signal(&wake);
    for (int error = 0; file >= 0 && rounds_ended < wanted && error != -ETIMEDOUT;)
        error = net_condition_wait(&collected, &lock, limit_ns);
}

void shim_trace_flush(void)
{
    if (!atomic_load_explicit(&running, memory_order_acquire))
        return;
    pthread_mutex_lock(&lock);
    await_round();
    flush();
    pthread_mutex_unlock(&lock);
}

static const char in_use[] = "another process writes it";

/* The file stays locked while it is open. Returns -1 and the reason. */
static int open_own(const char *path, const char **why)
{
    int fd = shim_file_open(path, O_RDWR, why);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && ftruncate(fd, 0) == 0)
        return fd;
    *why = errno == EWOULDBLOCK ? in_use : strerror(errno);
    close(fd);
    return -1;
}

static int open_file(const char *pattern, const char **why)
{
    char path[PATH_BYTES], other[PATH_BYTES + 16];
    *why = "its name is too long";
    if (!shim_setting_expand(pattern, path, sizeof(path)))
        return -1;
    int fd = open_own(path, why);
    if (fd >= 0 || *why != in_use)
        return fd;
    snprintf(other, sizeof(other), "%s.%d", path, pid);
    shim_info("SHUNT_TRACE: another process writes %s, so this one writes %s", path, other);
    return open_own(other, why);
}

static void end(void)
{
    bool was_running = atomic_load(&running);
    atomic_store(&shim_trace_off, true);
    if (!was_running)
        return;
    pthread_mutex_lock(&lock);
    await_round();
    flush();
    close_file();
    pthread_cond_signal(&wake);
    const bool busy = rounds_begun != rounds_ended;
    pthread_mutex_unlock(&lock);
    if (!busy) /* a busy writer may be blocked in the driver */
        pthread_join(writer, NULL);
    if (dropped_in_all > 0)
        shim_warn(
            "SHUNT_TRACE: the trace lacks %llu calls or kernels, for which it had no room; trace a shorter run, or "
            "write to a faster file system",
            (unsigned long long)dropped_in_all);
}

static void forget_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    net_condition_make(&wake);
    net_condition_make(&collected);
    rounds_asked = rounds_begun = rounds_ended = 0;
    close_file();
    atomic_store(&running, false);
    own_tid = 0;
    position = 0;
    text_bytes = 0;
    dropped_in_all = 0;
    atomic_store(&dropped, 0);
    shim_track_forget();
    for (ring_t *ring = atomic_load(&rings); ring != NULL; ring = ring->next) {
        atomic_store(&ring->ended, atomic_load(&ring->begun));
        atomic_store(&ring->owned, ring == own_ring);
    }
}

NET_IN_CHILD(forget_in_child);

static void once_a_program(void)
{
    net_condition_make(&wake);
    net_condition_make(&collected);
    pthread_key_create(&ring_key, release_ring);
    atexit(end);
}

/* Under the lock. */
static void begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pid = (int)getpid();
    const char *why;
    file = open_file(shim_settings()->trace, &why);
    if (file < 0) {
        give_up(why);
        return;
    }
    mark = net_mark(file);
    pthread_once(&once, once_a_program);
    char host[256];
    if (!shim_setting_expand("%h", host, sizeof(host)))
        host[0] = '\0';
    char *event = next_event();
    text_bytes += shim_trace_head_text(host, pid, now_of(CLOCK_MONOTONIC), now_of(CLOCK_REALTIME), event);
    write_out();
    if (file >= 0 && net_thread_start(&writer, write_behind, NULL) != 0) {
        close_file();
        give_up("no thread to write it");
    }
    atomic_store_explicit(&running, file >= 0, memory_order_release);
}

uint64_t shim_trace_now(void)
{
    if (!atomic_load_explicit(&running, memory_order_acquire)) {
        if (shim_settings()->trace[0] == '\0')
            atomic_store(&shim_trace_off, true);
        pthread_mutex_lock(&lock);
        if (!atomic_load(&running) && !atomic_load(&shim_trace_off))
            begin();
        pthread_mutex_unlock(&lock);
    }
    return atomic_load_explicit(&shim_trace_off, memory_order_relaxed) ? 0 : now_of(CLOCK_MONOTONIC);
}
