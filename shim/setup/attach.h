/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h - set-up of a communicator: publish before the real init, agree
 * afterwards, in stages that never block for another rank.
 *
 * Who does what: api/comm_init.c and host/host.c publish a rank, forward the call,
 * and hand the result to shim_attach_forwarded. What cannot be finished there (in a
 * group, not blocking) waits on a list of the process for shim_attach_after_group
 * or shim_attach_poll. A set-up ends with its communicator ATTACHED or FORWARD
 * (host mode: ATTACHED or gone); it never hangs and never fails the application.
 */
#ifndef SHUNT_SHIM_ATTACH_H
#define SHUNT_SHIM_ATTACH_H

#include "shim/comm/comm.h"

/* ---- For call/ ----------------------------------------------------------------- */

/* Finish what this thread has begun in its group: call it when the OUTERMOST real ncclGroupEnd has
 * returned `group_result` (host mode: ncclSuccess, or the group's error) and before queued calls are
 * launched. ncclInProgress leaves the set-ups to ncclCommGetAsyncError. Also frees what was destroyed
 * in the group. Returns what the group end shall return: group_result, or in host mode the error of
 * an init or split that failed. */
ncclResult_t shim_attach_after_group(ncclResult_t group_result);
/* For a call that meets a communicator in SHIM_COMM_JOINING: if the real one is ready, wait (at most
 * a minute, while the other ranks live) for the verdict, so that every rank routes the call alike. In
 * host mode it does nothing: there such a call is an error. */
void shim_attach_settle(shim_comm_t *comm);

/* ---- For api/ and host/ -------------------------------------------------------- */

typedef struct shim_setup shim_setup_t;

/* What is known of a rank when it publishes. */
typedef struct shim_setup_request {
    net_key_t key;
    ncclComm_t *newcomm; /* the application's; read once the real call has succeeded */
    ncclComm_t parent;   /* of a split: polled until *newcomm is there; else NULL */
    bool host;
    bool wait;    /* the call blocks until the communicator is ready */
    bool grouped; /* it stands in a group of this thread */
    bool publish; /* false: keep the key alone, for children (too many ranks to attach); in host mode: the parent's
                      ranks, of several hosts, meet by the invitation */
    shim_config_t config; /* the new communicator's */
    uint64_t family;      /* 0: a new one */
    int rank, nranks;     /* -1: ask the real NCCL afterwards */
    /* Host mode's split: rank and nranks are the parent's; the new ones come of all ranks' colours. */
    bool regroup;
    int color, order;
    net_invitation_t invitation; /* where ranks of several hosts meet; not valid: nowhere */
} shim_setup_request_t;

/* Where the ranks of an init meet. */
net_key_t shim_attach_key(const ncclUniqueId *ids, int id_count, int nranks);
/* Join the rendezvous; call it before forwarding. NULL: Shunt keeps out of this communicator. */
shim_setup_t *shim_attach_publish(const shim_setup_request_t *request);
/* The call was forwarded and returned `result`. `count` set-ups (entries may be NULL), which are
 * consumed. Returns what the application gets. */
ncclResult_t shim_attach_forwarded(shim_setup_t **setups, uint32_t count, ncclResult_t result);
/* From ncclCommGetAsyncError after the real one said success for `handle`: step the pending set-ups
 * of the process. True while one that concerns `handle` has no verdict. Never blocks. */
bool shim_attach_poll(ncclComm_t handle);
/* `handle` is about to be destroyed, aborted or has failed: decline its set-up and those of its children. */
void shim_attach_cancel(ncclComm_t handle);
/* State that leaves the table inside a group stays until shim_attach_after_group. Takes the reference. */
void shim_attach_defer_release(shim_comm_t *comm);

#endif
