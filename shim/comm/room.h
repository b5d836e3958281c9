/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room.h - how many multiprocessors a communicator's kernels may hold, so that
 * communicators that are busy at once never lock each other out.
 */
#ifndef SHUNT_SHIM_ROOM_H
#define SHUNT_SHIM_ROOM_H

#include "shim/comm/comm.h"

/* At set-up: this rank's word on whether the communicator may lead; and what the ranks agreed on (false too if it is
 * not attached in the end). */
bool shim_room_claim(shim_comm_t *comm);
void shim_room_settle(shim_comm_t *comm, bool leads);

/* Before a launch on `stream` (NULL: it is being captured, and must not be asked): set the call's most_blocks, and
 * `early` if its successor has room beside it. `beside`: of another call of the communicator that must have a place at
 * the same time, for which the same is asked; 0: there is none. The communicator's lock is held, its device is
 * current. */
void shim_room_grant(shim_comm_t *comm, alg_call_t *call, uint32_t beside, void *stream);
/* The communicator and all its graphs are gone: its room is free. */
void shim_room_release(shim_comm_t *comm);

/* The multiprocessors that a kernel on `stream` can be placed on; 0: not known. */
uint32_t shim_room_multiprocessors(int device, void *stream);

#endif
