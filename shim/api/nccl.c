/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/api/nccl.h"

#include "shim/call/device.h"

const shim_real_t *shim_nccl(void)
{
    return shim_call_ops(NULL)->nccl();
}

ncclResult_t shim_nccl_answer(ncclResult_t result)
{
    return shim_call_ops(NULL)->answer(result);
}

shim_comm_t *shim_nccl_comm(ncclComm_t handle)
{
    return shim_call_ops(NULL)->comm(handle);
}
