/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - who answers the program beside Shunt: the real NCCL, or on the host
 * device what stands in for it.
 */
#ifndef SHUNT_SHIM_NCCL_H
#define SHUNT_SHIM_NCCL_H

#include "shim/comm/comm.h"
#include "shim/real/real.h"

/* NULL: nobody; the last error says so, and `function` returns ncclSystemError. */
const shim_real_t *shim_nccl(const char *function);
/* Gives what it returned; a text that ncclGetLastError has is its own then. */
ncclResult_t shim_nccl_answer(ncclResult_t result);
/* Shunt's part in a communicator of the real NCCL, with a reference; NULL if it has none. */
shim_comm_t *shim_nccl_comm(ncclComm_t handle);

#endif
