/*
 * collectives.c - NCCL's calls that move data on a stream.
 *
 * ncclAllReduce is offered to Shunt's own algorithms first; the others are
 * forwarded. In host mode there is nobody to forward to: arguments are checked,
 * and all but ncclAllReduce are refused.
 */
#include "shim/group.h"
#include "shim/host.h"
#include "shim/names.h"
#include "shim/pass.h"
#include "shim/route.h"

/* ---- All-reduce -------------------------------------------------------------------------- */

static ncclResult_t all_reduce_host(const shim_pass_t *pass, const shim_request_t *request)
{
    ncclResult_t result = shim_host_check_collective(pass->handle, pass->send, pass->recv, pass->count, pass->type,
                                                     pass->op, NULL, pass->function);
    if (result == ncclSuccess && pass->count > 0)
        result = shim_route_host(pass->comm, request);
    return shim_group_check(result);
}

/* True if the call ends here, with *result. */
static bool all_reduce_here(shim_pass_t *pass, const shim_request_t *request, ncclResult_t *result)
{
    shim_pass_open(pass);
    if (pass->comm != NULL ? pass->comm->host : shim_host_mode()) {
        *result = all_reduce_host(pass, request);
        return true;
    }
    return pass->attached && shim_route_take(pass->comm, request, pass->stream, result, &pass->reason, &pass->source);
}

SHIM_PUBLIC(ncclAllReduce);
ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    shim_request_t request = {sendbuff, recvbuff, count, datatype, op};
    shim_pass_t pass = {.function = "ncclAllReduce",
                        .collective = SHIM_ALL_REDUCE,
                        .send = sendbuff,
                        .recv = recvbuff,
                        .count = count,
                        .type = datatype,
                        .op = &op,
                        .handle = comm,
                        .stream = stream,
                        .start_ns = shim_trace_begin()};
    ncclResult_t result;
    if (all_reduce_here(&pass, &request, &result))
        return shim_pass_close(&pass, result);
    const shim_real_t *real = shim_pass_forward(&pass);
    return shim_pass_done(&pass, real == NULL
                                     ? pass.refusal
                                     : real->ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream));
}

/* ---- The others ---------------------------------------------------------------------------- */

SHIM_PUBLIC(ncclBroadcast);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    SHIM_PASS(ncclBroadcast, SHIM_BROADCAST, sendbuff, recvbuff, count, NULL, &root);
    SHIM_PASS_ON(ncclBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

SHIM_PUBLIC(ncclBcast);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    SHIM_PASS(ncclBcast, SHIM_BROADCAST, buff, buff, count, NULL, &root);
    SHIM_PASS_ON(ncclBcast, buff, count, datatype, root, comm, stream);
}

SHIM_PUBLIC(ncclReduce);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    SHIM_PASS(ncclReduce, SHIM_REDUCE, sendbuff, recvbuff, count, &op, &root);
    SHIM_PASS_ON(ncclReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

SHIM_PUBLIC(ncclReduceScatter);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    SHIM_PASS(ncclReduceScatter, SHIM_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, &op, NULL);
    SHIM_PASS_ON(ncclReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}

SHIM_PUBLIC(ncclAllGather);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream)
{
    SHIM_PASS(ncclAllGather, SHIM_ALL_GATHER, sendbuff, recvbuff, sendcount, NULL, NULL);
    SHIM_PASS_ON(ncclAllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

SHIM_PUBLIC(ncclSend);
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    SHIM_PASS(ncclSend, SHIM_SEND, sendbuff, sendbuff, count, NULL, &peer);
    SHIM_PASS_ON(ncclSend, sendbuff, count, datatype, peer, comm, stream);
}

SHIM_PUBLIC(ncclRecv);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    SHIM_PASS(ncclRecv, SHIM_RECV, recvbuff, recvbuff, count, NULL, &peer);
    SHIM_PASS_ON(ncclRecv, recvbuff, count, datatype, peer, comm, stream);
}

SHIM_PUBLIC(ncclAlltoAll);
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream)
{
    SHIM_PASS(ncclAlltoAll, SHIM_ALL_TO_ALL, sendbuff, recvbuff, count, NULL, NULL);
    SHIM_PASS_ON(ncclAlltoAll, sendbuff, recvbuff, count, datatype, comm, stream);
}

SHIM_PUBLIC(ncclGather);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    SHIM_PASS(ncclGather, SHIM_GATHER, sendbuff, recvbuff, count, NULL, &root);
    SHIM_PASS_ON(ncclGather, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

SHIM_PUBLIC(ncclScatter);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    SHIM_PASS(ncclScatter, SHIM_SCATTER, sendbuff, recvbuff, count, NULL, &root);
    SHIM_PASS_ON(ncclScatter, sendbuff, recvbuff, count, datatype, root, comm, stream);
}
