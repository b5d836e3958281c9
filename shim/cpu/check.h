/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - whether a call is valid. Refusals set the text of ncclGetLastError. For this folder only. */
#ifndef SHUNT_SHIM_CPU_CHECK_H
#define SHUNT_SHIM_CPU_CHECK_H

#include "shim/call/call.h"

/* Returns ncclInvalidArgument. */
ncclResult_t shim_cpu_invalid(const char *function, const char *text);
/* The state, with a reference; NULL: an invalid handle, and the call returns ncclInvalidArgument. */
shim_comm_t *shim_cpu_acquire(ncclComm_t handle, const char *function);
/* The stored error, which all calls return except those that end the communicator. */
ncclResult_t shim_cpu_check_ready(shim_comm_t *comm, const char *function);
/* Both checks, for calls without buffers. */
ncclResult_t shim_cpu_check_comm(ncclComm_t comm, const char *function);
/* NCCL's checks in NCCL's order, then a check for NULL buffers, which the real NCCL leaves to the GPU. The caller
 * handles empty calls. */
ncclResult_t shim_cpu_check_call(const shim_call_t *call);

#endif
