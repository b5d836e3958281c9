/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - how much of its GPU a communicator's kernels may take, so that eight communicators whose calls no stream
 * orders find places side by side.
 */
#ifndef SHUNT_SHIM_SHARE_H
#define SHUNT_SHIM_SHARE_H

#include "shim/comm/comm.h"

/* A call that is about to be launched. The communicator's lock is held, its device is current. */
typedef struct shim_ask {
    const alg_algorithm_t *algorithm;
    void *stream;                 /* NULL in a capture: a captured stream must not be queried */
    unsigned long long stream_id; /* capture.h */
    uint32_t beside;              /* room of another call of the communicator that runs at the same time; 0: none */
    shim_ahead_t *ahead;          /* in a capture the record of its last call, which this call replaces; else NULL */
} shim_ask_t;

/* At the end of a set-up: the communicator may make calls. */
void shim_share_join(shim_comm_t *comm);
/* Set the call's grid and `early`. False: it must not be placed before the kernel ahead of it has ended. */
bool shim_share_grant(shim_comm_t *comm, alg_call_t *call, const shim_ask_t *ask);
/* The room of the call's grid, as it asks for it; as alg_algorithm_t.block_room counts. */
uint32_t shim_share_room(const alg_algorithm_t *algorithm, const alg_call_t *call, uint32_t nranks);
/* The call's event is recorded, or that of a group of calls (`all`). The communicator's lock is held. */
void shim_share_launched(shim_comm_t *comm, bool all);
/* The communicator and all its graphs are gone; its event still exists. */
void shim_share_release(shim_comm_t *comm);

/* share_cuda.c: the multiprocessors that kernels on a stream (NULL: on any of the current context) can be placed on; 0:
 * not known. What stands for them: streams with the same place have as many. Whether all that was recorded with the
 * event has ended. */
uint32_t shim_share_multiprocessors(int device, void *stream);
unsigned long long shim_share_place(void *stream, unsigned long long stream_id);
bool shim_share_ended(void *event);

#endif
