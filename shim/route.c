/*
 * route.c - the way of an all-reduce through Shunt.
 *
 * Only what is surely valid is taken; for the rest the real NCCL finds the
 * error, words it and poisons its group. Once a launch was tried there is no
 * way back: other ranks may have launched, so an error is returned and the
 * call is not forwarded.
 *
 * The choice depends on facts alone that are the same on every rank.
 */
#include "shim/route.h"

#include "shim/group.h"
#include "shim/host.h"
#include "shim/log.h"
#include "shim/real.h"
#include "shim/redop.h"
#include "shim/statistics.h"

#if SHUNT_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

_Static_assert((int)ALG_INT8 == (int)ncclInt8 && (int)ALG_UINT8 == (int)ncclUint8 && (int)ALG_INT32 == (int)ncclInt32 &&
                   (int)ALG_UINT32 == (int)ncclUint32 && (int)ALG_INT64 == (int)ncclInt64 &&
                   (int)ALG_UINT64 == (int)ncclUint64,
               "integer types have NCCL's numbers");
_Static_assert((int)ALG_FLOAT16 == (int)ncclFloat16 && (int)ALG_FLOAT32 == (int)ncclFloat32 &&
                   (int)ALG_FLOAT64 == (int)ncclFloat64 && (int)ALG_BFLOAT16 == (int)ncclBfloat16 &&
                   (int)ALG_FLOAT8_E4M3 == (int)ncclFloat8e4m3 && (int)ALG_FLOAT8_E5M2 == (int)ncclFloat8e5m2,
               "floating-point types have NCCL's numbers");
_Static_assert((int)ALG_SUM == (int)ncclSum && (int)ALG_PROD == (int)ncclProd && (int)ALG_MAX == (int)ncclMax &&
                   (int)ALG_MIN == (int)ncclMin && (int)ALG_AVG == (int)ncclAvg &&
                   (int)ALG_PREMUL_SUM == (int)ncclNumOps,
               "operators have NCCL's numbers");

/* The first NCCL that knows the 8-bit floats. */
enum { FLOAT8_VERSION = 22400 };

/* Fill in the operator; false if it is none, or one that was made for another type. */
static bool set_op(shim_comm_t *comm, const shim_request_t *request, alg_call_t *call)
{
    if ((unsigned)request->op < (unsigned)ncclNumOps) {
        call->op = (alg_op_t)request->op;
        return true;
    }
    shim_redop_t redop;
    if (!shim_redop_find(comm, request->op, &redop) || redop.type != request->type)
        return false;
    call->op = ALG_PREMUL_SUM;
    call->scalar_pointer = redop.scalar_pointer;
    call->scalar_bits = redop.scalar_bits;
    return true;
}

/* False for all that is not surely valid, and for calls with nothing to do. */
static bool set_call(shim_comm_t *comm, const shim_request_t *request, alg_call_t *call)
{
    if ((unsigned)request->type >= ALG_TYPE_COUNT || request->count == 0 || request->input == NULL ||
        request->output == NULL)
        return false;
    *call = (alg_call_t){
        .input = request->input, .output = request->output, .count = request->count, .type = (alg_type_t)request->type};
    return set_op(comm, request, call);
}

static sel_choice_t choose(shim_comm_t *comm, alg_call_t *call)
{
    sel_query_t query = {.collective = call->collective, .type = call->type, .op = call->op, .count = call->count};
    sel_choice_t choice = sel_choose(comm->plan, &query);
    call->blocks = choice.blocks;
    call->threads = choice.threads;
    return choice;
}

static uint64_t bytes_of(const alg_call_t *call)
{
    return call->count * alg_type_bytes(call->type);
}

ncclResult_t shim_route_cuda_failed(int error, const char *what)
{
#if SHUNT_HAS_CUDA
    (void)cudaGetLastError();
    const char *text = cudaGetErrorString((cudaError_t)error);
#else
    const char *text = "no CUDA in this build";
#endif
    shim_set_last_error("%s: CUDA error %d, %s", what, error, text);
    shim_warn("%s: CUDA error %d, %s", what, error, text);
    return ncclUnhandledCudaError;
}

ncclResult_t shim_route_launch(shim_comm_t *comm, const alg_algorithm_t *algorithm, const alg_call_t *call,
                               void *stream, const shim_capture_t *capture)
{
    /* Whoever ends a communicator says so first and drains it under its lock afterwards. */
    if (atomic_load(&comm->phase) != SHIM_COMM_ATTACHED) {
        shim_set_last_error("%s: the communicator was aborted or destroyed meanwhile", algorithm->name);
        return ncclInvalidUsage;
    }
    ncclResult_t before = (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_relaxed);
    if (before != ncclSuccess) {
        shim_set_last_error("%s: the communicator has failed before", algorithm->name);
        return before;
    }
    int error = shim_order_enter(comm, stream, capture);
    if (error == 0)
        error = algorithm->launch_cuda(alg_scratch_team(comm->scratch), call, stream);
    if (error == 0)
        error = shim_order_leave(comm, stream, capture, false);
    if (error == 0)
        return ncclSuccess;
    /* The peers' kernels of this call would meet this rank's next one, and add what does not belong together; or the
     * next one would not come after this one. */
    atomic_store(&comm->async_error, ncclUnhandledCudaError);
    return shim_route_cuda_failed(error, algorithm->name);
}

/* A non-blocking communicator whose last forwarded call is not through refuses the next one. */
static bool ready(shim_comm_t *comm)
{
    if (comm->blocking)
        return true;
    ncclResult_t state;
    return shim_real()->ncclCommGetAsyncError(atomic_load(&comm->handle), &state) == ncclSuccess &&
           state == ncclSuccess;
}

static bool real_knows(const alg_call_t *call)
{
    bool float8 = call->type == ALG_FLOAT8_E4M3 || call->type == ALG_FLOAT8_E5M2;
    return !float8 || shim_real()->version >= FLOAT8_VERSION;
}

static ncclResult_t queue(shim_comm_t *comm, const alg_algorithm_t *algorithm, const alg_call_t *call, void *stream,
                          const shim_capture_t *capture)
{
    ncclResult_t result = shim_group_use(comm, stream, capture, false);
    if (result == ncclSuccess)
        result = shim_group_queue(comm, algorithm, call);
    return shim_group_check(result);
}

static ncclResult_t launch(shim_comm_t *comm, const alg_algorithm_t *algorithm, const alg_call_t *call, void *stream,
                           const shim_capture_t *capture)
{
    pthread_mutex_lock(&comm->lock);
    ncclResult_t result = shim_route_launch(comm, algorithm, call, stream, capture);
    pthread_mutex_unlock(&comm->lock);
    return result;
}

/* The communicator's device is current. */
static bool take(shim_comm_t *comm, alg_call_t *call, void *stream, ncclResult_t *result, int *reason,
                 const char **source)
{
    shim_capture_t capture;
    *reason = SHIM_REASON_STREAM;
    if (shim_capture_query(stream, &capture) != 0)
        return false;
    sel_choice_t choice = choose(comm, call);
    *reason = choice.reason;
    *source = choice.source;
    if (choice.algorithm == NULL)
        return false;
    shim_count_taken(SHIM_ALL_REDUCE, bytes_of(call), &choice);
    *result = (shim_group_depth() > 0 ? queue : launch)(comm, choice.algorithm, call, stream, &capture);
    return true;
}

bool shim_route_take(shim_comm_t *comm, const shim_request_t *request, void *stream, ncclResult_t *result, int *reason,
                     const char **source)
{
    alg_call_t call;
    *reason = SHIM_REASON_ARGUMENTS;
    if (!set_call(comm, request, &call) || !real_knows(&call))
        return false;
    *reason = SHIM_REASON_NOT_READY;
    if (!ready(comm))
        return false;
    int previous;
    *reason = SHIM_REASON_STREAM;
    if (shim_device_enter(comm->device, &previous) != 0)
        return false;
    bool taken = take(comm, &call, stream, result, reason, source);
    shim_device_leave(comm->device, previous);
    return taken;
}

ncclResult_t shim_route_host(shim_comm_t *comm, const shim_request_t *request)
{
    alg_call_t call;
    if (!set_call(comm, request, &call)) {
        shim_set_last_error("ncclAllReduce: the operator does not fit the datatype");
        return ncclInvalidArgument;
    }
    sel_choice_t choice = choose(comm, &call);
    if (choice.algorithm == NULL) {
        shim_set_last_error(
            "ncclAllReduce: the host device cannot serve this call, and has nobody to forward it to (%s)",
            sel_reason_text(choice.reason));
        return ncclInvalidUsage;
    }
    shim_count_taken(SHIM_ALL_REDUCE, bytes_of(&call), &choice);
    /* One rank waits for nobody: as in NCCL, its calls run at once, even in a group. */
    if (shim_group_depth() > 0 && comm->nranks > 1)
        return shim_group_queue(comm, choice.algorithm, &call);
    return shim_host_run(comm, choice.algorithm, &call);
}
