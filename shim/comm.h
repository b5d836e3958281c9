/*
 * comm.h - Shunt's own state of a communicator, and the table that finds it.
 *
 * The application holds the genuine ncclComm_t (in host mode: a pointer to this
 * state). The table maps that handle to a shim_comm_t. Look-ups take no lock.
 * A handle's address may be reused by the real NCCL after a destroy: state is
 * removed before Destroy or Abort is forwarded, and an insert overwrites.
 */
#ifndef SHUNT_SHIM_COMM_H
#define SHUNT_SHIM_COMM_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "algorithms/scratch.h"
#include "selector/selector.h"
#include "transport/transport.h"

/* Life of the state. Only SHIM_COMM_ATTACHED takes calls; the others forward
 * (host mode: SHIM_COMM_ATTACHED or an error). */
typedef enum shim_comm_phase {
    SHIM_COMM_JOINING = 0, /* published, real init not known to be complete */
    SHIM_COMM_ATTACHED = 1,
    SHIM_COMM_FORWARD = 2, /* declined, or the set-up failed: everything is forwarded */
    SHIM_COMM_DEAD = 3     /* aborted, revoked, finalized or failed */
} shim_comm_phase_t;

/* Order of work on one communicator over several streams; order.c. */
typedef struct shim_order {
    void *last_stream;           /* of the last call outside capture */
    bool any;                    /* a call was made outside capture */
    bool many;                   /* more than one stream has been seen: record after every call */
    bool recorded;               /* `event` was recorded after the last call */
    void *event;                 /* cudaEvent_t, made on first need */
    unsigned long long capture;  /* id of the capture that captured_stream belongs to; 0: none */
    void *captured_stream;       /* of the last call inside that capture */
} shim_order_t;

typedef struct shim_comm {
    ncclComm_t handle;
    _Atomic int phase;          /* shim_comm_phase_t */
    _Atomic int async_error;    /* ncclResult_t that Shunt itself found; ncclSuccess if none */
    bool host;                  /* host mode: `handle` is this pointer */
    bool blocking;              /* every rank's configuration says blocking */
    int device;                 /* CUDA ordinal; host mode: the rank */
    uint32_t rank, nranks;
    net_key_t key;              /* of this communicator; children derive theirs from it */
    atomic_uint splits;         /* splits and shrinks so far: part of the children's keys */
    net_rendezvous_t *rendezvous; /* until set-up ends; host mode: kept, to watch peers */
    alg_scratch_t *scratch;     /* owned; NULL unless attached */
    sel_plan_t *plan;           /* owned; NULL unless attached */
    pthread_mutex_t lock;       /* one launch at a time: order, scratch */
    shim_order_t order;
    unsigned long long retained_capture; /* id of the capture whose graph already holds a reference */
    atomic_uint references;     /* table, graphs, calls in flight; the last one frees */
    void *attach;               /* private to attach.c */
} shim_comm_t;

/* The state of a handle, or NULL if Shunt does not know it. No lock, tens of ns. */
shim_comm_t *shim_comm_find(ncclComm_t handle);
/* Put state into the table, over any older state of the same address; the table owns one reference. */
void shim_comm_insert(shim_comm_t *comm);
/* Take it out of the table (references stay); NULL if it was not there. */
shim_comm_t *shim_comm_remove(ncclComm_t handle);
void shim_comm_retain(shim_comm_t *comm);
/* Drop a reference. The last one puts the state on a list that shim_comm_reap frees: a release may
 * come from a driver callback, where no CUDA call is allowed. */
void shim_comm_release(shim_comm_t *comm);
/* Free what was released. Called at the start of init, split, destroy and abort. */
void shim_comm_reap(void);
/* Communicators attached now. */
uint32_t shim_comm_attached(void);

#endif
