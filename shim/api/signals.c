/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c - NCCL's one-sided calls (NCCL 2.29), forwarded in order with Shunt's work on their streams. Puts and
 * signals count as sends, waits as receives. */
#include "shim/call/call.h"
#include "shim/names/names.h"

typedef struct target {
    ncclWindow_t window;
    size_t offset;
    int signal, context;
    unsigned flags;
} target_t;

typedef struct awaited {
    int count;
    ncclWaitSignalDesc_t *signals;
} awaited_t;

static ncclResult_t forward_ncclPutSignal(const shim_real_t *real, const shim_call_t *c)
{
    const target_t *to = c->more;
    return real->ncclPutSignal(c->alg.input, c->alg.count, shim_call_type(c), (int)c->alg.root, to->window, to->offset,
                               to->signal, to->context, to->flags, c->handle, c->stream);
}

SHIM_PUBLIC(ncclPutSignal);
ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream)
{
    const target_t target = {peerWin, peerWinOffset, sigIdx, ctx, flags};
    return shim_call_make(SHIM_CALL(ncclPutSignal, SHIM_SEND, .alg.input = localbuff, .alg.count = count,
                                    .alg.root = (uint32_t)peer, .more = &target));
}

static ncclResult_t forward_ncclSignal(const shim_real_t *real, const shim_call_t *c)
{
    const target_t *to = c->more;
    return real->ncclSignal((int)c->alg.root, to->signal, to->context, to->flags, c->handle, c->stream);
}

SHIM_PUBLIC(ncclSignal);
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
    const ncclDataType_t datatype = ncclInt8;
    const target_t target = {.signal = sigIdx, .context = ctx, .flags = flags};
    return shim_call_make(SHIM_CALL(ncclSignal, SHIM_SEND, .alg.root = (uint32_t)peer, .more = &target));
}

static ncclResult_t forward_ncclWaitSignal(const shim_real_t *real, const shim_call_t *c)
{
    const awaited_t *awaited = c->more;
    return real->ncclWaitSignal(awaited->count, awaited->signals, c->handle, c->stream);
}

SHIM_PUBLIC(ncclWaitSignal);
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream)
{
    const ncclDataType_t datatype = ncclInt8;
    const awaited_t awaited = {nDesc, signalDescs};
    return shim_call_make(SHIM_CALL(ncclWaitSignal, SHIM_RECV, .more = &awaited));
}
