/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - NCCL's functions that have a body in shim/. The folder is compiled with hidden visibility. The treated
 * functions of names.def are declared visible here, so their bodies need no attribute.
 */
#ifndef SHUNT_SHIM_NAMES_H
#define SHUNT_SHIM_NAMES_H

#include <nccl.h>

/* Functions that the oldest supported nccl.h lacks, with their pncclX. */
#define SHIM_DECLARE(name, ...)           \
    ncclResult_t nccl##name(__VA_ARGS__); \
    ncclResult_t pnccl##name(__VA_ARGS__)
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 7)
SHIM_DECLARE(CommRevoke, ncclComm_t comm, int revokeFlags);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t; /* only passed on, like the configurations below */
SHIM_DECLARE(PutSignal, const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
             size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
SHIM_DECLARE(Signal, int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
SHIM_DECLARE(WaitSignal, int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 7)
SHIM_DECLARE(CommSuspend, ncclComm_t comm, int flags);
SHIM_DECLARE(CommResume, ncclComm_t comm);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 0)
typedef struct ncclCollConfig ncclCollConfig_t;
SHIM_DECLARE(AllReduceConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
SHIM_DECLARE(BroadcastConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
SHIM_DECLARE(ReduceConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
             int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
SHIM_DECLARE(ReduceScatterConfig, const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
SHIM_DECLARE(AllGatherConfig, const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
SHIM_DECLARE(AlltoAllConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
SHIM_DECLARE(GatherConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
SHIM_DECLARE(ScatterConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 32, 0)
typedef struct ncclEncryptionConfig ncclEncryptionConfig_t;
SHIM_DECLARE(SetEncryption, const ncclEncryptionConfig_t *config);
#endif
#undef SHIM_DECLARE

#define SHIM_TREATED(name) extern __attribute__((visibility("default"))) __typeof__(name) name, p##name;
#include "shim/names/names.def"

/* Once per treated name, in the file of its body: makes pncclX an alias of ncclX. */
#define SHIM_PUBLIC(name) extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))

#endif
