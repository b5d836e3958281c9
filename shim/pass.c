/*
 * pass.c - see pass.h.
 *
 * On an attached communicator forwarded calls are ordered with ours over
 * streams, and noted in the group.
 */
#include "shim/pass.h"

#include "shim/attach.h"
#include "shim/group.h"
#include "shim/host.h"
#include "shim/route.h"

static int is_captured(const shim_pass_t *pass, ncclResult_t result)
{
    shim_capture_t capture;
    if (shim_host_mode())
        return 0;
    if (result != ncclSuccess && result != ncclInProgress)
        return -1;
    return shim_capture_query(pass->stream, &capture) == 0 ? capture.id != 0 : -1;
}

static void trace_pass(const shim_pass_t *pass, ncclResult_t result)
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

ncclResult_t shim_pass_close(shim_pass_t *pass, ncclResult_t result)
{
    if (pass->start_ns != 0)
        trace_pass(pass, result);
    if (pass->comm != NULL)
        shim_comm_release(pass->comm);
    return result;
}

void shim_pass_open(shim_pass_t *pass)
{
    pass->reason = SEL_FORWARD_UNATTACHED;
    pass->comm = shim_comm_acquire(pass->handle);
    if (pass->comm == NULL)
        return;
    if (atomic_load_explicit(&pass->comm->phase, memory_order_acquire) == SHIM_COMM_JOINING)
        shim_attach_settle(pass->comm);
    pass->attached = !pass->comm->host &&
                     atomic_load_explicit(&pass->comm->phase, memory_order_acquire) == SHIM_COMM_ATTACHED &&
                     !atomic_load_explicit(&pass->comm->suspended, memory_order_relaxed);
}

/* What Shunt itself found broken, the real NCCL does not know of; forwarding would wait for ever. */
static bool is_broken(const shim_pass_t *pass, ncclResult_t *result)
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
static ncclResult_t order_before(shim_pass_t *pass)
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

static void order_after(shim_pass_t *pass, bool pending)
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
const shim_real_t *shim_pass_forward(shim_pass_t *pass)
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

ncclResult_t shim_pass_done(shim_pass_t *pass, ncclResult_t result)
{
    if (pass->ordered && (result == ncclSuccess || result == ncclInProgress))
        order_after(pass, result == ncclInProgress);
    if (result != ncclSuccess && result != ncclInProgress && result != pass->refusal)
        shim_set_last_error("%s", ""); /* the real one's text is the last now */
    return shim_pass_close(pass, result);
}

/* A call that Shunt has no algorithm for. */
const shim_real_t *shim_pass_begin(shim_pass_t *pass)
{
    if (!shim_host_mode()) {
        shim_pass_open(pass);
        pass->reason = SEL_FORWARD_COLLECTIVE;
        return shim_pass_forward(pass);
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
