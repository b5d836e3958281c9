/*
 * collectives_config.c - NCCL's collectives with a configuration of their own (NCCL 2.31).
 *
 * Without one they are the plain calls. With one they are forwarded, since it
 * asks for what the real NCCL has, and ordered with Shunt's work as the plain
 * ones are.
 */
#include "shim/call/make.h"
#include "shim/names/names.h"

static ncclResult_t forward_ncclAllReduceConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclAllReduceConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, c->handle,
                                     c->stream, c->more);
}

SHIM_PUBLIC(ncclAllReduceConfig);
ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
    return shim_call_make(SHIM_CALL(ncclAllReduceConfig, ALG_ALL_REDUCE, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .op = op, .more = config));
}

static ncclResult_t forward_ncclBroadcastConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclBroadcastConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root,
                                     c->handle, c->stream, c->more);
}

SHIM_PUBLIC(ncclBroadcastConfig);
ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclBroadcastConfig, ALG_BROADCAST, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root, .more = config));
}

static ncclResult_t forward_ncclReduceConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclReduceConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, (int)c->alg.root,
                                  c->handle, c->stream, c->more);
}

SHIM_PUBLIC(ncclReduceConfig);
ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclReduceConfig, ALG_REDUCE, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .op = op, .alg.root = (uint32_t)root, .more = config));
}

static ncclResult_t forward_ncclReduceScatterConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclReduceScatterConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, c->handle,
                                         c->stream, c->more);
}

SHIM_PUBLIC(ncclReduceScatterConfig);
ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
    return shim_call_make(SHIM_CALL(ncclReduceScatterConfig, ALG_REDUCE_SCATTER, .alg.input = sendbuff,
                                    .alg.output = recvbuff, .alg.count = recvcount, .op = op, .more = config));
}

static ncclResult_t forward_ncclAllGatherConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclAllGatherConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->handle, c->stream,
                                     c->more);
}

SHIM_PUBLIC(ncclAllGatherConfig);
ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
    return shim_call_make(SHIM_CALL(ncclAllGatherConfig, ALG_ALL_GATHER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = sendcount, .more = config));
}

static ncclResult_t forward_ncclAlltoAllConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclAlltoAllConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->handle, c->stream,
                                    c->more);
}

SHIM_PUBLIC(ncclAlltoAllConfig);
ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
    return shim_call_make(SHIM_CALL(ncclAlltoAllConfig, ALG_ALL_TO_ALL, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .more = config));
}

static ncclResult_t forward_ncclGatherConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclGatherConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root,
                                  c->handle, c->stream, c->more);
}

SHIM_PUBLIC(ncclGatherConfig);
ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclGatherConfig, ALG_GATHER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root, .more = config));
}

static ncclResult_t forward_ncclScatterConfig(const shim_real_t *real, const shim_call_t *c)
{
    return real->ncclScatterConfig(c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root,
                                   c->handle, c->stream, c->more);
}

SHIM_PUBLIC(ncclScatterConfig);
ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config)
{
    if (config == NULL)
        return ncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
    return shim_call_make(SHIM_CALL(ncclScatterConfig, ALG_SCATTER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root, .more = config));
}
