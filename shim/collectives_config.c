/*
 * collectives_config.c - NCCL's calls that move data on a stream, with a configuration of their own (NCCL 2.31).
 *
 * Without one they are the plain calls. With one they are forwarded, since it
 * asks for what the real NCCL has, and ordered with Shunt's work as the plain
 * ones are.
 */
#include "shim/names.h"
#include "shim/pass.h"

SHIM_PUBLIC(ncclAllReduceConfig);
ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
    SHIM_PASS(ncclAllReduceConfig, SHIM_ALL_REDUCE, sendbuff, recvbuff, count, &op, NULL);
    SHIM_PASS_ON(ncclAllReduceConfig, sendbuff, recvbuff, count, datatype, op, comm, stream, config);
}

SHIM_PUBLIC(ncclBroadcastConfig);
ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
    SHIM_PASS(ncclBroadcastConfig, SHIM_BROADCAST, sendbuff, recvbuff, count, NULL, &root);
    SHIM_PASS_ON(ncclBroadcastConfig, sendbuff, recvbuff, count, datatype, root, comm, stream, config);
}

SHIM_PUBLIC(ncclReduceConfig);
ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
    SHIM_PASS(ncclReduceConfig, SHIM_REDUCE, sendbuff, recvbuff, count, &op, &root);
    SHIM_PASS_ON(ncclReduceConfig, sendbuff, recvbuff, count, datatype, op, root, comm, stream, config);
}

SHIM_PUBLIC(ncclReduceScatterConfig);
ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
    SHIM_PASS(ncclReduceScatterConfig, SHIM_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, &op, NULL);
    SHIM_PASS_ON(ncclReduceScatterConfig, sendbuff, recvbuff, recvcount, datatype, op, comm, stream, config);
}

SHIM_PUBLIC(ncclAllGatherConfig);
ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
    SHIM_PASS(ncclAllGatherConfig, SHIM_ALL_GATHER, sendbuff, recvbuff, sendcount, NULL, NULL);
    SHIM_PASS_ON(ncclAllGatherConfig, sendbuff, recvbuff, sendcount, datatype, comm, stream, config);
}

SHIM_PUBLIC(ncclAlltoAllConfig);
ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
    SHIM_PASS(ncclAlltoAllConfig, SHIM_ALL_TO_ALL, sendbuff, recvbuff, count, NULL, NULL);
    SHIM_PASS_ON(ncclAlltoAllConfig, sendbuff, recvbuff, count, datatype, comm, stream, config);
}

SHIM_PUBLIC(ncclGatherConfig);
ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
    SHIM_PASS(ncclGatherConfig, SHIM_GATHER, sendbuff, recvbuff, count, NULL, &root);
    SHIM_PASS_ON(ncclGatherConfig, sendbuff, recvbuff, count, datatype, root, comm, stream, config);
}

SHIM_PUBLIC(ncclScatterConfig);
ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
    SHIM_PASS(ncclScatterConfig, SHIM_SCATTER, sendbuff, recvbuff, count, NULL, &root);
    SHIM_PASS_ON(ncclScatterConfig, sendbuff, recvbuff, count, datatype, root, comm, stream, config);
}
