/*
 * signals.c - NCCL's one-sided calls (NCCL 2.29): they put work on a stream of a communicator, so they are ordered with
 * Shunt's there as every forwarded call is. A put or a signal counts as a send, a wait as a receive.
 */
#include "shim/names.h"
#include "shim/pass.h"

SHIM_PUBLIC(ncclPutSignal);
ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream)
{
    SHIM_PASS(ncclPutSignal, SHIM_SEND, localbuff, localbuff, count, NULL, &peer);
    SHIM_PASS_ON(ncclPutSignal, localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, comm,
                 stream);
}

SHIM_PUBLIC(ncclSignal);
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
    const ncclDataType_t datatype = ncclInt8;
    SHIM_PASS(ncclSignal, SHIM_SEND, NULL, NULL, 0, NULL, &peer);
    SHIM_PASS_ON(ncclSignal, peer, sigIdx, ctx, flags, comm, stream);
}

SHIM_PUBLIC(ncclWaitSignal);
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream)
{
    const ncclDataType_t datatype = ncclInt8;
    SHIM_PASS(ncclWaitSignal, SHIM_RECV, NULL, NULL, 0, NULL, NULL);
    SHIM_PASS_ON(ncclWaitSignal, nDesc, signalDescs, comm, stream);
}
