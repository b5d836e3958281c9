/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - communicators of the CPU device. For this folder only. */
#ifndef SHUNT_SHIM_CPU_H
#define SHUNT_SHIM_CPU_H

#include <nccl.h>

#include "shim/call/call.h"
#include "shim/setup/attach.h"

extern const shim_device_ops_t shim_device_cpu;
extern const shim_setup_ops_t shim_setup_cpu;

/* Runs in this thread. A peer's death or the time limit fails the communicator with ncclRemoteError. */
ncclResult_t shim_cpu_run(const shim_call_t *call);
ncclResult_t shim_cpu_group_end(ncclSimInfo_t *info);
/* Like shim_attach_publish; also makes the handle. */
shim_setup_t *shim_cpu_publish(const shim_setup_request_t *request);

/* Bodies of NCCL's functions; the caller reports their errors to the group. */
ncclResult_t shim_cpu_get_unique_id(ncclUniqueId *id);
ncclResult_t shim_cpu_init_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                const ncclConfig_t *config);
ncclResult_t shim_cpu_init_all(ncclComm_t *comms, int count, const int *devices);
ncclResult_t shim_cpu_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, const ncclConfig_t *config);
ncclResult_t shim_cpu_shrink(ncclComm_t comm, const int *exclude, int exclude_count, ncclComm_t *newcomm,
                             const ncclConfig_t *config, int flags);
ncclResult_t shim_cpu_finalize(ncclComm_t comm);
ncclResult_t shim_cpu_destroy(ncclComm_t comm);
ncclResult_t shim_cpu_abort(ncclComm_t comm);
ncclResult_t shim_cpu_revoke(ncclComm_t comm, int flags);
ncclResult_t shim_cpu_async_error(ncclComm_t comm, ncclResult_t *error);

#endif
