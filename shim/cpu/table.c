/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - as in NCCL, an error of a call that makes or ends communicators, or works on one, also fails its group; one
 * of ncclCommInitAll, ncclCommRevoke, of a suspend, a question, memory or registration does not. Registrations have no
 * use here: they give a NULL handle. */
#include "shim/cpu/table.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "shim/base/last_error.h"
#include "shim/call/group.h"
#include "shim/comm/grow.h"
#include "shim/comm/redop.h"
#include "shim/cpu/check.h"
#include "shim/cpu/cpu.h"

enum { ALIGNMENT = 4096 };

static ncclResult_t init_rank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    return shim_group_check(shim_cpu_init_rank(comm, nranks, &id, 1, rank, NULL));
}

static ncclResult_t init_rank_config(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    return shim_group_check(shim_cpu_init_rank(comm, nranks, &id, 1, rank, config));
}

static ncclResult_t init_rank_scalable(ncclComm_t *comm, int nranks, int rank, int count, ncclUniqueId *ids,
                                       ncclConfig_t *config)
{
    return shim_group_check(shim_cpu_init_rank(comm, nranks, ids, count, rank, config));
}

static ncclResult_t init_all(ncclComm_t *comms, int count, const int *devices)
{
    return shim_cpu_init_all(comms, count, devices);
}

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
    return shim_group_check(shim_cpu_split(comm, color, key, newcomm, config));
}

static ncclResult_t shrink(ncclComm_t comm, int *exclude, int count, ncclComm_t *newcomm, ncclConfig_t *config,
                           int flags)
{
    return shim_group_check(shim_cpu_shrink(comm, exclude, count, newcomm, config, flags));
}

static ncclResult_t finalize(ncclComm_t comm)
{
    return shim_group_check(shim_cpu_finalize(comm));
}

static ncclResult_t destroy(ncclComm_t comm)
{
    return shim_group_check(shim_cpu_destroy(comm));
}

static ncclResult_t abort_comm(ncclComm_t comm)
{
    return shim_group_check(shim_cpu_abort(comm));
}

static ncclResult_t revoke(ncclComm_t comm, int flags)
{
    return shim_cpu_revoke(comm, flags);
}

static ncclResult_t get_fact(ncclComm_t handle, int *value, bool count, const char *function)
{
    shim_comm_t *comm = shim_cpu_acquire(handle, function);
    if (!comm)
        return ncclInvalidArgument;
    ncclResult_t result = shim_cpu_check_ready(comm, function);
    if (result == ncclSuccess && !value)
        result = shim_cpu_invalid(function, "the result's pointer is NULL");
    if (result == ncclSuccess)
        *value = (int)(count ? comm->nranks : comm->rank);
    shim_comm_release(comm);
    return result;
}

static ncclResult_t count_of(const ncclComm_t comm, int *count)
{
    return get_fact(comm, count, true, "ncclCommCount");
}

static ncclResult_t device_of(const ncclComm_t comm, int *device)
{
    return get_fact(comm, device, false, "ncclCommCuDevice");
}

static ncclResult_t rank_of(const ncclComm_t comm, int *rank)
{
    return get_fact(comm, rank, false, "ncclCommUserRank");
}

static ncclResult_t mem_alloc(void **memory, size_t size)
{
    if (!memory)
        return shim_cpu_invalid("ncclMemAlloc", "ptr is NULL");
    void *made = NULL;
    if (posix_memalign(&made, ALIGNMENT, size ? size : 1) != 0) {
        shim_set_last_error("ncclMemAlloc: out of memory");
        return ncclSystemError;
    }
    *memory = made;
    return ncclSuccess;
}

static ncclResult_t mem_free(void *memory)
{
    free(memory);
    return ncclSuccess;
}

static ncclResult_t register_buffer(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    static const char function[] = "ncclCommRegister";
    (void)size;
    ncclResult_t result = shim_cpu_check_comm(comm, function);
    if (result == ncclSuccess && (!buffer || !handle))
        result = shim_cpu_invalid(function, "buff or handle is NULL");
    if (result == ncclSuccess)
        *handle = NULL;
    return result;
}

static ncclResult_t deregister_buffer(const ncclComm_t comm, void *handle)
{
    static const char function[] = "ncclCommDeregister";
    ncclResult_t result = shim_cpu_check_comm(comm, function);
    if (result != ncclSuccess || !handle)
        return result;
    shim_set_last_error("%s: no such registration", function);
    return ncclInvalidUsage;
}

/* ---- Suspending (api/suspend.c) ---------------------------- */

static ncclResult_t expect_suspended(ncclComm_t handle, bool suspended, const char *function)
{
    ncclResult_t result = shim_cpu_check_comm(handle, function);
    const shim_comm_t *comm = result == ncclSuccess ? shim_comm_find(handle) : NULL;
    if (comm && atomic_load(&comm->suspended) != suspended) {
        shim_set_last_error("%s: the communicator is %ssuspended", function, suspended ? "not " : "");
        result = ncclInvalidUsage;
    }
    return result;
}

static ncclResult_t suspend(ncclComm_t handle, int flags)
{
    static const char function[] = "ncclCommSuspend";
    return flags & SHIM_SUSPEND_MEMORY ? expect_suspended(handle, false, function)
                                       : shim_cpu_check_comm(handle, function);
}

static ncclResult_t resume(ncclComm_t handle)
{
    return expect_suspended(handle, true, "ncclCommResume");
}

/* ---- Operators (api/operators.c) --------- */

/* Numbers repeat only when they wrap, so an operator is not mistaken for another communicator's or a destroyed one. */
static ncclRedOp_t new_op(void)
{
    static atomic_uint next;
    uint32_t span = (uint32_t)ncclMaxRedOp - (uint32_t)ncclNumOps;
    return (ncclRedOp_t)((uint32_t)ncclNumOps + atomic_fetch_add(&next, 1) % span);
}

static ncclResult_t create_op(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                              ncclComm_t handle)
{
    static const char function[] = "ncclRedOpCreatePreMulSum";
    ncclResult_t result = shim_cpu_check_comm(handle, function);
    if (result != ncclSuccess)
        return result;
    if (!op)
        return shim_cpu_invalid(function, "op is NULL");
    if (!scalar)
        return shim_cpu_invalid(function, "scalar is NULL");
    if (alg_type_bytes((alg_type_t)type) == 0)
        return shim_cpu_invalid(function, "datatype is not one of NCCL's");
    if (residence != ncclScalarHostImmediate && residence != ncclScalarDevice)
        return shim_cpu_invalid(function, "residence is not one of NCCL's");
    *op = new_op();
    return ncclSuccess;
}

static ncclResult_t destroy_op(ncclRedOp_t op, ncclComm_t handle)
{
    static const char function[] = "ncclRedOpDestroy";
    shim_redop_t redop;
    if ((int)op >= 0 && (int)op < (int)ncclNumOps)
        return shim_cpu_invalid(function, "op is one of NCCL's own");
    shim_comm_t *comm = shim_comm_find(handle);
    if (!comm)
        return shim_cpu_invalid(function, "comm is not a communicator");
    return shim_redop_find(comm, op, &redop) ? ncclSuccess
                                             : shim_cpu_invalid(function, "op is unknown to this communicator");
}

static ncclResult_t start_group(void)
{
    return ncclSuccess;
}

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static shim_real_t g_table = {.version = NCCL_VERSION_CODE};

static void fill(void)
{
    shim_real_fill_missing(&g_table);
    g_table.ncclGetUniqueId = shim_cpu_get_unique_id;
    g_table.ncclCommInitRank = init_rank;
    g_table.ncclCommInitRankConfig = init_rank_config;
    g_table.ncclCommInitRankScalable = init_rank_scalable;
    g_table.ncclCommInitAll = init_all;
    g_table.ncclCommSplit = split;
    g_table.ncclCommShrink = shrink;
    g_table.ncclCommFinalize = finalize;
    g_table.ncclCommDestroy = destroy;
    g_table.ncclCommAbort = abort_comm;
    g_table.ncclCommRevoke = revoke;
    g_table.ncclCommSuspend = suspend;
    g_table.ncclCommResume = resume;
    g_table.ncclCommGetAsyncError = shim_cpu_async_error;
    g_table.ncclCommCount = count_of;
    g_table.ncclCommCuDevice = device_of;
    g_table.ncclCommUserRank = rank_of;
    g_table.ncclGroupStart = start_group;
    g_table.ncclMemAlloc = mem_alloc;
    g_table.ncclMemFree = mem_free;
    g_table.ncclCommRegister = register_buffer;
    g_table.ncclCommDeregister = deregister_buffer;
    g_table.ncclRedOpCreatePreMulSum = create_op;
    g_table.ncclRedOpDestroy = destroy_op;
}

const shim_real_t *shim_cpu_nccl(void)
{
    pthread_once(&g_once, fill);
    return &g_table;
}
