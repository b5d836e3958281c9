/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - how ranks of one host find each other and share memory.
 *
 * The one header of this folder. Nothing here knows of NCCL, of algorithms or of
 * settings. Functions return 0 or a negative errno, set outputs only on success,
 * log nothing, and block for another rank only where the comment says so. All may
 * be called from any thread for different objects.
 */
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
 *
 * The identity of a process, for pools and liveness. pid and start time alone are
 * not enough: containers that share /dev/shm may have two processes with the same
 * pair. No padding, so the bytes can be hashed and compared.
 */
typedef struct net_process {
    int64_t pid;             /* as /proc names it, which may be of an outer pid namespace; else getpid's */
    uint64_t start_ticks;    /* field 22 of /proc/<pid>/stat; 0 where there is no /proc */
    uint32_t pid_namespace;  /* inode of /proc/self/ns/pid, or a name of an outer /proc; 0 where there is no /proc */
    uint32_t time_namespace; /* of /proc/self/ns/time; processes of two read each other's start_ticks by other clocks */
} net_process_t;
net_process_t net_process_self(void);
/* False once the process is gone (a zombie is). A process of another pid namespace cannot be checked and counts as
 * alive. Takes some µs. */
bool net_process_alive(const net_process_t *process);

/* ---- Descriptors ---------------------------------------------------------------
 *
 * The numbers 0, 1 and 2 belong to the program, even while they are closed: what has one of them gets what the program
 * prints. So every descriptor that is kept, or that can be written to, is passed through net_descriptor.
 */
/* The same at a number of at least 3, close-on-exec; -1 with errno if `made` is negative, or none is left. */
int net_descriptor(int made);
/* From now on what is written to it in this process goes to /dev/null. Async-signal-safe. */
void net_mute(int descriptor);
/* What a descriptor means. A program that becomes a daemon closes all of them, and a file of its own may then have the
 * number: one that was kept for long is asked before it is written to or closed. */
typedef struct net_mark {
    uint64_t device, inode;
} net_mark_t;
net_mark_t net_mark(int descriptor);
bool net_means(int descriptor, const net_mark_t *mark);
/* Close it if it still means that. */
void net_close(int descriptor, const net_mark_t *mark);
/* Write once, without a SIGPIPE; a failure is not reported. */
void net_write(int descriptor, const void *bytes, size_t size);

/* ---- Threads -------------------------------------------------------------------
 *
 * Start a thread that handles no signals: those of the program are for its own threads. With thread NULL it is
 * detached.
 */
int net_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);
/* The kernel's id of the calling thread. */
int net_thread_id(void);
/* CLOCK_MONOTONIC as the kernel has it: a program under libfaketime may see one that stands still. */
uint64_t net_now_ns(void);
/* Make a condition for net_condition_wait, in a forked child anew. */
void net_condition_make(pthread_cond_t *condition);
/* Wait until a signal, or -ETIMEDOUT at `until_ns` of CLOCK_MONOTONIC: the time of day may be set meanwhile. */
int net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns);

/* ---- Locks ---------------------------------------------------------------------
 *
 * For static data that a forked child goes on using: a fork waits until such locks
 * are open. Hold one briefly, never two in one thread, never across a fork.
 */
typedef struct net_lock {
    pthread_mutex_t mutex;
    int listed; /* private to lock.c, like next */
    struct net_lock *next;
} net_lock_t;
#define NET_LOCK_INITIALIZER               \
    {                                      \
        PTHREAD_MUTEX_INITIALIZER, 0, NULL \
    }
void net_lock_take(net_lock_t *lock);
void net_lock_give(net_lock_t *lock);

/* ---- Rendezvous ---------------------------------------------------------------
 *
 * A segment of POSIX shared memory, mode 0600, named after uid and key, in which the
 * ranks of one communicator publish records. A rank joins before the real init,
 * which returns only when all ranks have joined; so afterwards count == nranks
 * means that all ranks are on this host and run Shunt.
 *
 * Set-up then goes in stages: each rank posts its record of stage s, and reads the
 * others' once all have posted. The verdict changes once, by compare-and-swap,
 * from pending to attached or declined; every rank follows it.
 */
enum {
    NET_MAX_SLOTS = 16,      /* joiners beyond this make the segment "overfull": count exceeds any nranks */
    NET_STAGES = 18,         /* stages 0 .. NET_STAGES-1; their purposes: shim/setup/stages.c */
    NET_RECORD_BYTES = 3648, /* the most bytes that a rank can post in stage 0 */
    NET_LATER_BYTES = 512    /* and in a later one: /dev/shm may be small */
};

static inline size_t net_record_bytes(uint32_t stage)
{
    return stage == 0 ? NET_RECORD_BYTES : NET_LATER_BYTES;
}

/* Never shown: who knows a communicator's key knows those of its children, and could make their segments first. */
typedef struct net_key {
    uint64_t word[2]; /* a 128-bit hash; see net_key_hash */
} net_key_t;

typedef struct net_rendezvous net_rendezvous_t;

typedef enum net_verdict { NET_PENDING = 0, NET_ATTACHED = 1, NET_DECLINED = 2 } net_verdict_t;

/* Hash of bytes into a key (for a unique id, a parent key with colour and number, ...). */
net_key_t net_key_hash(const void *bytes, size_t size);
/* What the name of a key's segment shows. Neither the key nor another key's name follows from it. */
net_key_t net_key_name(const net_key_t *key);

/* Create or open the segment and take the next free slot. A stale segment (all joiners have left or died, in any pid
 * namespace) or a decided one is replaced; one of another user or with another layout version is refused (-EPERM,
 * -EPROTO). -ENOSPC: /dev/shm is full. Waits up to 10 s (-ETIMEDOUT) for another joiner that holds the segment's lock,
 * which takes microseconds unless that process is stopped. The first join of a process also checks up to 1024 files of
 * this user and removes those that crashed runs left behind. A joiner has a file open until net_unlink or
 * net_leave. */
int net_join(const net_key_t *key, net_rendezvous_t **rendezvous);
/* Random, the same for all that joined this segment, and for nobody else: who has the same one is on the same host. */
net_key_t net_place(const net_rendezvous_t *rendezvous);
/* Joiners so far, NET_MAX_SLOTS + 1 when overfull. */
uint32_t net_count(const net_rendezvous_t *rendezvous);
/* Set this joiner's rank and the number of ranks; once, before the first post. -EEXIST if another joiner has that rank;
 * -ERANGE if nranks > NET_MAX_SLOTS, rank >= nranks, or this joiner got no slot (overfull); -EPROTO if another joiner
 * gave another nranks. */
int net_set_rank(net_rendezvous_t *rendezvous, uint32_t rank, uint32_t nranks);
/* Post this rank's record of a stage (size <= net_record_bytes), once a stage (-EEXIST). */
int net_post(net_rendezvous_t *rendezvous, uint32_t stage, const void *record, size_t size);
/* 1: all nranks have posted the stage; 0: not yet; -ECANCELED: declined meanwhile; -ESRCH: a joiner that has not posted
 * is dead or has left; -EPROTO: all have posted, and a rank belongs to no joiner. Never blocks; while incomplete it
 * checks the processes of the missing ranks (some µs each), so sleep between two polls. */
int net_poll(const net_rendezvous_t *rendezvous, uint32_t stage);
/* Tell the others that this joiner goes on when its program next calls (true), or that one of its threads waits for
 * them (false, the initial state). */
void net_set_away(net_rendezvous_t *rendezvous, bool away);
/* State of the ranks that have not posted the stage, bits: */
enum {
    NET_MISSING_WAITING = 0, /* all live and wait too (or none is missing) */
    NET_MISSING_UNSEEN = 1,  /* at least one has not joined, or is not known to live */
    NET_MISSING_AWAY = 2     /* at least one is away */
};
uint32_t net_missing(const net_rendezvous_t *rendezvous, uint32_t stage);
/* Copy rank's record of a stage that net_poll said is complete; *size gets its true size.
 * -EMSGSIZE if it does not fit, -EAGAIN if it is not there, -EPROTO if it is malformed. */
int net_read(const net_rendezvous_t *rendezvous, uint32_t stage, uint32_t rank, void *record, size_t capacity,
             size_t *size);
/* Try to move the verdict from pending; returns the verdict that now holds. `reason` (up to 120 bytes, cut beyond) is
 * kept with the first decline, prefixed by the rank if known. */
net_verdict_t net_decide(net_rendezvous_t *rendezvous, net_verdict_t verdict, const char *reason);
net_verdict_t net_verdict(const net_rendezvous_t *rendezvous);
/* Whether this joiner decided the verdict. */
bool net_decided(const net_rendezvous_t *rendezvous);
/* The reason of a decline ("" if none), printable; valid until net_leave. */
const char *net_reason(const net_rendezvous_t *rendezvous);
/* Whether that rank has joined, has not left, and is known to live (unknown for a process of another pid namespace). */
bool net_present(const net_rendezvous_t *rendezvous, uint32_t rank);
/* True once that rank has left or its process is gone; false while it has not joined yet. Takes some µs: for slow paths
 * only. */
bool net_rank_gone(const net_rendezvous_t *rendezvous, uint32_t rank);
/* Remove the name from the system (idempotent; the mapping stays). Call when all have posted the first stage after the
 * real init: from then on no rank may join. */
void net_unlink(net_rendezvous_t *rendezvous);
/* Unmap, and unlink if this rank still may and no other joiner lives. NULL is allowed. */
void net_leave(net_rendezvous_t *rendezvous);

/* Whether somebody has joined under this key and its name is still there. */
bool net_is_met(const net_key_t *key);

/* ---- Doorbells -----------------------------------------------------------------
 *
 * A process's bell, by which others wake a thread of it. It carries nothing: who wakes looks what there is. Its place
 * is plain data for peers of the same user, who reach it through /proc.
 */
typedef struct net_bell {
    net_process_t owner;
    uint64_t device, inode;
    int64_t descriptor;
} net_bell_t;
/* This process's, made on first use; a forked child has its own. */
int net_bell_place(net_bell_t *place);
/* How often it was rung. */
uint32_t net_bell_rung(void);
/* Sleep until it has been rung more often, at most so long. */
void net_bell_wait(uint32_t rung, uint32_t limit_ms);
/* Ring a process's bell, maybe the own one. -ESRCH: it is gone. */
int net_bell_ring(const net_bell_t *place);

/* ---- Peer memory ---------------------------------------------------------------
 *
 * A block of memory of one rank that its peers map. On the host device: a sealed
 * memfd, which peers open through /proc, so that no name can outlive a crash and
 * no process can truncate it under a reader. On CUDA: VMM memory (cuMemCreate) whose
 * file descriptor travels over a unix datagram socket; where that is refused,
 * cudaMalloc exported by CUDA IPC; and for GPUs without peer
 * access, the host device's memory, pinned. Ranks of one process address each
 * other's memory directly; such memory lives until its owner has destroyed it and
 * the last of those ranks has closed it. The current context and device are left
 * as they were found. Without CUDA its kinds return -ENOSYS.
 */
enum { NET_OFFER_BYTES = 256 };

typedef enum net_memory_kind {
    NET_MEMORY_HOST = 0,     /* shared memory of the host */
    NET_MEMORY_CUDA_IPC = 1, /* sizes are rounded up to 2 MiB: a block shares no unit of mapping */
    NET_MEMORY_CUDA_VMM = 2,
    NET_MEMORY_PINNED = 3, /* as NET_MEMORY_HOST, for kernels of CUDA too; device addresses are the host's */
    /* As the two, but descriptors are sent, for ranks that cannot open each other's /proc/<pid>/fd: */
    NET_MEMORY_HOST_SENT = 4,
    NET_MEMORY_PINNED_SENT = 5
} net_memory_kind_t;

typedef struct net_memory net_memory_t;   /* own memory */
typedef struct net_mapping net_mapping_t; /* a peer's memory, mapped here */
typedef struct net_range net_range_t;     /* addresses, into which memory comes piece by piece */

/* Allocate `bytes` on `device` (ignored for host) and make the offer that peers open. -ENOSYS: this kind is not
 * available here; -ENOMEM: no memory. */
int net_memory_create(net_memory_kind_t kind, int device, size_t bytes, net_memory_t **memory,
                      uint8_t offer[NET_OFFER_BYTES]);
/* Addresses for `bytes` of memory of a kind; no memory. -ENOSYS: not for this kind. Released by its maker, they last
 * until all memory and mappings in them are gone. */
int net_range_reserve(net_memory_kind_t kind, int device, size_t bytes, net_range_t **range);
void net_range_release(net_range_t *range); /* NULL is allowed */
/* net_memory_create in a range, at a multiple of 2 MiB. */
int net_memory_create_in(net_range_t *range, size_t offset, size_t bytes, net_memory_t **memory,
                         uint8_t offer[NET_OFFER_BYTES]);
void *net_memory_pointer(const net_memory_t *memory);
/* Kinds that send (VMM and *_SENT; others return 0): send the descriptor to the peer that made `offer`. Every rank
 * sends to every peer after all have made their offers, and opens after all have sent. */
int net_memory_send(const net_memory_t *memory, const uint8_t peer_offer[NET_OFFER_BYTES]);
/* Map the memory of another rank for kernels of `device`. `own` is this rank's memory of the same kind (those that
 * send receive through it). -EPROTO: the offer is malformed or wrong; -ESRCH: its owner is gone; -ENOENT: no descriptor
 * has arrived; -ENOSYS: no peer access. */
int net_memory_open(net_memory_t *own, int device, const uint8_t peer_offer[NET_OFFER_BYTES], net_mapping_t **mapping);
/* The same in *range, which is reserved if it is NULL; but not for a peer of this process, which has its own. */
int net_memory_open_in(net_memory_t *own, int device, const uint8_t peer_offer[NET_OFFER_BYTES], net_range_t **range,
                       size_t range_bytes, size_t offset, net_mapping_t **mapping);
void *net_mapping_pointer(const net_mapping_t *mapping);
/* Usable bytes; at least what the owner asked for. */
size_t net_mapping_bytes(const net_mapping_t *mapping);
/* False once the owner's process is gone; by IPC also when the owner wants to free it. */
bool net_mapping_alive(const net_mapping_t *mapping);
void net_mapping_close(net_mapping_t *mapping); /* NULL is allowed */
/* Release own memory; NULL is allowed. No kernel of this process may still use it. Host memory is unmapped at once, and
 * lives on for peers that have it mapped. Device memory is parked for net_memory_reap; peers may go on using their
 * mappings, and no peer can map it anew. */
void net_memory_destroy(net_memory_t *memory);
/* The same of VMM memory that no kernel of this process uses, nor will: freed when the last of its ranks has closed it.
 * The driver does not wait for other kernels (measured on H200). */
void net_memory_drop(net_memory_t *memory);
/* Free parked memory. Waits for every kernel of its device, and maybe of others that can reach it. Memory that a living
 * peer has mapped by IPC stays parked, as does memory that the driver refuses to free now (in a callback or capture).
 */
void net_memory_reap(void);
/* The number of parked memories that no reap has tried to free yet. */
uint32_t net_memory_parked(void);

/* ---- CUDA as a guest -----------------------------------------------------------
 *
 * Between enter and leave `device` is current in this thread, and its calls cannot
 * break a capture of another thread. leave restores the context that was current,
 * including none or one that is not primary, and clears this library's own last
 * error. -ENOSYS in a build without CUDA.
 */
typedef struct net_scope {
    void *context;
    int capture_mode;
    bool entered;
} net_scope_t;
int net_scope_enter(net_scope_t *scope, int device);
void net_scope_leave(net_scope_t *scope);
/* The same for each call, in some 20 ns where the device's primary context is current: the capture mode stays as it is.
 * A green context of the device stays current, since the stream NULL is its. A cudaError_t; 0 without CUDA. */
typedef struct net_visit {
    void *context;
    bool changed;
} net_visit_t;
int net_device_enter(net_visit_t *visit, int device);
void net_device_leave(net_visit_t *visit);
/* The calls that a collective makes, in a build with CUDA: the driver's, which take less time than the runtime's. A
 * context is current. Streams and events are the runtime's. Each returns a cudaError_t and leaves no last error. */
/* *id: of the capture that the stream is in, 0: none. An invalidated one is an error. */
int net_stream_capture(void *stream, unsigned long long *id);
int net_stream_id(void *stream, unsigned long long *id);
int net_stream_wait(void *stream, void *event);
int net_event_record(void *event, void *stream);
typedef struct net_launch {
    const void *kernel; /* as the runtime names it */
    uint32_t blocks, threads;
    size_t shared_bytes;
    void *stream;
    bool dependent; /* may be placed before the kernel ahead of it has ended (programmatic dependent launch) */
    int priority;   /* 0: the stream's */
} net_launch_t;
/* arguments: a pointer to each. */
int net_kernel_launch(const net_launch_t *launch, const void *const *arguments);
/* A cudaError_t as a negative errno; 0 for success. */
int net_cuda_errno(int cuda_error);
/* A number that changes when the program resets the device (cudaDeviceReset); 0: not known. */
uint64_t net_device_life(int device);
/* Whether it has changed since it was `life`: memory and mappings of that time are gone, and their addresses may be the
 * program's. */
bool net_device_lost(int device, uint64_t life);

#ifdef __cplusplus
}
#endif
#endif
