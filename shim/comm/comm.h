/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comm.h - Shunt's own state of a communicator, and the table that finds it.
 *
 * The application holds the genuine ncclComm_t (in host mode: a pointer to this
 * state). The table maps that handle to a shim_comm_t. Look-ups take no lock.
 * A handle's address may be reused by the real NCCL after a destroy: state is
 * removed before Destroy or Abort is forwarded, and an insert overwrites.
 *
 * States are type-stable: they come from a free list and are never unmapped, so a look-up that races a destroy still
 * reads a state, though perhaps one that was reused. shim_comm_acquire closes that gap.
 */
#ifndef SHUNT_SHIM_COMM_H
#define SHUNT_SHIM_COMM_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "algorithms/multihost/multihost.h"
#include "algorithms/scratch.h"
#include "selector/selector.h"
#include "shim/record/record.h"
#include "transport/transport.h"

/* Life of the state. Only SHIM_COMM_ATTACHED takes calls; the others forward (host mode: SHIM_COMM_ATTACHED or an
 * error). A caller that finds JOINING calls shim_attach_settle (attach.h) first. */
typedef enum shim_comm_phase {
    SHIM_COMM_JOINING = 0, /* published, verdict not known */
    SHIM_COMM_ATTACHED = 1,
    SHIM_COMM_FORWARD = 2, /* declined, or the set-up failed: everything is forwarded */
    SHIM_COMM_DEAD = 3     /* aborted, revoked, finalized or failed */
} shim_comm_phase_t;

/* A capture with calls of the communicator; private to capture.c. */
typedef struct shim_captured shim_captured_t;

/* Order of work on one communicator over several streams; order.c. */
typedef struct shim_order {
    _Atomic(void *) event;              /* cudaEvent_t, made lazily; recorded after each call and each replay */
    void *side[2];                      /* cudaStream_t, made lazily: for groups of several kinds of calls */
    unsigned long long last_stream_id;  /* the last eager call's */
    bool recorded;                      /* `event` was recorded after an eager call, or by a graph */
    bool lost;                          /* no event was recorded for a call: its end is unknown */
    bool mixed;                         /* graphs may record `event`, too */
    atomic_ullong pending;              /* number of the call whose work is not on its stream yet; 0: none */
    unsigned long long pendings;        /* such calls so far */
    void *pending_stream;               /* its stream ... */
    unsigned long long pending_capture; /* ... in this capture, 0: in none */
    shim_captured_t **captured;         /* captures by id, in chains; NULL: none yet */
    uint32_t chains, captures;          /* chains: a power of two, at least as many as captures */
    _Atomic(shim_captured_t *) gone;    /* of them, those whose graphs are gone: the driver's callback adds them */
    atomic_uint graphs;                 /* that live, or their instances, with calls of the communicator */
} shim_order_t;

/* Where kernels can be placed: on these multiprocessors of the GPU; private to share.c. */
enum { SHIM_PLACES = 4 };
typedef struct shim_where {
    unsigned long long place;
    uint32_t multiprocessors; /* 0: an empty entry */
} shim_where_t;

/* The communicator's part of its GPU; private to share.c. */
typedef struct shim_share {
    bool joined;           /* it counts as one of the GPU's */
    atomic_uint launching; /* calls with the large part whose event is not recorded yet */
    bool captured;         /* a graph has some of them */
    uint32_t early;        /* room of the last eager call, if it lets its successor in early; else 0 */
    uint32_t places;       /* asked about so far */
    shim_where_t place[SHIM_PLACES];
} shim_share_t;

/* The last call of a capture, zeroed: none; private to share.c. */
typedef struct shim_ahead {
    uint32_t row;   /* room of its row's grid */
    uint32_t early; /* room of its grid, if it lets its successor in early; else 0 */
} shim_ahead_t;

typedef struct shim_shrink shim_shrink_t;

/* Of the application's ncclConfig_t (setup/config.h). */
typedef struct shim_config {
    bool blocking;
    bool launch_order; /* among communicators, which NCCL alone keeps */
    bool cta_policy;   /* for few of the GPU's multiprocessors, or none, as NCCL alone can */
    bool graph_mixing; /* of graphs and eager work, which are to be ordered */
    bool split_share, shrink_share;
    uint32_t max_blocks; /* 0: not set */
} shim_config_t;

typedef struct shim_comm {
    _Atomic(ncclComm_t) handle; /* NULL until known, and in a state on the free list */
    _Atomic int phase;          /* shim_comm_phase_t */
    _Atomic int async_error;    /* ncclResult_t that Shunt itself found; ncclSuccess if none */
    atomic_bool host;           /* host mode: `handle` is this pointer */
    atomic_bool finalized;      /* ncclCommFinalize was called */
    atomic_bool revoked;        /* ncclCommRevoke was called */
    atomic_bool aborted;        /* on GPUs, ncclCommAbort was called: the real NCCL frees the handle */
    atomic_bool suspended;      /* by ncclCommSuspend: everything is forwarded, and NCCL refuses it */
    int device;                 /* CUDA ordinal; host mode: the rank */
    uint64_t life;              /* of the device since the scratch was made (net_device_life); host mode: 0 */
    uint32_t rank, nranks;
    shim_config_t config;             /* this rank's */
    bool all_block;                   /* every rank blocks; until attached: this rank does */
    uint64_t family;                  /* an abort ends all communicators of this rank with this number; never 0 */
    net_key_t key;                    /* of this communicator; children derive theirs from it */
    atomic_uint splits;               /* splits so far: part of the children's keys */
    _Atomic(shim_shrink_t *) shrinks; /* private to shrink.c */
    net_rendezvous_t *rendezvous;     /* host mode: to watch peers; CUDA: NULL */
    alg_scratch_t *scratch;           /* owned; NULL unless attached. Private memory: read it under a reference */
    alg_relay_t *relay;               /* for ranks of several hosts: owned; NULL: one host */
    alg_hosts_t *hosts;               /* host mode: likewise */
    net_invitation_t invitation;      /* where ranks of several hosts meet; children use it too */
    net_key_t place;                  /* identifies this host among theirs (net_place); likewise */
    net_bell_t bell[ALG_MAX_RANKS];   /* private to grow.c, as the next six: of the ranks' processes */
    atomic_uint asked, declined;      /* bits: pieces of the scratch */
    atomic_bool empty;                /* suspended, and its memory is given back */
    const void *emptied_by;           /* likewise: names the thread that suspended it */
    bool grows;                       /* likewise: it is in grow.c's list, ... */
    struct shim_comm *grows_next;     /* ... linked by this */
    sel_plan_t *plan;                 /* owned; NULL unless attached */
    atomic_bool reusable;             /* ended cleanly: the scratch may go to the pool */
    pthread_mutex_t lock;             /* one launch at a time: order, scratch */
    pthread_mutex_t message_lock;     /* host mode: for messages, which a group has beside its collectives */
    shim_order_t order;
    shim_share_t share;
    atomic_uint polls;             /* polls of the handle in progress at a group's end; an abort waits for them */
    atomic_uint references;        /* held by the table, graphs, calls in flight; the last one frees */
    _Atomic uint64_t calls_begun;  /* host mode, for watch.c: calls begun ... */
    _Atomic uint64_t calls_ended;  /* ... and ended */
    shim_record_t *record;         /* owned; NULL: none */
    void *_Atomic redops;          /* private to redop.c: the user's operators */
    struct shim_comm *next;        /* reap and free lists; while they drain, reap.c's */
    struct shim_comm *made_before; /* private to comm.c: all states */
} shim_comm_t;

/* The state of a handle, or NULL if Shunt does not know it (always NULL in a forked child, for what
 * the parent made). No lock, tens of ns. The caller must know that no thread destroys the
 * handle meanwhile; otherwise it uses shim_comm_acquire. */
shim_comm_t *shim_comm_find(ncclComm_t handle);
/* The same with a reference that the caller releases; never the state of another handle. */
shim_comm_t *shim_comm_acquire(ncclComm_t handle);
/* A fresh state with one reference, the caller's; NULL without memory. */
shim_comm_t *shim_comm_new(void);
/* Put state into the table, over any older state of the same address; the table takes a reference of
 * its own. False without memory. comm->handle is set. */
bool shim_comm_insert(shim_comm_t *comm);
/* Remove it from the table. The table's reference passes to the caller; NULL if it was not there. If several threads
 * remove one handle, one of them gets it. */
shim_comm_t *shim_comm_remove(ncclComm_t handle);
/* Remove it only if the table still has this very state; drops the table's reference. False: it was not there. */
bool shim_comm_drop(shim_comm_t *comm, ncclComm_t handle);
void shim_comm_retain(shim_comm_t *comm);
/* Drop a reference (NULL is fine). The last one puts the state on a list that shim_comm_reap (reap.h) frees: a release
 * may come from a driver callback, where no CUDA call is allowed. */
void shim_comm_release(shim_comm_t *comm);
/* For reap.c: take the list of states without references, linked by `next`; put a state that owns nothing any more
 * on the free list. */
shim_comm_t *shim_comm_take_released(void);
void shim_comm_recycle(shim_comm_t *comm);
/* Whether the program has reset the device since: the scratch and all CUDA handles of the state are gone, and may not
 * even be asked about. Some µs. */
bool shim_comm_lost(const shim_comm_t *comm);
/* Communicators attached now. */
uint32_t shim_comm_attached(void);
/* Call `visit` for every state in the table that can be acquired; for every state, in the table or not, that
 * has a reference. The state is held meanwhile. */
void shim_comm_each(void (*visit)(shim_comm_t *comm, void *context), void *context);
void shim_comm_each_held(void (*visit)(shim_comm_t *comm, void *context), void *context);

#endif
