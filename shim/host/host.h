/*
 * host.h - host mode: no GPU and no real NCCL. Handles, ids, checks and errors
 * are Shunt's own; the algorithms are the same ones, compiled for the host.
 */
#ifndef SHUNT_SHIM_HOST_H
#define SHUNT_SHIM_HOST_H

#include "shim/call/call.h"

/* Decided once: SHUNT_DEVICE, and with `auto` whether a CUDA driver answers. */
bool shim_host_mode(void);

/* NCCL's checks in NCCL's order: handle; revoked; async error; root or peer; type; operator; then buffers,
 * where the real one leaves NULL to the GPU. Records the text for ncclGetLastError. call->comm is that of the
 * handle. An empty call is for the caller. */
ncclResult_t shim_host_check_call(const shim_call_t *call);
/* The handle's part of it, for calls without buffers. */
ncclResult_t shim_host_check_comm(ncclComm_t comm, const char *function);

/* Run one call of an attached communicator to its end in this thread, watched: the death of a peer, an
 * abort or the time limit end it, set the communicator's async error and give ncclRemoteError. */
ncclResult_t shim_host_run(const shim_call_t *call);

/* What a kernel's status, other than OK, says of its peers. */
const char *shim_host_status_text(uint32_t status);
/* The communicator is broken: every later call returns `result`. The first failure wins. */
void shim_host_fail(shim_comm_t *comm, ncclResult_t result, const char *text);
/* What ncclGetLastError says from now on. */
void shim_set_last_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *shim_last_error(void);

/* Bodies of the entry points in host mode; lifecycle.c calls them. */
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

/* Start the thread that watches peers, once a process. From attach.c, for the first communicator. */
void shim_host_watch(void);

#endif
