/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c - gives a call to the real NCCL, in order with ours. */
#include "shim/account/statistics.h"
#include "shim/base/last_error.h"
#include "shim/base/log.h"
#include "shim/call/device.h"
#include "shim/call/group.h"
#include "shim/call/note.h"
#include "shim/comm/order.h"
#include "shim/real/real.h"

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
    if (!shim_call_sees_capture(call))
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
    if (!call->attached || call->comm->plan == NULL || !call->comm->plan->settings.deterministic ||
        !shim_call_reduces(call) || is_empty(call) || call->reason == SEL_FORWARD_ARGUMENTS ||
        !shim_statistics_last(&decision) || atomic_exchange(&told, true))
        return;
    shim_warn("SHUNT_DETERMINISTIC=1: %s is %s; NCCL adds in its own order: set NCCL_ALGO and NCCL_PROTO for "
              "reproducible results",
              call->function, decision.reason);
}

ncclResult_t shim_call_forward(shim_call_t *call)
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
