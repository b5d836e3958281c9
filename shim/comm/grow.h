/* SPDX-License-Identifier: Apache-2.0 */
/* grow.h - pieces of the scratch (alg_map_t): made when a call first needs them, given back during a suspend. */
#ifndef SHUNT_SHIM_GROW_H
#define SHUNT_SHIM_GROW_H

#include "shim/comm/comm.h"

enum { SHIM_GROW_LIMIT_MS = 60000 }; /* a call's longest wait for a piece */
enum { SHIM_SUSPEND_MEMORY = 1 };    /* NCCL_SUSPEND_MEM; without it NCCL suspends nothing */

/* Start this process's thread; sets *place to the bell by which peers wake it. 0 or a negative errno. */
int shim_grow_start(net_bell_t *place);
/* From now on the thread answers peers for this rank. comm->bell is set. */
void shim_grow_attached(shim_comm_t *comm);
/* From now on the thread declines for this rank. */
void shim_grow_end(shim_comm_t *comm);
/* Ask all ranks for the piece and wait. False: no rank ever uses it, or the communicator has ended. */
bool shim_grow_wait(shim_comm_t *comm, uint32_t piece);

/* For ncclCommSuspend: give the memory back, or log why it is kept. */
void shim_grow_suspend(shim_comm_t *comm);
/* For ncclCommResume: make the memory again at its addresses, and clear `suspended`. Waits for all ranks, at most
 * SHIM_GROW_LIMIT_MS; a thread that resumes several ranks waits in the last one's call. False: all calls are
 * forwarded. */
bool shim_grow_resume(shim_comm_t *comm);

/* Whether calls that need the piece may be taken. */
static inline bool shim_grow(shim_comm_t *comm, uint32_t piece)
{
    return piece == ALG_PIECE_FIRST || alg_scratch_has(comm->scratch, piece) || shim_grow_wait(comm, piece);
}

#endif
