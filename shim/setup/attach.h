/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h - set-up of a communicator: publish before the real init, agree
 * afterwards, in stages that never block for another rank.
 *
 * The parts: api/comm_init.c and host/host.c publish a rank, forward the call, and hand the result to
 * shim_attach_forwarded. Set-ups that cannot be finished there (in a group, or non-blocking) wait on a process-wide
 * list for shim_attach_after_group or shim_attach_poll. A set-up ends with its communicator ATTACHED or FORWARD (host
 * mode: ATTACHED or gone); it never hangs and never fails the application.
 */
#ifndef SHUNT_SHIM_ATTACH_H
#define SHUNT_SHIM_ATTACH_H

#include "shim/comm/comm.h"

/* ---- For call/ ----------------------------------------------------------------- */

/* Finish the set-ups that this thread began in its group. Call it when the OUTERMOST real ncclGroupEnd has returned
 * `group_result` (host mode: ncclSuccess, or the group's error) and before queued calls are launched. ncclInProgress
 * leaves the set-ups to ncclCommGetAsyncError. Also frees states destroyed in the group. Returns the result of the
 * group's end: group_result, or in host mode the error of a failed init or split. */
ncclResult_t shim_attach_after_group(ncclResult_t group_result);
/* For a call that meets a communicator in SHIM_COMM_JOINING: if the real one is ready, wait (at most a minute, while
 * the other ranks live) for the verdict, so that every rank routes the call alike. Does nothing in host mode, where
 * such a call is an error. */
void shim_attach_settle(shim_comm_t *comm);

/* ---- For api/ and host/ -------------------------------------------------------- */

typedef struct shim_setup shim_setup_t;

/* A rank as it is known when it publishes. */
typedef struct shim_setup_request {
    net_key_t key;
    ncclComm_t *newcomm; /* the application's; read once the real call has succeeded */
    ncclComm_t parent;   /* of a split: polled until *newcomm is there; else NULL */
    bool host;
    bool wait;    /* the call blocks until the communicator is ready */
    bool grouped; /* the call is in a group of this thread */
    bool publish; /* false: keep the key alone, for children (too many ranks to attach); in host mode: the parent's
                      ranks, of several hosts, meet by the invitation */
    shim_config_t config; /* the new communicator's */
    uint64_t family;      /* 0: a new one */
    int rank, nranks;     /* -1: ask the real NCCL afterwards */
    /* Host mode's split: rank and nranks are the parent's; the new ones follow from all ranks' colours. */
    bool regroup;
    int color, order;
    /* Host mode's split or shrink has taken a number of this parent (a reference), for the child's key. If its ranks do
     * not meet, the number is given back, for those that were refused at once have not taken it. */
    shim_comm_t *counted;
    unsigned number;             /* of a split */
    shim_shrink_t *shrink;       /* or the shrink */
    net_invitation_t invitation; /* where ranks of several hosts meet; not valid: nowhere */
    net_key_t place;             /* of the parent, for a child that is not published */
} shim_setup_request_t;

/* Where the ranks of an init meet. */
net_key_t shim_attach_key(const ncclUniqueId *ids, int id_count, int nranks);
/* Give back the number that a request has taken of its parent, if any. */
void shim_attach_uncount(const shim_setup_request_t *request);
/* Join the rendezvous, before forwarding. NULL: Shunt stays out of this communicator. */
shim_setup_t *shim_attach_publish(const shim_setup_request_t *request);
/* The call was forwarded and returned `result`. `count` set-ups (entries may be NULL), which are consumed. Returns
 * the application's result. */
ncclResult_t shim_attach_forwarded(shim_setup_t **setups, uint32_t count, ncclResult_t result);
/* Called by ncclCommGetAsyncError after the real NCCL returned success for `handle`: step the pending set-ups of the
 * process. True while a set-up that concerns `handle` has no verdict. Never blocks. */
bool shim_attach_poll(ncclComm_t handle);
/* `handle` is about to be destroyed, aborted or has failed: decline its set-up and those of its children. */
void shim_attach_cancel(ncclComm_t handle);
/* Keep a state that left the table inside a group until shim_attach_after_group. Takes the reference. */
void shim_attach_defer_release(shim_comm_t *comm);

#endif
