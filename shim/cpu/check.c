/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/cpu/check.h"

#include "shim/base/last_error.h"
#include "shim/call/device.h"
#include "shim/comm/redop.h"

static const char no_comm[] = "this is no communicator, or it was destroyed";

ncclResult_t shim_cpu_invalid(const char *function, const char *text)
{
    shim_set_last_error("%s: %s", function, text);
    return ncclInvalidArgument;
}

shim_comm_t *shim_cpu_acquire(ncclComm_t handle, const char *function)
{
    shim_comm_t *comm = handle ? shim_comm_acquire(handle) : NULL;
    if (!comm)
        (void)shim_cpu_invalid(function, handle ? no_comm : "comm is NULL");
    return comm;
}

ncclResult_t shim_cpu_check_ready(shim_comm_t *comm, const char *function)
{
    ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    if (error != ncclSuccess) {
        shim_set_last_error("%s: the communicator has already failed; abort it", function);
        return error;
    }
    if (atomic_load(&comm->phase) == SHIM_COMM_JOINING)
        return shim_cpu_invalid(function, "the communicator is not ready: its group has not ended");
    return ncclSuccess;
}

ncclResult_t shim_cpu_check_comm(ncclComm_t handle, const char *function)
{
    shim_comm_t *comm = shim_cpu_acquire(handle, function);
    if (!comm)
        return ncclInvalidArgument;
    const ncclResult_t result = shim_cpu_check_ready(comm, function);
    shim_comm_release(comm);
    return result;
}

static ncclResult_t check_op(shim_comm_t *comm, size_t count, ncclDataType_t type, ncclRedOp_t op, const char *function)
{
    shim_redop_t redop;
    if ((int)op >= 0 && op < ncclNumOps)
        return ncclSuccess;
    if ((int)op < 0 || !shim_redop_find(comm, op, &redop))
        return shim_cpu_invalid(function, "this communicator has no such operator");
    bool fits = count == 0 || redop.type == type; /* empty calls: as in NCCL */
    return fits ? ncclSuccess : shim_cpu_invalid(function, "the operator was made for another datatype");
}

static ncclResult_t check_arguments(const shim_call_t *call)
{
    const char *function = call->function;
    shim_comm_t *comm = call->comm;
    const alg_call_t *alg = &call->alg;
    if (atomic_load(&comm->revoked)) {
        shim_set_last_error("%s: the communicator was revoked", function);
        return ncclInvalidUsage;
    }
    ncclResult_t result = shim_cpu_check_ready(comm, function);
    if (result != ncclSuccess)
        return result;
    if (atomic_load(&comm->finalized)) {
        shim_set_last_error("%s: the communicator was finalized", function);
        return ncclInvalidUsage;
    }
    if (alg->root >= comm->nranks) {
        shim_set_last_error("%s: %s %d is not in 0..%u", function, shim_call_is_message(call) ? "peer" : "root",
                            (int)alg->root, comm->nranks - 1);
        return ncclInvalidArgument;
    }
    if ((unsigned)alg->type >= ALG_TYPE_COUNT) {
        shim_set_last_error("%s: %d is not a datatype", function, (int)alg->type);
        return ncclInvalidArgument;
    }
    if (call->collective < ALG_COLLECTIVE_COUNT && alg_collective_reduces((alg_collective_t)call->collective))
        result = check_op(comm, alg->count, shim_call_type(call), call->op, function);
    if (result != ncclSuccess)
        return result;
    return alg->count > 0 && !shim_call_has_buffers(call) ? shim_cpu_invalid(function, "a buffer is NULL")
                                                          : ncclSuccess;
}

ncclResult_t shim_cpu_check_call(const shim_call_t *call)
{
    if (!call->comm)
        return shim_cpu_invalid(call->function, call->handle ? no_comm : "comm is NULL");
    return check_arguments(call);
}
