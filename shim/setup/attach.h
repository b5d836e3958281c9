/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h - set-up of a communicator: publish before the real init, agree after it. An entry point publishes its rank,
 * forwards the init, and passes the result to shim_attach_forwarded.
 */
#ifndef SHUNT_SHIM_ATTACH_H
#define SHUNT_SHIM_ATTACH_H

#include "shim/comm/comm.h"

/* ---- For call/ ----------------------------------------------------------------- */

/* Finish this thread's set-ups of the group, and free states destroyed in the group. Call after the outermost real
 * ncclGroupEnd returned `group_result` (CPU mode: the group's error), before queued calls launch. ncclInProgress leaves
 * the set-ups to polls. Returns group_result, or in CPU mode a failed set-up's error. */
ncclResult_t shim_attach_after_group(ncclResult_t group_result);
/* Whether the communicator is attached; every call asks. On GPUs, once the real communicator is ready, waits for the
 * verdict (at most a minute, while the other ranks live), so that all ranks route alike. */
bool shim_attach_settle(shim_comm_t *comm);

/* ---- For api/ and cpu/ -------------------------------------------------------- */

typedef struct shim_setup shim_setup_t;
typedef struct shim_setup_ops shim_setup_ops_t;
extern const shim_setup_ops_t shim_setup_cuda;

/* What an entry point knows before it forwards its call. */
typedef struct shim_setup_request {
    net_key_t key;
    ncclComm_t *newcomm; /* the program's variable, set by a successful real call */
    ncclComm_t parent;   /* of a split or shrink: its parent, polled until *newcomm is set; else NULL */
    const shim_setup_ops_t *ops;
    bool wait;    /* the call is blocking */
    bool grouped; /* the call is in a group of this thread */
    /* Whether this node's ranks meet under `key`. If not (too many ranks; CPU mode: several nodes), children use it. */
    bool publish;
    shim_config_t config;
    uint64_t family;  /* comm.h's `family`; 0: a new family */
    int rank, nranks; /* -1: ask the real NCCL later */
    /* A split in CPU mode: until all colours are known, rank and nranks are the parent's. */
    bool regroup;
    int color, order;
    /* CPU mode: a reference to the parent, which counts its splits and shrinks. If the child's ranks do not meet, the
     * count is restored, since a rank whose call was refused at once has not raised it. */
    shim_comm_t *counted;
    unsigned number;              /* number of the split; UINT_MAX: the parent's count stays */
    shim_shrink_t *shrink;        /* NULL: a split */
    shim_invitation_t invitation; /* where ranks of several nodes meet */
    net_key_t place;              /* the parent's node, for an unpublished child */
} shim_setup_request_t;

/* The key under which an init's ranks meet. */
net_key_t shim_attach_key(const ncclUniqueId *ids, int id_count, int nranks);
/* Restore the parent's count, if this child raised it. */
void shim_attach_uncount(const shim_setup_request_t *request);
/* Join the rendezvous. NULL: Shunt does not take part. */
shim_setup_t *shim_attach_publish(const shim_setup_request_t *request);
/* The forwarded call returned `result`. Consumes the set-ups (some may be NULL); returns the program's result. */
ncclResult_t shim_attach_forwarded(shim_setup_t **setups, uint32_t count, ncclResult_t result);
/* For ncclCommGetAsyncError after the real NCCL's success: step the process's set-ups. True while a set-up of `handle`
 * or its child has no verdict. Never blocks. */
bool shim_attach_poll(ncclComm_t handle);
/* `handle` has failed, or will be destroyed or aborted: decline its and its children's set-ups. */
void shim_attach_cancel(ncclComm_t handle);
/* Keep a state that a call in a group removed from the table, until shim_attach_after_group. Takes over the
 * reference. */
void shim_attach_defer_release(shim_comm_t *comm);

#endif
