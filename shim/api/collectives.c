/* SPDX-License-Identifier: Apache-2.0 */
/* collectives.c - NCCL's collectives, sends and receives: arguments, and how to forward them (call/forward.c). */
#include "shim/call/call.h"
#include "shim/names/names.h"

SHIM_HAND_ON(ncclAllReduce, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, c->handle, c->stream)
SHIM_PUBLIC(ncclAllReduce);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclAllReduce, ALG_ALL_REDUCE, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .op = op));
}

SHIM_HAND_ON(ncclBroadcast, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root, c->handle,
             c->stream)
SHIM_PUBLIC(ncclBroadcast);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclBroadcast, ALG_BROADCAST, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root));
}

SHIM_HAND_ON(ncclBcast, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root, c->handle, c->stream)
SHIM_PUBLIC(ncclBcast);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclBcast, ALG_BROADCAST, .alg.input = buff, .alg.output = buff, .alg.count = count,
                                    .alg.root = (uint32_t)root));
}

SHIM_HAND_ON(ncclReduce, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, (int)c->alg.root,
             c->handle, c->stream)
SHIM_PUBLIC(ncclReduce);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclReduce, ALG_REDUCE, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .op = op, .alg.root = (uint32_t)root));
}

SHIM_HAND_ON(ncclReduceScatter, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->op, c->handle,
             c->stream)
SHIM_PUBLIC(ncclReduceScatter);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclReduceScatter, ALG_REDUCE_SCATTER, .alg.input = sendbuff,
                                    .alg.output = recvbuff, .alg.count = recvcount, .op = op));
}

SHIM_HAND_ON(ncclAllGather, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->handle, c->stream)
SHIM_PUBLIC(ncclAllGather);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclAllGather, ALG_ALL_GATHER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = sendcount));
}

SHIM_HAND_ON(ncclAlltoAll, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), c->handle, c->stream)
SHIM_PUBLIC(ncclAlltoAll);
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream)
{
    return shim_call_make(
        SHIM_CALL(ncclAlltoAll, ALG_ALL_TO_ALL, .alg.input = sendbuff, .alg.output = recvbuff, .alg.count = count));
}

SHIM_HAND_ON(ncclGather, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root, c->handle,
             c->stream)
SHIM_PUBLIC(ncclGather);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclGather, ALG_GATHER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root));
}

SHIM_HAND_ON(ncclScatter, c->alg.input, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root, c->handle,
             c->stream)
SHIM_PUBLIC(ncclScatter);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    return shim_call_make(SHIM_CALL(ncclScatter, ALG_SCATTER, .alg.input = sendbuff, .alg.output = recvbuff,
                                    .alg.count = count, .alg.root = (uint32_t)root));
}

SHIM_HAND_ON(ncclSend, c->alg.input, c->alg.count, shim_call_type(c), (int)c->alg.root, c->handle, c->stream)
SHIM_PUBLIC(ncclSend);
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return shim_call_make(
        SHIM_CALL(ncclSend, SHIM_SEND, .alg.input = sendbuff, .alg.count = count, .alg.root = (uint32_t)peer));
}

SHIM_HAND_ON(ncclRecv, c->alg.output, c->alg.count, shim_call_type(c), (int)c->alg.root, c->handle, c->stream)
SHIM_PUBLIC(ncclRecv);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return shim_call_make(
        SHIM_CALL(ncclRecv, SHIM_RECV, .alg.output = recvbuff, .alg.count = count, .alg.root = (uint32_t)peer));
}
