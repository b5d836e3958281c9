/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/call/make.h"

#include "shim/account/trace.h"
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/base/log.h"
#include "shim/call/device.h"
#include "shim/call/group.h"
#include "shim/call/group_state.h"
#include "shim/call/note.h"
#include "shim/call/route.h"
#include "shim/comm/order.h"
#include "shim/comm/stop.h"
#include "shim/setup/attach.h"

shim_place_t shim_call_place(const shim_call_t *call)
{
    const bool known = call->comm != NULL && call->attached && call->comm->plan != NULL;
    return known ? shim_place(&call->comm->plan->topology, call->alg.type, call->capture.id != 0) : 0;
}

static int is_captured(const shim_call_t *call, ncclResult_t result)
{
    shim_capture_t capture;
    if (shim_is_error(result))
        return -1;
    return shim_capture_query(call->stream, &capture) == 0 ? capture.id != 0 : -1;
}

static void trace(const shim_call_ops_t *ops, const shim_call_t *call, ncclResult_t result)
{
    const bool known = call->comm != NULL;
    const bool reduces =
        call->collective < ALG_COLLECTIVE_COUNT && alg_collective_reduces((alg_collective_t)call->collective);
    shim_trace_call_t event = {.start_ns = call->start_ns,
                               .function = call->function,
                               .comm = call->handle,
                               .stream = call->stream,
                               .decision = {.size = sizeof(event.decision)},
                               .count = call->alg.count,
                               .type = (int32_t)call->alg.type,
                               .op = reduces ? (int32_t)call->op : -1,
                               .rank = known ? (int32_t)call->comm->rank : -1,
                               .nranks = known ? (int32_t)call->comm->nranks : -1,
                               .result = (int32_t)result,
                               .captured = ops->captured(call, result)};
    shim_statistics_fresh(&event.decision);
    shim_trace_end(&event);
}

/* The real NCCL does not know of failures that Shunt found, so a forwarded call would hang. */
static bool is_broken(const shim_call_t *call, ncclResult_t *result)
{
    if (call->comm == NULL)
        return false;
    int error = atomic_load_explicit(&call->comm->async_error, memory_order_relaxed);
    if (error != ncclSuccess) {
        shim_set_last_error("%s: the communicator has already failed; abort it", call->function);
    } else if (atomic_load(&call->comm->aborted)) {
        shim_set_last_error("%s: the communicator was aborted during the call", call->function);
        error = ncclInvalidUsage;
    } else {
        return false;
    }
    *result = shim_group_check((ncclResult_t)error);
    return true;
}

/* The communicator's device must be current. */
static ncclResult_t order_before(shim_call_t *call)
{
    if (shim_capture_query(call->stream, &call->capture) != 0)
        return ncclSuccess; /* the real NCCL gets the same error and reports it */
    if (shim_group_depth() > 0)
        return shim_group_check(shim_group_use(call->comm, call->stream, &call->capture, SHIM_USE_FORWARDED));
    pthread_mutex_lock(&call->comm->lock);
    call->ordered = shim_order_enter(call->comm, call->stream, &call->capture) == 0;
    pthread_mutex_unlock(&call->comm->lock);
    return ncclSuccess;
}

static void order_after(const shim_call_t *call, bool pending)
{
    net_visit_t visit;
    if (net_device_enter(&visit, call->comm->device) != 0)
        return;
    pthread_mutex_lock(&call->comm->lock);
    shim_order_leave(call->comm, call->stream, &call->capture, pending);
    pthread_mutex_unlock(&call->comm->lock);
    net_device_leave(&visit);
}

/* Holds no lock. The real NCCL connects at the first call that it gets, which may be a captured one, since Shunt took
 * the earlier ones. In a capture it reaches a GPU of the same process only in relaxed mode (else error 900). */
static ncclResult_t hand_on(const shim_real_t *real, const shim_call_t *call)
{
    const bool captured = call->attached && call->capture.id != 0;
    const int mode = captured ? net_capture_relax() : 0;
    ncclResult_t result = call->forward(real, call);
    if (captured)
        net_capture_restore(mode);
    if (call->ordered && !shim_is_error(result))
        order_after(call, result == ncclInProgress);
    return shim_real_answer(result);
}

/* The real NCCL drops an empty call after its checks. So Shunt neither lets the call's stream wait nor adds the call to
 * the group, where it would move other calls to a branch. */
static bool is_empty(const shim_call_t *call)
{
    return call->collective < ALG_COLLECTIVE_COUNT && call->more == NULL && call->alg.count == 0;
}

static void warn_of_bits(const shim_call_t *call)
{
    static atomic_bool told;
    shunt_decision_t decision = {.size = sizeof(decision)};
    const bool reduces =
        call->collective < ALG_COLLECTIVE_COUNT && alg_collective_reduces((alg_collective_t)call->collective);
    if (!call->attached || call->comm->plan == NULL || !call->comm->plan->settings.deterministic || !reduces ||
        is_empty(call) || call->reason == SEL_FORWARD_ARGUMENTS || !shim_statistics_last(&decision) ||
        atomic_exchange(&told, true))
        return;
    shim_warn("SHUNT_DETERMINISTIC=1: %s is %s; NCCL adds in its own order: set NCCL_ALGO and NCCL_PROTO for "
              "reproducible results",
              call->function, decision.reason);
}

static ncclResult_t forward(shim_call_t *call)
{
    ncclResult_t result = ncclSuccess;
    const shim_real_t *real = shim_real_need(call->function);
    if (real == NULL)
        return ncclSystemError;
    if (is_broken(call, &result))
        return result;
    shim_count_forwarded(call->collective, shim_call_place(call), shim_call_bytes(call), call->reason, call->source);
    warn_of_bits(call);
    net_visit_t visit;
    if (call->comm != NULL && !call->attached && !is_empty(call) && shim_group_depth() > 0)
        result = shim_group_check(shim_group_forwards(call->comm));
    if (call->attached && !is_empty(call) && net_device_enter(&visit, call->comm->device) == 0) {
        result = order_before(call);
        net_device_leave(&visit);
    }
    if (result != ncclSuccess)
        return result;
    if (!is_empty(call)) {
        call->algorithm = NULL; /* a row that did not fit may have set it */
        shim_note_call(call);
    }
    return hand_on(real, call);
}

/* Whether Shunt may take the call; if not, *reason says why. */
static bool is_ours(const shim_call_t *call, sel_reason_t *reason)
{
    *reason = SEL_FORWARD_COLLECTIVE;
    if (call->collective >= ALG_COLLECTIVE_COUNT && !shim_call_is_message(call))
        return false;
    *reason = SEL_FORWARD_CONFIGURATION;
    if (call->more != NULL)
        return false;
    *reason = SEL_FORWARD_UNATTACHED;
    return call->attached;
}

/* CUDA may already have shut down. */
static ncclResult_t exiting(const shim_call_t *call)
{
    shim_set_last_error("%s: no calls are made while the process exits", call->function);
    return ncclSystemError;
}

static ncclResult_t make(shim_call_t *call)
{
    ncclResult_t result;
    if (call->comm != NULL)
        call->attached =
            shim_attach_settle(call->comm) && !atomic_load_explicit(&call->comm->suspended, memory_order_relaxed);
    if (call->attached && shim_comm_exiting())
        return exiting(call);
    if (!is_ours(call, &call->reason) || !shim_route_take(call, &result))
        result = forward(call);
    return result;
}

const shim_call_ops_t shim_call_cuda = {.make = make,
                                        .captured = is_captured,
                                        .group_end = shim_group_end_cuda,
                                        .nccl = shim_real_or_none,
                                        .answer = shim_real_answer,
                                        .comm = shim_comm_acquire};

const shim_call_ops_t *shim_call_ops(const shim_comm_t *comm)
{
    const bool cpu = comm != NULL ? comm->ops != &shim_device_cuda : shim_cpu_mode();
    return cpu ? &shim_call_cpu : &shim_call_cuda;
}

ncclResult_t shim_call_make(shim_call_t *call)
{
    call->start_ns = shim_trace_begin();
    call->comm = shim_comm_acquire(call->handle);
    const shim_call_ops_t *ops = shim_call_ops(call->comm);
    const ncclResult_t result = ops->make(call);
    if (shim_is_error(result))
        shim_note_failure(call);
    if (call->start_ns != 0)
        trace(ops, call, result);
    if (call->comm != NULL)
        shim_comm_release(call->comm);
    return result;
}
