/* SPDX-License-Identifier: Apache-2.0 */
/* extra.h - a communicator's further scratches, one for each group of experts. What stops the communicator's kernels
 * stops the groups' too, even an ended group's, which may still wait for a peer. */
#ifndef SHUNT_SHIM_EXTRA_H
#define SHUNT_SHIM_EXTRA_H

#include "shim/comm/comm.h"

typedef struct shim_extra {
    shim_comm_t *comm; /* with a reference until shim_extra_end */
    alg_scratch_t *scratch;
    shim_record_t *record; /* of the group's calls; NULL: none */
    atomic_uint running;   /* CPU mode: calls in progress */
    bool ended;
    struct shim_extra *next;
} shim_extra_t;

/* Owns scratch and record from now on, unless it returns NULL (no memory). */
shim_extra_t *shim_extra_add(shim_comm_t *comm, alg_scratch_t *scratch, shim_record_t *record);
/* No further call begins. On GPUs kernels may still run: the scratch stays until shim_extra_forget; on the CPU
 * device it is freed here. */
void shim_extra_end(shim_extra_t *extra);
/* Release ended groups' scratches. Call when the communicator is freed, or all ranks have come to its next group. */
void shim_extra_forget(const shim_comm_t *comm);
/* Whether the communicator has extra scratches; no event tells when their kernels end. */
bool shim_extra_any(const shim_comm_t *comm);
/* See shim_record_mismatched. */
bool shim_extra_mismatched(const shim_comm_t *comm);
void shim_extra_stop(const shim_comm_t *comm);
/* CPU mode. _running: whether calls are in progress. _tell: tell their kernels which ranks (bits) are gone. */
bool shim_extra_running(const shim_comm_t *comm);
void shim_extra_tell(const shim_comm_t *comm, uint32_t gone);

#endif
