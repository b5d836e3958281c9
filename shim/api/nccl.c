/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/api/nccl.h"

#include "shim/base/device.h"
#include "shim/cpu/table.h"

const shim_real_t *shim_nccl(const char *function)
{
    return shim_cpu_mode() ? shim_cpu_nccl() : shim_real_need(function);
}

ncclResult_t shim_nccl_answer(ncclResult_t result)
{
    return shim_cpu_mode() ? result : shim_real_answer(result);
}

shim_comm_t *shim_nccl_comm(ncclComm_t handle)
{
    return shim_cpu_mode() ? NULL : shim_comm_acquire(handle);
}
