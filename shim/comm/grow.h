/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grow.h - the pieces of a communicator's scratch that come when a call first needs
 * them (alg_map_t), and go while it is suspended.
 */
#ifndef SHUNT_SHIM_GROW_H
#define SHUNT_SHIM_GROW_H

#include "shim/comm/comm.h"

enum { SHIM_GROW_LIMIT_MS = 60000 }; /* of a call's wait */

/* Start this process's thread for pieces, and say where peers wake it. 0 or a negative errno. */
int shim_grow_start(net_bell_t *place);
/* The communicator is attached, with its peers' bells: from now on the thread answers for this rank. */
void shim_grow_attached(shim_comm_t *comm);
/* The state goes: from now on the thread declines for this rank. */
void shim_grow_end(shim_comm_t *comm);
/* Ask all ranks for the piece and wait for their verdict. True: calls may use it. Else never, on any rank; or the
 * communicator has ended. */
bool shim_grow_wait(shim_comm_t *comm, uint32_t piece);

/* The program has suspended the communicator: give its memory back. One line in the log if it stays. */
void shim_grow_suspend(shim_comm_t *comm);
/* The program resumes it: get the memory back, as new and at the same addresses; waits for the other ranks, at most a
 * minute. One thread that has several ranks waits when it resumes the last one. Clears `suspended`. False: the memory
 * did not come, and the communicator is forwarded from now on. */
bool shim_grow_resume(shim_comm_t *comm);

/* Whether calls that need the piece may be taken. */
static inline bool shim_grow(shim_comm_t *comm, uint32_t piece)
{
    return piece == ALG_PIECE_FIRST || alg_scratch_has(comm->scratch, piece) || shim_grow_wait(comm, piece);
}

#endif
