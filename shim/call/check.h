/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - whether a call is valid. On GPUs Shunt takes only calls that are certainly valid, and the real NCCL judges
 * the rest.
 */
#ifndef SHUNT_SHIM_CHECK_H
#define SHUNT_SHIM_CHECK_H

#include "shim/call/call.h"

/* Whether all buffers that this rank uses are there. */
bool shim_call_has_buffers(const shim_call_t *call);

/* ---- The host device. Refusals set ncclGetLastError's text. ---- */

/* ncclInvalidArgument. */
ncclResult_t shim_host_invalid(const char *function, const char *text);
/* A valid handle's state, with a reference; else NULL, and *result says why. */
shim_comm_t *shim_host_acquire(ncclComm_t handle, const char *function, ncclResult_t *result);
/* The stored error, which every call but the communicator's end reports. */
ncclResult_t shim_host_check_ready(shim_comm_t *comm, const char *function);
/* Both of these, for calls without buffers. */
ncclResult_t shim_host_check_comm(ncclComm_t comm, const char *function);
/* NCCL's checks in its order: handle; revoked; async error; root or peer; type; operator; then NULL buffers, which the
 * real NCCL leaves to the GPU. Sets call->comm. The caller handles empty calls. */
ncclResult_t shim_host_check_call(const shim_call_t *call);

#endif
