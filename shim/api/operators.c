/* SPDX-License-Identifier: Apache-2.0 */
/* operators.c - ncclRedOpCreatePreMulSum and ncclRedOpDestroy: forwarded, with a record of the operator. */
#include <string.h>

#include "algorithms/algorithm.h"
#include "shim/api/nccl.h"
#include "shim/base/last_error.h"
#include "shim/comm/redop.h"

/* A host scalar is read now, since it may change after the call. */
static shim_redop_t describe(const void *scalar, ncclDataType_t type, ncclScalarResidence_t residence)
{
    shim_redop_t redop = {.type = type, .scalar_pointer = NULL, .scalar_bits = 0};
    if (residence == ncclScalarHostImmediate)
        memcpy(&redop.scalar_bits, scalar, alg_type_bytes((alg_type_t)type));
    else
        redop.scalar_pointer = scalar;
    return redop;
}

SHIM_PUBLIC(ncclRedOpCreatePreMulSum);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    const shim_real_t *nccl = shim_nccl();
    ncclResult_t result = shim_nccl_answer(nccl->ncclRedOpCreatePreMulSum(op, scalar, datatype, residence, comm));
    shim_comm_t *state = result == ncclSuccess ? shim_comm_acquire(comm) : NULL;
    if (state == NULL)
        return result;
    /* Without the record only this rank would forward the operator's calls: destroy it and fail. */
    shim_redop_t redop = describe(scalar, datatype, residence);
    if (!shim_redop_remember(state, *op, &redop)) {
        nccl->ncclRedOpDestroy(*op, comm);
        shim_set_last_error("ncclRedOpCreatePreMulSum: out of memory");
        result = ncclSystemError;
    }
    shim_comm_release(state);
    return result;
}

SHIM_PUBLIC(ncclRedOpDestroy);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    ncclResult_t result = shim_nccl_answer(shim_nccl()->ncclRedOpDestroy(op, comm));
    shim_comm_t *state = result == ncclSuccess ? shim_comm_acquire(comm) : NULL;
    if (state == NULL)
        return result;
    shim_redop_drop(state, op);
    shim_comm_release(state);
    return result;
}
