/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - the masks of a group, and its asynchronous error. A served group has none: the calls return
 * ncclInvalidUsage, as in NVIDIA's library without enable_mask. */
#include "shim/ep/names.h"
#include "shim/ep/object.h"

#define FORWARD(group, function, ...)                                  \
    do {                                                               \
        if (!shim_ep_group_is_valid(group))                            \
            return ncclInvalidArgument;                                \
        if ((group)->service)                                          \
            return ncclInvalidUsage;                                   \
        return shim_ep_real()->function((group)->real, ##__VA_ARGS__); \
    } while (0)

ncclResult_t ncclEpMaskQuery(ncclEpGroup_t group, int *device_mask, cudaStream_t stream)
{
    FORWARD(group, MaskQuery, device_mask, stream);
}

ncclResult_t ncclEpMaskUpdate(ncclEpGroup_t group, const int *host_mask, cudaStream_t stream)
{
    FORWARD(group, MaskUpdate, host_mask, stream);
}

ncclResult_t ncclEpMaskClean(ncclEpGroup_t group, cudaStream_t stream)
{
    FORWARD(group, MaskClean, stream);
}

ncclResult_t ncclEpGetAsyncError(ncclEpGroup_t group, int *error)
{
    FORWARD(group, GetAsyncError, error);
}

ncclResult_t ncclEpErrorClear(ncclEpGroup_t group)
{
    FORWARD(group, ErrorClear);
}
