/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - how many multiprocessors a communicator's kernels may hold, so that concurrent communicators do
 * not deadlock (docs/limits.md has the exceptions).
 */
#ifndef SHUNT_SHIM_SHARE_H
#define SHUNT_SHIM_SHARE_H

#include "shim/comm/comm.h"

/* At set-up: this rank's claim that the communicator may lead, and the ranks' agreement (false also if it is not
 * attached in the end). */
bool shim_share_claim(shim_comm_t *comm);
void shim_share_settle(shim_comm_t *comm, bool leads);

/* Before a launch on `stream`, whose id (capture.h) says whether it is the last call's: set the call's most_blocks, and
 * `early` if a successor of its size fits beside it.
 * `beside`: blocks of another call of the communicator that must fit at the same time; 0: none. `ahead`: in a capture
 * the record of its last call, which this call replaces; `stream` is then NULL, since a captured stream must not be
 * queried. NULL: no capture. False: the call's own blocks must not be placed before the kernel ahead of it has ended.
 * The communicator's lock is held, its device is current. */
bool shim_share_grant(shim_comm_t *comm, alg_call_t *call, uint32_t beside, void *stream, unsigned long long stream_id,
                      shim_ahead_t *ahead);
/* Release the share; the communicator and all its graphs are gone. */
void shim_share_release(shim_comm_t *comm);

/* The multiprocessors that a kernel on `stream` can be placed on; 0: not known. */
uint32_t shim_share_multiprocessors(int device, void *stream);

#endif
