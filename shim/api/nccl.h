/* SPDX-License-Identifier: Apache-2.0 */
/* nccl.h - the functions to forward to: the real NCCL's, or the CPU device's substitutes. */
#ifndef SHUNT_SHIM_NCCL_H
#define SHUNT_SHIM_NCCL_H

#include "shim/comm/comm.h"
#include "shim/real/real.h"

/* Never NULL (shim_real_or_none). */
const shim_real_t *shim_nccl(void);
/* See shim_real_answer. */
ncclResult_t shim_nccl_answer(ncclResult_t result);
/* Shunt's state of a communicator, with a reference; NULL: none, or CPU mode. */
shim_comm_t *shim_nccl_comm(ncclComm_t handle);

#endif
