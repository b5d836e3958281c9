/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - is a call valid? On GPUs Shunt takes only calls that are certainly valid, and the real NCCL judges the
 * rest. The host device makes the same checks in the same order.
 */
#ifndef SHUNT_SHIM_CHECK_H
#define SHUNT_SHIM_CHECK_H

#include "shim/call/call.h"

/* No buffer that the collective uses on this rank is NULL. */
bool shim_call_has_buffers(const shim_call_t *call);

/* ---- The host device. A refusal sets the text of ncclGetLastError. ---- */

/* ncclInvalidArgument. */
ncclResult_t shim_host_invalid(const char *function, const char *text);
/* The state of a valid handle, with a reference; else NULL, and *result says why. */
shim_comm_t *shim_host_acquire(ncclComm_t handle, const char *function, ncclResult_t *result);
/* The stored error, as every call but the end of a communicator reports it. */
ncclResult_t shim_host_check_ready(shim_comm_t *comm, const char *function);
/* The two above, for calls without buffers. */
ncclResult_t shim_host_check_comm(ncclComm_t comm, const char *function);
/* NCCL's checks in NCCL's order: handle; revoked; async error; root or peer; type; operator; then buffers (the real
 * NCCL leaves NULL to the GPU). Sets call->comm from the handle. The caller handles empty calls. */
ncclResult_t shim_host_check_call(const shim_call_t *call);

#endif
