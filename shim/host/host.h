/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - makes and ends communicators of the host device. For this folder only. */
#ifndef SHUNT_SHIM_HOST_H
#define SHUNT_SHIM_HOST_H

#include <nccl.h>

/* Bodies of NCCL's functions; the caller reports their errors to the group. */
ncclResult_t shim_host_get_unique_id(ncclUniqueId *id);
ncclResult_t shim_host_init_rank(ncclComm_t *newcomm, int nranks, const ncclUniqueId *ids, int id_count, int rank,
                                 const ncclConfig_t *config);
ncclResult_t shim_host_init_all(ncclComm_t *comms, int count, const int *devices);
ncclResult_t shim_host_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, const ncclConfig_t *config);
ncclResult_t shim_host_shrink(ncclComm_t comm, const int *exclude, int exclude_count, ncclComm_t *newcomm,
                              const ncclConfig_t *config, int flags);
ncclResult_t shim_host_finalize(ncclComm_t comm);
ncclResult_t shim_host_destroy(ncclComm_t comm);
ncclResult_t shim_host_abort(ncclComm_t comm);
ncclResult_t shim_host_revoke(ncclComm_t comm, int flags);
ncclResult_t shim_host_async_error(ncclComm_t comm, ncclResult_t *error);

#endif
