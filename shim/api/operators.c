/*
 * operators.c - ncclRedOpCreatePreMulSum and ncclRedOpDestroy.
 */
#include <string.h>

#include "algorithms/algorithm.h"
#include "shim/base/device.h"
#include "shim/base/last_error.h"
#include "shim/call/check.h"
#include "shim/comm/redop.h"
#include "shim/names/names.h"
#include "shim/real/real.h"

/* What the operator stands for; a scalar of the host is read now. */
static shim_redop_t describe(const void *scalar, ncclDataType_t type, ncclScalarResidence_t residence)
{
    shim_redop_t redop = {.type = type, .scalar_pointer = NULL, .scalar_bits = 0};
    if (residence == ncclScalarHostImmediate)
        memcpy(&redop.scalar_bits, scalar, alg_type_bytes((alg_type_t)type));
    else
        redop.scalar_pointer = scalar;
    return redop;
}

static ncclResult_t refused(const char *function, const char *why)
{
    shim_set_last_error("%s: %s", function, why);
    return ncclInvalidArgument;
}

/* A number that no other operator of this process has, so that one of another communicator, or one
 * that was destroyed, is never mistaken for it. */
static ncclRedOp_t new_op(void)
{
    static atomic_uint next;
    uint32_t span = (uint32_t)ncclMaxRedOp - (uint32_t)ncclNumOps;
    return (ncclRedOp_t)((uint32_t)ncclNumOps + atomic_fetch_add(&next, 1) % span);
}

static ncclResult_t create_host(ncclRedOp_t *op, const void *scalar, ncclDataType_t type,
                                ncclScalarResidence_t residence, ncclComm_t handle)
{
    static const char function[] = "ncclRedOpCreatePreMulSum";
    ncclResult_t result = shim_host_check_comm(handle, function);
    if (result != ncclSuccess)
        return result;
    if (op == NULL)
        return refused(function, "op is NULL");
    if (scalar == NULL)
        return refused(function, "scalar is NULL");
    if (alg_type_bytes((alg_type_t)type) == 0)
        return refused(function, "datatype is none of NCCL's");
    if (residence != ncclScalarHostImmediate && residence != ncclScalarDevice)
        return refused(function, "residence is none of NCCL's");
    shim_redop_t redop = describe(scalar, type, residence);
    ncclRedOp_t made = new_op();
    if (!shim_redop_remember(shim_comm_find(handle), made, &redop)) {
        shim_set_last_error("%s: out of memory", function);
        return ncclSystemError;
    }
    *op = made;
    return ncclSuccess;
}

static ncclResult_t destroy_host(ncclRedOp_t op, ncclComm_t handle)
{
    static const char function[] = "ncclRedOpDestroy";
    if ((int)op >= 0 && (int)op < (int)ncclNumOps)
        return refused(function, "op is one of NCCL's own");
    shim_comm_t *comm = shim_comm_find(handle);
    if (comm == NULL)
        return refused(function, "comm is no communicator");
    return shim_redop_drop(comm, op) ? ncclSuccess : refused(function, "op is unknown to this communicator");
}

static ncclResult_t no_real(const char *function)
{
    shim_set_last_error("%s: %s", function, shim_real_failure());
    return ncclInvalidUsage;
}

SHIM_PUBLIC(ncclRedOpCreatePreMulSum);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    if (shim_host_mode())
        return create_host(op, scalar, datatype, residence, comm);
    const shim_real_t *real = shim_real();
    if (real == NULL)
        return no_real("ncclRedOpCreatePreMulSum");
    ncclResult_t result = real->ncclRedOpCreatePreMulSum(op, scalar, datatype, residence, comm);
    shim_comm_t *state = result == ncclSuccess ? shim_comm_acquire(comm) : NULL;
    if (state == NULL)
        return result;
    /* What cannot be remembered is forwarded wherever it is used, and that on this rank alone would
     * part the ranks; so the operator is given back. */
    shim_redop_t redop = describe(scalar, datatype, residence);
    if (!shim_redop_remember(state, *op, &redop)) {
        real->ncclRedOpDestroy(*op, comm);
        shim_set_last_error("ncclRedOpCreatePreMulSum: out of memory");
        result = ncclSystemError;
    }
    shim_comm_release(state);
    return result;
}

SHIM_PUBLIC(ncclRedOpDestroy);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    if (shim_host_mode())
        return destroy_host(op, comm);
    const shim_real_t *real = shim_real();
    if (real == NULL)
        return no_real("ncclRedOpDestroy");
    ncclResult_t result = real->ncclRedOpDestroy(op, comm);
    shim_comm_t *state = result == ncclSuccess ? shim_comm_acquire(comm) : NULL;
    if (state == NULL)
        return result;
    shim_redop_drop(state, op);
    shim_comm_release(state);
    return result;
}
