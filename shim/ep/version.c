/* SPDX-License-Identifier: Apache-2.0 */
/* version.c - ncclEpGetVersion. Opens nothing: programs ask before they decide to use nccl_ep. */
#include "shim/ep/names.h"
#include "shim/ep/real.h"

ncclResult_t ncclEpGetVersion(int *version)
{
    const shim_ep_real_t *real = shim_ep_real_opened();
    if (!version)
        return ncclInvalidArgument;
    if (real)
        return real->GetVersion(version);
    *version = NCCL_EP_VERSION_CODE;
    return ncclSuccess;
}
