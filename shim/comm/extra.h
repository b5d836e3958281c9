/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extra.h - further scratches of a communicator, one for each group of experts (experts/). What stops the
 * communicator's kernels stops theirs too, also those of an ended group, whose last kernels may still wait for a peer.
 */
#ifndef SHUNT_SHIM_EXTRA_H
#define SHUNT_SHIM_EXTRA_H

#include "shim/comm/comm.h"

typedef struct shim_extra {
    shim_comm_t *comm; /* with a reference until shim_extra_end */
    alg_scratch_t *scratch;
    shim_record_t *record; /* of the group's calls; NULL: none */
    atomic_uint running;   /* host mode: calls in progress */
    bool ended;
    struct shim_extra *next;
} shim_extra_t;

/* Takes the scratch and the record, unless NULL is returned (no memory). */
shim_extra_t *shim_extra_add(shim_comm_t *comm, alg_scratch_t *scratch, shim_record_t *record);
/* No further call begins. On GPUs kernels may still run, so the scratch stays until shim_extra_forget; the host
 * device's is freed. */
void shim_extra_end(shim_extra_t *extra);
/* Release the communicator's ended scratches to alg_scratch_reap: it is freed, or all ranks have come to its next
 * group. */
void shim_extra_forget(const shim_comm_t *comm);
/* Whether the communicator has any: no event tells whether their kernels have ended. */
bool shim_extra_any(const shim_comm_t *comm);
/* Whether ranks have made different calls of one (shim_record_mismatched). */
bool shim_extra_mismatched(const shim_comm_t *comm);
/* Raise `abort` in all of the communicator's. */
void shim_extra_stop(const shim_comm_t *comm);
/* Host mode: whether calls are in progress; tell their kernels which ranks are gone. */
bool shim_extra_running(const shim_comm_t *comm);
void shim_extra_tell(const shim_comm_t *comm, uint32_t gone);

#endif
