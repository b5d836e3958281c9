/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comms.h - communicators of fake GPUs, with all ranks in one thread unless stated.
 */
#ifndef SHUNT_TESTS_SHIM_COMMS_H
#define SHUNT_TESTS_SHIM_COMMS_H

#include "fake.h"

enum { N = 4 }; /* ranks, where nothing else is said */

ncclUniqueId comms_id(void);
/* Init all ranks in one group. */
void comms_init(ncclComm_t *comms, int nranks, ncclUniqueId id);
void comms_init_configured(ncclComm_t *comms, ncclConfig_t *config);
/* Init N ranks, each in a thread; each of the first `apart` is in a pid namespace of its own. */
void comms_init_threads(ncclComm_t *comms, unsigned apart);
/* Begin non-blocking inits, which are not ready yet. */
void comms_begin(ncclComm_t *comms);
/* The phase of a communicator; -1: unknown handle. */
int comms_phase(ncclComm_t comm);
void comms_expect(ncclComm_t *comms, int nranks, shim_comm_phase_t phase);
void comms_destroy(ncclComm_t *comms, int nranks);
/* Init N ranks with the fake's current faults, check the phase, destroy, and reset the faults. */
void comms_try(shim_comm_phase_t phase);
/* The asynchronous error. */
ncclResult_t comms_poll(ncclComm_t comm);
/* The same, where the question itself must succeed. */
ncclResult_t comms_poll_once(ncclComm_t comm);
void comms_poll_until_ready(ncclComm_t *comms, int nranks);
/* Complete a set-up as the first call does. */
void comms_settle(ncclComm_t handle);

#endif
