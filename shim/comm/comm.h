/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - the state of a communicator, and the table that finds it by its handle.
 *
 * The handle is the real NCCL's (CPU mode: the state's address). NCCL may reuse it after a destroy, so the state is
 * removed before a destroy or abort is forwarded, and an insert replaces an older state.
 */
#ifndef SHUNT_SHIM_COMM_H
#define SHUNT_SHIM_COMM_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "algorithms/scratch.h"
#include "selector/selector.h"
#include "shim/nodes/nodes.h"
#include "shim/record/record.h"
#include "transport/transport.h"

/* Only ATTACHED takes calls; other phases forward them (CPU mode: an error). In JOINING a call waits for the verdict
 * (shim_attach_settle). */
typedef enum shim_comm_phase {
    SHIM_COMM_JOINING = 0, /* no verdict yet */
    SHIM_COMM_ATTACHED = 1,
    SHIM_COMM_FORWARD = 2, /* the set-up declined or failed */
    SHIM_COMM_DEAD = 3     /* aborted, revoked, finalized or failed */
} shim_comm_phase_t;

typedef struct shim_captured shim_captured_t;

/* For order.c and capture.c. */
typedef struct shim_order {
    _Atomic(void *) event;             /* cudaEvent_t or NULL; recorded after calls and replays */
    void *side[2];                     /* cudaStream_t or NULL, for a group's branches */
    unsigned long long last_stream_id; /* of the last eager call */
    bool recorded;                     /* an eager call, or a graph since destroyed, recorded `event` */
    bool lost;                         /* a recording failed: that call's end is unknown */
    bool mixed;                        /* graphs may record `event` too */
    atomic_ullong pending;             /* the pending call's number (shim_order_pending) */
    unsigned long long pendings;
    void *pending_stream;
    unsigned long long pending_capture; /* 0: none */
    shim_captured_t **captured;         /* hash chains by capture id; NULL: none yet */
    uint32_t chains, captures;          /* chains: a power of two, at least `captures` */
    _Atomic(shim_captured_t *) gone;    /* captures of destroyed graphs; the driver's callback adds them */
    atomic_uint graphs;                 /* captures with a living graph or instance */
} shim_order_t;

/* How many multiprocessors a stream's kernels use, by shim_share_place. share.c owns this and the next two structs. */
enum { SHIM_PLACES = 4 };
typedef struct shim_where {
    unsigned long long place;
    uint32_t multiprocessors; /* 0: an empty entry */
} shim_where_t;

typedef struct shim_share {
    bool joined;           /* counted in the GPU's `sharers` */
    atomic_uint launching; /* calls in the large part, until their event is recorded */
    bool captured;         /* a graph contains calls in the large part */
    uint32_t early;        /* room (share.c) of the last eager call if its successor may start early, else 0 */
    uint32_t places;       /* entries ever written to `place` */
    shim_where_t place[SHIM_PLACES];
} shim_share_t;

/* The last call in a capture; zeroed: none. */
typedef struct shim_ahead {
    uint32_t row;   /* room of the grid that its row names */
    uint32_t early; /* room of its actual grid if its successor may start early, else 0 */
} shim_ahead_t;

typedef struct shim_shrink shim_shrink_t;

/* What differs between devices; setup.h, call/device.h and experts/group.h have such structs too. */
typedef struct shim_device_ops {
    alg_device_t device;
    bool asynchronous;                           /* calls end after they return */
    uint32_t timeout_ms;                         /* SHUNT_TIMEOUT_MS's default */
    uint64_t (*meeting_ns)(uint32_t timeout_ms); /* the user's limit for ranks that meet; 0: none */
    const char *without_memory;                  /* verb of a log line: what Shunt does with calls */
} shim_device_ops_t;
extern const shim_device_ops_t shim_device_cuda;

typedef struct shim_config {
    bool blocking;
    bool launch_order; /* the user wants an order among communicators, as only NCCL keeps it */
    bool cta_policy;   /* the user wants few or no multiprocessors used, as only NCCL can */
    bool graph_mixing; /* graphs and eager work must be ordered */
    bool split_share, shrink_share;
    uint32_t max_blocks; /* 0: not set */
} shim_config_t;

typedef struct shim_comm {
    _Atomic(ncclComm_t) handle; /* NULL until known, and on the free list */
    _Atomic int phase;          /* shim_comm_phase_t */
    _Atomic int async_error;    /* ncclResult_t of a failure that Shunt found */
    const shim_device_ops_t *ops;
    atomic_bool finalized;
    atomic_bool revoked;
    atomic_bool aborted;   /* ncclCommAbort on GPUs: the real NCCL frees the handle */
    atomic_bool suspended; /* calls are forwarded, and NCCL refuses them */
    int device;            /* CUDA ordinal; -1: not known yet, or CPU mode */
    uint64_t life;         /* net_device_life of the scratch; CPU mode: 0 */
    uint32_t rank, nranks;
    shim_config_t config;
    bool all_block;           /* every rank is blocking; before the attach: this rank is */
    uint64_t family;          /* equal for communicators that share resources, which an abort ends together; never 0 */
    net_key_t key;            /* children derive theirs from it; with NCCL_COMM_ID communicators may share it */
    uint64_t nonce;           /* rank 0's random number of this set-up; 0: several nodes, or not attached */
    atomic_uint splits;       /* splits so far; part of the children's keys */
    atomic_uint extras;       /* groups of experts so far; part of their keys */
    atomic_uint extras_begun; /* groups being made; the call of each holds a reference */
    _Atomic(shim_shrink_t *) shrinks; /* private to shrink.c */
    net_rendezvous_t *rendezvous;     /* CPU mode, for cpu/watch.c; else NULL */
    alg_scratch_t *scratch;           /* owned; NULL unless attached; read under a reference */
    shim_meeting_t *nodes;            /* owned; NULL: one node */
    shim_invitation_t invitation;     /* where ranks of several nodes meet, also children's */
    net_key_t place;                  /* this node (net_place) */
    net_bell_t bell[ALG_MAX_RANKS];   /* of the ranks' processes; this and the next six are grow.c's */
    atomic_uint asked, declined;      /* bit n: piece n */
    atomic_bool empty;                /* suspended, and its memory given back */
    uint64_t emptied_by;              /* net_thread_number of the thread that suspended it */
    bool grows;                       /* in grow.c's list */
    struct shim_comm *grows_next;
    sel_plan_t *plan;             /* owned; NULL unless attached */
    atomic_bool reusable;         /* ended cleanly: the scratch may be pooled */
    pthread_mutex_t lock;         /* one launch at a time; guards `order` and the scratch */
    pthread_mutex_t message_lock; /* CPU mode: for messages, which run beside collectives */
    shim_order_t order;
    shim_share_t share;
    atomic_uint polls;            /* of the real NCCL, running at a group's end; an abort waits for them */
    atomic_uint references;       /* held by the table, graphs, running calls; the last release frees */
    _Atomic uint64_t calls_begun; /* CPU mode, for cpu/watch.c */
    _Atomic uint64_t calls_ended;
    shim_record_t *record;           /* owned; NULL: none */
    struct shim_redop_entry *redops; /* private to redop.c */
    atomic_bool listed;              /* linked by `next`, to be released */
    struct shim_comm *next;          /* link of comm.c's, reap.c's and attach.c's lists */
    struct shim_comm *made_before;   /* private to comm.c: link of all states */
} shim_comm_t;

/* NULL: unknown, or made before a fork. Takes no lock, tens of ns. After another thread's destroy the state may be
 * reused, but is never unmapped; a reference (shim_comm_acquire) prevents the reuse. */
shim_comm_t *shim_comm_find(ncclComm_t handle);
/* The same with a reference, which the caller releases. */
shim_comm_t *shim_comm_acquire(ncclComm_t handle);
/* A fresh state with one reference, the caller's; NULL without memory. */
shim_comm_t *shim_comm_new(const shim_device_ops_t *ops);
/* Insert under comm->handle, in place of an older state. The table takes a reference. False without memory. */
bool shim_comm_insert(shim_comm_t *comm);
/* Remove `comm`, but no other state of the handle, and drop the table's reference. False if it is not there. */
bool shim_comm_drop(shim_comm_t *comm, ncclComm_t handle);
void shim_comm_retain(shim_comm_t *comm);
/* NULL is allowed. The last release only lists the state for shim_comm_collect, because driver callbacks release states
 * too and must not call CUDA. */
void shim_comm_release(shim_comm_t *comm);
/* For reap.c. _take_released returns all states without references, linked by `next`; _recycle makes one available
 * again. */
shim_comm_t *shim_comm_take_released(void);
void shim_comm_recycle(shim_comm_t *comm);
/* A key that no other communicator has. Needs an attached communicator. */
net_key_t shim_comm_own_key(const shim_comm_t *comm);
/* Whether the device was reset. Scratch and CUDA handles are then gone and must not be queried. Takes some µs. */
bool shim_comm_lost(const shim_comm_t *comm);
uint32_t shim_comm_attached(void);
/* Visit, with a reference held, every state in the table; _held: every state with a reference. */
void shim_comm_each(void (*visit)(shim_comm_t *comm, void *context), void *context);
void shim_comm_each_held(void (*visit)(shim_comm_t *comm, void *context), void *context);

#endif
