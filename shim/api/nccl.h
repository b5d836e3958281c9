/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - the table of functions behind Shunt: the real NCCL's, or on the host device its substitute.
 */
#ifndef SHUNT_SHIM_NCCL_H
#define SHUNT_SHIM_NCCL_H

#include "shim/comm/comm.h"
#include "shim/real/real.h"

/* NULL: there is none; the last error is set, and `function` must return ncclSystemError. */
const shim_real_t *shim_nccl(const char *function);
/* Passes on the result of the real NCCL; after an error ncclGetLastError returns its text. */
ncclResult_t shim_nccl_answer(ncclResult_t result);
/* Shunt's part in a communicator of the real NCCL, with a reference; NULL if it has none. */
shim_comm_t *shim_nccl_comm(ncclComm_t handle);

#endif
