/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - is a call valid? On GPUs the real NCCL says so, and Shunt takes only
 * what surely is; on the host device these are its checks, in its order.
 */
#ifndef SHUNT_SHIM_CHECK_H
#define SHUNT_SHIM_CHECK_H

#include "shim/call/call.h"

/* No buffer that the collective uses on this rank is NULL. */
bool shim_call_has_buffers(const shim_call_t *call);

/* ---- The host device. What is refused has its text for ncclGetLastError. ---- */

/* ncclInvalidArgument. */
ncclResult_t shim_host_invalid(const char *function, const char *text);
/* The state of a valid handle, with a reference; else NULL, and *result says why. */
shim_comm_t *shim_host_acquire(ncclComm_t handle, const char *function, ncclResult_t *result);
/* The stored error, as every call but the end of a communicator reports it. */
ncclResult_t shim_host_check_ready(shim_comm_t *comm, const char *function);
/* Both, for calls without buffers. */
ncclResult_t shim_host_check_comm(ncclComm_t comm, const char *function);
/* NCCL's checks in NCCL's order: handle; revoked; async error; root or peer; type; operator; then buffers,
 * where the real one leaves NULL to the GPU. call->comm is that of the handle. An empty call is for the caller. */
ncclResult_t shim_host_check_call(const shim_call_t *call);

#endif
