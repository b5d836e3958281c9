/* SPDX-License-Identifier: Apache-2.0 */
/* transport.h - how ranks of one node find each other and share memory. Functions return 0 or a negative errno, set
 * outputs only on success, log nothing, and wait for another rank only where stated. Threads may use different
 * objects. */
#ifndef SHUNT_TRANSPORT_H
#define SHUNT_TRANSPORT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Processes -----------------------------------------------------------------
 * A process, compared as bytes (no padding). Containers that share /dev/shm may have a pid and start time twice. */
typedef struct net_process {
    int64_t pid;             /* as /proc names it, perhaps of an outer pid namespace */
    uint64_t start_ticks;    /* field 22 of /proc/<pid>/stat; 0 without /proc */
    uint32_t pid_namespace;  /* inode of /proc/self/ns/pid; if /proc is an outer namespace's, its device */
    uint32_t time_namespace; /* inode of /proc/self/ns/time: start_ticks are comparable within one */
} net_process_t;
net_process_t net_process_self(void);
/* False if gone or a zombie; true for every process of another pid namespace. Takes a few µs. */
bool net_process_alive(const net_process_t *process);

/* ---- Descriptors ---------------------------------------------------------------
 * A descriptor that is kept or written to must not be 0 to 2, which the program owns and may have closed. */
/* Moves `made` to a number of at least 3, close-on-exec. -1 with errno on failure, or if `made` is negative. */
int net_descriptor(int made);
/* Redirects later writes to /dev/null. Async-signal-safe. */
void net_mute(int descriptor);
/* The file behind a descriptor. A daemon closes all descriptors: check a long-kept number before writing or closing. */
typedef struct net_mark {
    uint64_t device, inode;
} net_mark_t;
net_mark_t net_mark(int descriptor);
bool net_means(int descriptor, const net_mark_t *mark);
/* Closes the descriptor if it still refers to that file. */
void net_close(int descriptor, const net_mark_t *mark);
/* Writes once, without SIGPIPE; does not report failures. */
void net_write(int descriptor, const void *bytes, size_t size);

/* ---- Threads -------------------------------------------------------------------
 * A thread with all signals blocked: the program's own threads handle its signals. `thread` NULL: detached. */
int net_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);
int net_thread_id(void);
/* This thread's number, from 1 on; an ended thread's is not given again. */
uint64_t net_thread_number(void);
/* The kernel's CLOCK_MONOTONIC: libfaketime may stop the C library's. */
uint64_t net_now_ns(void);
/* For net_condition_wait; a forked child must make it anew. */
void net_condition_make(pthread_cond_t *condition);
/* -ETIMEDOUT at `until_ns` of CLOCK_MONOTONIC: the time of day may be set meanwhile. */
int net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns);

/* A function with this attribute runs when the library is loaded. It registers fork handlers: the program may fork
 * beside a thread's first call. These take no locks and free nothing: an allocator's handler may run later. */
#define NET_AT_LOAD __attribute__((constructor))

/* ---- Locks ---------------------------------------------------------------------
 * For static data of forked children: a fork waits for these locks. A thread holds one, briefly, and does not fork. */
typedef struct net_lock {
    pthread_mutex_t mutex;
    int listed; /* private, like `next` */
    struct net_lock *next;
} net_lock_t;
#define NET_LOCK_INITIALIZER               \
    {                                      \
        PTHREAD_MUTEX_INITIALIZER, 0, NULL \
    }
void net_lock_take(net_lock_t *lock);
void net_lock_give(net_lock_t *lock);
/* Call before registering fork handlers of a lock under which these are taken: a fork then takes that one first. */
void net_lock_watch_forks(void);

/* ---- Kinds of peer memory (memory.def) ---------------------------------------- */
typedef enum net_memory_kind {
#define NET_CPU_MEMORY(kind, name, ...) NET_MEMORY_##kind,
#define NET_CUDA_MEMORY(kind, name, ...)
#include "transport/memory.def"
#undef NET_CPU_MEMORY
#undef NET_CUDA_MEMORY
    NET_CPU_KINDS, /* also the first for GPUs */
    NET_CPU_LAST = NET_CPU_KINDS - 1,
#define NET_CPU_MEMORY(kind, name, ...)
#define NET_CUDA_MEMORY(kind, name, ...) NET_MEMORY_##kind,
#include "transport/memory.def"
#undef NET_CPU_MEMORY
#undef NET_CUDA_MEMORY
    NET_MEMORY_KINDS
} net_memory_kind_t;

enum {
    NET_CUDA_KINDS = (int)NET_MEMORY_KINDS - (int)NET_CPU_KINDS,
    NET_MOST_KINDS = (int)NET_CPU_KINDS > NET_CUDA_KINDS ? (int)NET_CPU_KINDS : NET_CUDA_KINDS /* of a device */
};

/* ---- Rendezvous ---------------------------------------------------------------
 * POSIX shared memory, mode 0600, in which ranks post records in stages and agree on a verdict (docs/design.md). */
enum {
    NET_MAX_SLOTS = 16,                  /* with more joiners, net_count exceeds any nranks */
    NET_STAGES = 2 + 4 * NET_MOST_KINDS, /* shim/setup/setup.h lists them */
    NET_RECORD_BYTES = 3648,
    NET_LATER_BYTES = 512 /* of later stages; small, since /dev/shm may be */
};

static inline size_t net_record_bytes(uint32_t stage)
{
    return stage == 0 ? NET_RECORD_BYTES : NET_LATER_BYTES;
}

/* Secret: whoever knows it can compute the children's keys, and make their segments first. */
typedef struct net_key {
    uint64_t word[2];
} net_key_t;

typedef struct net_rendezvous net_rendezvous_t;

typedef enum net_verdict { NET_PENDING = 0, NET_ATTACHED = 1, NET_DECLINED = 2 } net_verdict_t;

net_key_t net_key_hash(const void *bytes, size_t size);
/* One-way: a segment's name does not reveal the key. */
net_key_t net_key_name(const net_key_t *key);

/* Creates or opens the segment and takes a slot. Replaces a segment that is decided, or whose joiners have all left or
 * died (in any pid namespace). -EPERM: another user's; -EPROTO: another layout; -ENOSPC: /dev/shm is full; -ETIMEDOUT:
 * a joiner held the lock for 10 s. A process's first join sweeps up to 1024 files for remains of crashed runs. A file
 * is open until net_unlink or net_leave. */
int net_join(const net_key_t *key, net_rendezvous_t **rendezvous);
/* Random; equal only for one segment's joiners: identifies the node. */
net_key_t net_place(const net_rendezvous_t *rendezvous);
uint32_t net_count(const net_rendezvous_t *rendezvous);
/* Call once, before the first post. -EEXIST: the rank is taken; -ERANGE: nranks > NET_MAX_SLOTS, rank >= nranks, or no
 * slot; -EPROTO: nranks differs from another joiner's. */
int net_set_rank(net_rendezvous_t *rendezvous, uint32_t rank, uint32_t nranks);
/* Posts at most net_record_bytes, once per stage (-EEXIST). */
int net_post(net_rendezvous_t *rendezvous, uint32_t stage, const void *record, size_t size);
/* 1: all ranks have posted; 0: not yet; -ECANCELED: declined; -ESRCH: a joiner died or left before; -EPROTO: all have
 * posted, but a rank has no joiner. Takes a few µs per missing rank: sleep between polls. */
int net_poll(const net_rendezvous_t *rendezvous, uint32_t stage);
/* true: this joiner continues at its program's next call; false (initially): its thread waits. */
void net_set_away(net_rendezvous_t *rendezvous, bool away);
/* Bits about the ranks that have not posted: */
enum {
    NET_MISSING_WAITING = 0, /* all are alive and wait, or none is missing */
    NET_MISSING_UNSEEN = 1,  /* one has not joined, or may be dead */
    NET_MISSING_AWAY = 2
};
uint32_t net_missing(const net_rendezvous_t *rendezvous, uint32_t stage);
/* Copies a record once net_poll has returned 1. -EMSGSIZE: does not fit; -EAGAIN: not there; -EPROTO: malformed. */
int net_read(const net_rendezvous_t *rendezvous, uint32_t stage, uint32_t rank, void *record, size_t capacity,
             size_t *size);
/* Sets the verdict unless it is set; returns the one that holds. The first decline keeps its `reason` (up to 136
 * bytes), with the rank if known. */
net_verdict_t net_decide(net_rendezvous_t *rendezvous, net_verdict_t verdict, const char *reason);
net_verdict_t net_verdict(const net_rendezvous_t *rendezvous);
/* Whether this joiner set the verdict. */
bool net_decided(const net_rendezvous_t *rendezvous);
/* Reason of a decline, else ""; printable; valid until net_leave. */
const char *net_reason(const net_rendezvous_t *rendezvous);
/* Whether the rank has joined, not left, and is known to live (unknown in another pid namespace). */
bool net_present(const net_rendezvous_t *rendezvous, uint32_t rank);
/* True once the rank has left or died; false before it joins. Takes a few µs. */
bool net_rank_gone(const net_rendezvous_t *rendezvous, uint32_t rank);
/* Removes the name. Call once all have posted: no rank can join any more. Idempotent. */
void net_unlink(net_rendezvous_t *rendezvous);
/* Unmaps; removes the name if this joiner still may and is the last one alive. NULL is allowed. */
void net_leave(net_rendezvous_t *rendezvous);

/* Whether the key's segment exists. */
bool net_is_met(const net_key_t *key);

/* ---- Doorbells -----------------------------------------------------------------
 * A bell wakes a thread of its process. Peers of the same user open it through /proc. */
typedef struct net_bell {
    net_process_t owner;
    uint64_t device, inode;
    int64_t descriptor;
} net_bell_t;
/* Made on first use; a forked child makes its own. */
int net_bell_place(net_bell_t *place);
uint32_t net_bell_rung(void);
/* Sleeps until net_bell_rung differs from `rung`, at most `limit_ms`. */
void net_bell_wait(uint32_t rung, uint32_t limit_ms);
/* `place` may be this process's. -ESRCH: the process is gone. */
int net_bell_ring(const net_bell_t *place);

/* ---- Peer memory ---------------------------------------------------------------
 * A rank's block of memory that peers map. Ranks of one process use the memory itself, which
 * lives until its owner destroys it and the last of them closes it. The current context and device do not change.
 * Without CUDA the CUDA kinds return -ENOSYS. */
enum { NET_OFFER_BYTES = 256 };

/* A kind's row. */
typedef struct net_memory_facts {
    bool driver; /* for GPUs: makes driver calls, which a forked child must not make */
    bool pinned; /* shared memory, for kernels at the same addresses: needs no peer access */
    bool sends;  /* descriptors, by net_memory_send */
    bool ranges; /* a net_range_t can hold it, in pieces */
    bool cumem;  /* forbidden by NCCL_CUMEM_ENABLE=0 */
    bool one_pid_namespace;
    const char *told; /* for the log; "": the usual kind */
} net_memory_facts_t;
extern const net_memory_facts_t net_memory_facts[NET_MEMORY_KINDS];

typedef struct net_memory net_memory_t;
typedef struct net_mapping net_mapping_t;
typedef struct net_range net_range_t;

/* Allocates on `device` (shared: ignored) and writes the offer for peers. -ENOSYS: kind not available; -ENOMEM. */
int net_memory_create(net_memory_kind_t kind, int device, size_t bytes, net_memory_t **memory,
                      uint8_t offer[NET_OFFER_BYTES]);
/* Reserves addresses only. -ENOSYS: the kind has no ranges. A released range lasts until nothing is left in it. */
int net_range_reserve(net_memory_kind_t kind, int device, size_t bytes, net_range_t **range);
void net_range_release(net_range_t *range); /* NULL is allowed */
/* `offset`: a multiple of 2 MiB. */
int net_memory_create_in(net_range_t *range, size_t offset, size_t bytes, net_memory_t **memory,
                         uint8_t offer[NET_OFFER_BYTES]);
void *net_memory_pointer(const net_memory_t *memory);
/* Kinds that send (others return 0): sends the descriptor to the offer's peer. All ranks make offers before one sends,
 * and send before one opens. */
int net_memory_send(const net_memory_t *memory, const uint8_t peer_offer[NET_OFFER_BYTES]);
/* Maps another rank's memory for kernels of `device`. Sent descriptors arrive at `own`, this rank's memory of the same
 * kind. -EPROTO: invalid offer; -ESRCH: its owner is gone; -ENOENT: no descriptor yet; -ENOSYS: no peer access. */
int net_memory_open(net_memory_t *own, int device, const uint8_t peer_offer[NET_OFFER_BYTES], net_mapping_t **mapping);
/* The same in *range, which is reserved if NULL. This process's own memory keeps its address. */
int net_memory_open_in(net_memory_t *own, int device, const uint8_t peer_offer[NET_OFFER_BYTES], net_range_t **range,
                       size_t range_bytes, size_t offset, net_mapping_t **mapping);
void *net_mapping_pointer(const net_mapping_t *mapping);
/* At least the size that the owner requested. */
size_t net_mapping_bytes(const net_mapping_t *mapping);
/* False once the owner is gone, or has asked to free IPC memory. */
bool net_mapping_alive(const net_mapping_t *mapping);
void net_mapping_close(net_mapping_t *mapping); /* NULL is allowed */
/* Releases own memory, which no kernel of this process uses any more. Peers keep their mappings; none can map it anew.
 * Shared and pinned memory is unmapped at once, device memory parked for net_memory_reap. NULL is allowed. */
void net_memory_destroy(net_memory_t *memory);
/* For VMM memory that no kernel of this process will use: freed when the last rank closes it. Freeing it waits for no
 * kernel (measured on H200). */
void net_memory_drop(net_memory_t *memory);
/* Frees parked memory. Waits for every kernel of its device, perhaps also of other devices that reach it. Memory stays
 * parked while a living peer has it mapped by IPC, or the driver refuses (in a callback or capture). */
void net_memory_reap(void);
/* Number of parked memories that no reap has tried to free. */
uint32_t net_memory_parked(void);
bool net_memory_any_parked(void);

/* ---- CUDA as a guest -----------------------------------------------------------
 * Between enter and leave, `device` is current in this thread, and calls cannot break another thread's capture. leave
 * restores the context, if any, and clears this library's own last error. -ENOSYS without CUDA. */
typedef struct net_scope {
    void *context;
    int capture_mode;
    bool entered;
} net_scope_t;
int net_scope_enter(net_scope_t *scope, int device);
void net_scope_leave(net_scope_t *scope);
/* Like net_scope_enter, in about 20 ns if the primary context is current. Keeps the capture mode, and a green context
 * of the device, which owns stream NULL. Returns a cudaError_t; 0 without CUDA. */
typedef struct net_visit {
    void *context;
    bool changed;
} net_visit_t;
int net_device_enter(net_visit_t *visit, int device);
void net_device_leave(net_visit_t *visit);
/* Lets this thread make calls that captures forbid; restore the returned mode. Captures continue. */
int net_capture_relax(void);
void net_capture_restore(int mode);
/* Driver calls of a collective, with CUDA, in a current context. They return a cudaError_t without a last error. */
/* *id is 0 outside captures. An invalidated capture is an error. */
int net_stream_capture(void *stream, unsigned long long *id);
int net_stream_id(void *stream, unsigned long long *id);
int net_stream_wait(void *stream, void *event);
int net_event_record(void *event, void *stream);
enum { NET_NOT_READY = 600 }; /* cudaErrorNotReady: the event has not passed */
int net_event_query(void *event);
/* Also while another thread captures. `timed`: for cudaEventElapsedTime. */
int net_event_make(void **event, bool timed);
/* A non-blocking stream of the highest priority, likewise. */
int net_stream_make(void **stream);
typedef struct net_launch {
    const void *kernel; /* the runtime's handle */
    uint32_t blocks, threads;
    size_t shared_bytes;
    void *stream;
    bool dependent; /* programmatic dependent launch */
    int priority;   /* 0: the stream's */
} net_launch_t;
/* `arguments`: one pointer per argument. */
int net_kernel_launch(const net_launch_t *launch, const void *const *arguments);
int net_cuda_errno(int cuda_error);
/* Changes when the program resets the device; 0: unknown. */
uint64_t net_device_life(int device);
/* True if memory and mappings of `life` are gone; the program may have reused the addresses. */
bool net_device_lost(int device, uint64_t life);

#ifdef __cplusplus
}
#endif

/* `forget` runs in each forked child: see NET_AT_LOAD. */
#define NET_IN_CHILD(forget)                  \
    NET_AT_LOAD static void watch_forks(void) \
    {                                         \
        pthread_atfork(NULL, NULL, forget);   \
    }                                         \
    static void watch_forks(void)

#endif
