/* SPDX-License-Identifier: Apache-2.0 */
/* share.h - how much of a GPU a communicator's kernels may take: those of eight communicators fit side by side. */
#ifndef SHUNT_SHIM_SHARE_H
#define SHUNT_SHIM_SHARE_H

#include "shim/comm/comm.h"

/* A call to launch, under the communicator's lock, with its device current. */
typedef struct shim_ask {
    const alg_algorithm_t *algorithm;
    void *stream;                 /* NULL in a capture, where a stream must not be queried */
    unsigned long long stream_id; /* shim_capture_t.stream_id */
    uint32_t beside;              /* room of the communicator's concurrent call; 0: none */
    shim_ahead_t *ahead;          /* the capture's last call, which this one overwrites; NULL: not captured */
} shim_ask_t;

/* After the set-up: count the communicator among the GPU's. */
void shim_share_join(shim_comm_t *comm);
/* Whether no other communicator of this process uses the GPU. */
bool shim_share_is_lone(const shim_comm_t *comm);
/* Set the call's grid and `early`. False: the call must not start before the kernel ahead has ended. */
bool shim_share_grant(shim_comm_t *comm, alg_call_t *call, const shim_ask_t *ask);
/* Room of the call's grid, in units of alg_algorithm_t.block_room. */
uint32_t shim_share_room(const alg_algorithm_t *algorithm, const alg_call_t *call, uint32_t nranks);
/* Call when the event after the call (all: after the group's calls) is recorded, under the communicator's lock. */
void shim_share_launched(shim_comm_t *comm, bool all);
/* Call when the communicator and its graphs are gone, but its event still exists. */
void shim_share_release(shim_comm_t *comm);

/* In share_cuda.c. _multiprocessors: how many the stream's kernels use (NULL: the current context's); 0: unknown.
 * _place: what this number depends on. */
uint32_t shim_share_multiprocessors(int device, void *stream);
unsigned long long shim_share_place(void *stream, unsigned long long stream_id);

#endif
