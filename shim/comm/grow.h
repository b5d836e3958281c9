/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow.h - pieces of the scratch, made when a call first needs them (alg_map_t), given back while suspended.
 */
#ifndef SHUNT_SHIM_GROW_H
#define SHUNT_SHIM_GROW_H

#include "shim/comm/comm.h"

enum { SHIM_GROW_LIMIT_MS = 60000 }; /* of a call's wait */

/* Start this process's thread; `place` is where peers wake it. 0 or a negative errno. */
int shim_grow_start(net_bell_t *place);
/* The thread now answers for this rank, and knows its peers' bells. */
void shim_grow_attached(shim_comm_t *comm);
/* The thread now declines for this rank. */
void shim_grow_end(shim_comm_t *comm);
/* Ask all ranks for the piece and wait for the verdict. False: no rank ever uses it, or the communicator has ended. */
bool shim_grow_wait(shim_comm_t *comm, uint32_t piece);

/* Suspended by the program: give the memory back. Logs a line if it stays. */
void shim_grow_suspend(shim_comm_t *comm);
/* The program resumes: get the memory back, new, at the same addresses. Waits for the other ranks, at most a minute; a
 * thread with several ranks waits in its last one. Clears `suspended`. False: no memory, all is forwarded from now
 * on. */
bool shim_grow_resume(shim_comm_t *comm);

/* Whether calls that need the piece may be taken. */
static inline bool shim_grow(shim_comm_t *comm, uint32_t piece)
{
    return piece == ALG_PIECE_FIRST || alg_scratch_has(comm->scratch, piece) || shim_grow_wait(comm, piece);
}

#endif
