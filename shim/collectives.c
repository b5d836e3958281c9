/*
 * collectives.c - NCCL's calls that move data on a stream.
 *
 * ncclAllReduce is offered to Shunt's own algorithms first; the others are
 * forwarded. On an attached communicator forwarded calls are ordered with ours
 * over streams, and noted in the group, so each passes through here. In host
 * mode there is nobody to forward to: arguments are checked, and all but
 * ncclAllReduce are refused.
 */
#include "shim/attach.h"
#include "shim/group.h"
#include "shim/host.h"
#include "shim/names.h"
#include "shim/real.h"
#include "shim/route.h"
#include "shim/statistics.h"
#include "shim/trace.h"

/* A call on its way. */
typedef struct pass {
    const char *function;
    shim_collective_t collective;
    const void *send, *recv;
    size_t count;
    ncclDataType_t type;
    const ncclRedOp_t *op; /* NULL: the call has none */
    const int *root;       /* likewise; a peer is checked as a root is */
    ncclComm_t handle;
    void *stream;
    uint64_t start_ns; /* 0: there is no trace */

    shim_comm_t *comm;  /* retained; NULL if Shunt does not know the handle */
    bool attached;      /* on a GPU */
    bool ordered;       /* the stream waits for the communicator's last call */
    int reason;         /* for forwarding; a sel_reason_t or shim_reason_t */
    const char *source; /* of the rule that was asked; NULL: none */
    ncclResult_t refusal;
    shim_capture_t capture;
} pass_t;

static int is_captured(const pass_t *pass, ncclResult_t result)
{
    shim_capture_t capture;
    if (shim_host_mode())
        return 0;
    if (result != ncclSuccess && result != ncclInProgress)
        return -1;
    return shim_capture_query(pass->stream, &capture) == 0 ? capture.id != 0 : -1;
}

static void trace_pass(const pass_t *pass, ncclResult_t result)
{
    bool known = pass->comm != NULL;
    shim_trace_call_t call = {.start_ns = pass->start_ns,
                              .function = pass->function,
                              .comm = pass->handle,
                              .stream = pass->stream,
                              .decision = {.size = sizeof(call.decision)},
                              .count = pass->count,
                              .type = (int32_t)pass->type,
                              .op = pass->op != NULL ? (int32_t)*pass->op : -1,
                              .rank = known ? (int32_t)pass->comm->rank : -1,
                              .nranks = known ? (int32_t)pass->comm->nranks : -1,
                              .result = (int32_t)result,
                              .captured = is_captured(pass, result)};
    shim_statistics_fresh(&call.decision);
    shim_trace_end(&call);
}

static ncclResult_t close_pass(pass_t *pass, ncclResult_t result)
{
    if (pass->start_ns != 0)
        trace_pass(pass, result);
    if (pass->comm != NULL)
        shim_comm_release(pass->comm);
    return result;
}

static void open_pass(pass_t *pass)
{
    pass->reason = SEL_FORWARD_UNATTACHED;
    pass->comm = shim_comm_acquire(pass->handle);
    if (pass->comm == NULL)
        return;
    if (atomic_load_explicit(&pass->comm->phase, memory_order_acquire) == SHIM_COMM_JOINING)
        shim_attach_settle(pass->comm);
    pass->attached =
        !pass->comm->host && atomic_load_explicit(&pass->comm->phase, memory_order_acquire) == SHIM_COMM_ATTACHED;
}

/* What Shunt itself found broken, the real NCCL does not know of; forwarding would wait for ever. */
static bool is_broken(const pass_t *pass, ncclResult_t *result)
{
    if (pass->comm == NULL || pass->comm->host)
        return false;
    int error = atomic_load_explicit(&pass->comm->async_error, memory_order_relaxed);
    if (error == ncclSuccess)
        return false;
    shim_set_last_error("%s: the communicator has failed before", pass->function);
    *result = shim_group_check((ncclResult_t)error);
    return true;
}

/* ---- Forwarding ------------------------------------------------------------------------ */

/* The communicator's device is current. */
static ncclResult_t order_before(pass_t *pass)
{
    if (shim_capture_query(pass->stream, &pass->capture) != 0)
        return ncclSuccess; /* the real NCCL will meet it too, and words it */
    if (shim_group_depth() > 0)
        return shim_group_check(shim_group_use(pass->comm, pass->stream, &pass->capture, true));
    pthread_mutex_lock(&pass->comm->lock);
    pass->ordered = shim_order_enter(pass->comm, pass->stream, &pass->capture) == 0;
    pthread_mutex_unlock(&pass->comm->lock);
    return ncclSuccess;
}

static void order_after(pass_t *pass, bool pending)
{
    int previous;
    if (shim_device_enter(pass->comm->device, &previous) != 0)
        return;
    pthread_mutex_lock(&pass->comm->lock);
    shim_order_leave(pass->comm, pass->stream, &pass->capture, pending);
    pthread_mutex_unlock(&pass->comm->lock);
    shim_device_leave(pass->comm->device, previous);
}

/* The real NCCL to forward to; NULL: the call is refused, and pass->refusal is the answer. No lock is
 * held while it is forwarded. */
static const shim_real_t *forward_to(pass_t *pass)
{
    const shim_real_t *real = shim_real();
    if (real == NULL) {
        shim_set_last_error("%s: %s", pass->function, shim_real_failure());
        pass->refusal = ncclInvalidUsage;
        return NULL;
    }
    if (is_broken(pass, &pass->refusal))
        return NULL;
    shim_count_forwarded(pass->collective, pass->count * alg_type_bytes((alg_type_t)pass->type), pass->reason,
                         pass->source);
    int previous;
    if (!pass->attached || shim_device_enter(pass->comm->device, &previous) != 0)
        return real;
    pass->refusal = order_before(pass);
    shim_device_leave(pass->comm->device, previous);
    return pass->refusal == ncclSuccess ? real : NULL;
}

static ncclResult_t forwarded(pass_t *pass, ncclResult_t result)
{
    if (pass->ordered && (result == ncclSuccess || result == ncclInProgress))
        order_after(pass, result == ncclInProgress);
    if (result != ncclSuccess && result != ncclInProgress && result != pass->refusal)
        shim_set_last_error("%s", ""); /* the real one's text is the last now */
    return close_pass(pass, result);
}

/* A call that Shunt has no algorithm for. */
static const shim_real_t *begin(pass_t *pass)
{
    if (!shim_host_mode()) {
        open_pass(pass);
        pass->reason = SEL_FORWARD_COLLECTIVE;
        return forward_to(pass);
    }
    ncclResult_t result = shim_host_check_collective(pass->handle, pass->send, pass->recv, pass->count, pass->type,
                                                     pass->op, pass->root, pass->function);
    if (result == ncclSuccess) {
        shim_set_last_error("%s: the host device has no such call; it serves ncclAllReduce alone", pass->function);
        result = ncclInvalidUsage;
    }
    pass->refusal = shim_group_check(result);
    return NULL;
}

/* ---- All-reduce -------------------------------------------------------------------------- */

static ncclResult_t all_reduce_host(const pass_t *pass, const shim_request_t *request)
{
    ncclResult_t result = shim_host_check_collective(pass->handle, pass->send, pass->recv, pass->count, pass->type,
                                                     pass->op, NULL, pass->function);
    if (result == ncclSuccess && pass->count > 0)
        result = shim_route_host(pass->comm, request);
    return shim_group_check(result);
}

/* True if the call ends here, with *result. */
static bool all_reduce_here(pass_t *pass, const shim_request_t *request, ncclResult_t *result)
{
    open_pass(pass);
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
    pass_t pass = {.function = "ncclAllReduce",
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
        return close_pass(&pass, result);
    const shim_real_t *real = forward_to(&pass);
    return forwarded(&pass, real == NULL ? pass.refusal
                                         : real->ncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream));
}

/* ---- The others ---------------------------------------------------------------------------- */

#define PASS(name, which, from, to, how_many, operator, rank) \
    pass_t pass = {.function = #name,                         \
                   .collective = which,                       \
                   .send = from,                              \
                   .recv = to,                                \
                   .count = how_many,                         \
                   .type = datatype,                          \
                   .op = operator,                            \
                   .root = rank,                              \
                   .handle = comm,                            \
                   .stream = stream,                          \
                   .start_ns = shim_trace_begin()};           \
    const shim_real_t *real = begin(&pass)

#define FORWARD(name, ...) return forwarded(&pass, real == NULL ? pass.refusal : real->name(__VA_ARGS__))

SHIM_PUBLIC(ncclBroadcast);
ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    PASS(ncclBroadcast, SHIM_BROADCAST, sendbuff, recvbuff, count, NULL, &root);
    FORWARD(ncclBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

SHIM_PUBLIC(ncclBcast);
ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    PASS(ncclBcast, SHIM_BROADCAST, buff, buff, count, NULL, &root);
    FORWARD(ncclBcast, buff, count, datatype, root, comm, stream);
}

SHIM_PUBLIC(ncclReduce);
ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    PASS(ncclReduce, SHIM_REDUCE, sendbuff, recvbuff, count, &op, &root);
    FORWARD(ncclReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

SHIM_PUBLIC(ncclReduceScatter);
ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    PASS(ncclReduceScatter, SHIM_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, &op, NULL);
    FORWARD(ncclReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}

SHIM_PUBLIC(ncclAllGather);
ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream)
{
    PASS(ncclAllGather, SHIM_ALL_GATHER, sendbuff, recvbuff, sendcount, NULL, NULL);
    FORWARD(ncclAllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

SHIM_PUBLIC(ncclSend);
ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    PASS(ncclSend, SHIM_SEND, sendbuff, sendbuff, count, NULL, &peer);
    FORWARD(ncclSend, sendbuff, count, datatype, peer, comm, stream);
}

SHIM_PUBLIC(ncclRecv);
ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    PASS(ncclRecv, SHIM_RECV, recvbuff, recvbuff, count, NULL, &peer);
    FORWARD(ncclRecv, recvbuff, count, datatype, peer, comm, stream);
}

SHIM_PUBLIC(ncclAlltoAll);
ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream)
{
    PASS(ncclAlltoAll, SHIM_ALL_TO_ALL, sendbuff, recvbuff, count, NULL, NULL);
    FORWARD(ncclAlltoAll, sendbuff, recvbuff, count, datatype, comm, stream);
}

SHIM_PUBLIC(ncclGather);
ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    PASS(ncclGather, SHIM_GATHER, sendbuff, recvbuff, count, NULL, &root);
    FORWARD(ncclGather, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

SHIM_PUBLIC(ncclScatter);
ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    PASS(ncclScatter, SHIM_SCATTER, sendbuff, recvbuff, count, NULL, &root);
    FORWARD(ncclScatter, sendbuff, recvbuff, count, datatype, root, comm, stream);
}
