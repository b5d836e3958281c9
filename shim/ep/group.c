/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - ncclEpCreateGroup and ncclEpGroupDestroy. Shunt's service is asked first, and answers alike on all ranks. A
 * forwarded call gets the caller's own structures. */
#include "shim/ep/decode.h"
#include "shim/ep/libnccl.h"
#include "shim/ep/log.h"
#include "shim/ep/names.h"
#include "shim/ep/object.h"

static ncclResult_t forward(ncclEpGroup_t group, ncclComm_t comm, const ncclEpGroupConfig_t *config, const char *why)
{
    const shim_ep_real_t *real = shim_ep_real();
    if (real) {
        const ncclResult_t result = real->CreateGroup(&group->real, comm, config);
        if (result != ncclSuccess)
            group->real = NULL; /* the failed call may have set it */
        return result;
    }
    shim_ep_warn("ncclEpCreateGroup returns ncclInvalidUsage: the group needs NVIDIA's libnccl_ep, since Shunt does "
                 "not serve it (%s), but %s",
                 why, shim_ep_real_failure());
    return ncclInvalidUsage;
}

static ncclResult_t fill(ncclEpGroup_t group, ncclComm_t comm, const ncclEpGroupConfig_t *config,
                         const ncclEpGroupConfig_t *taken)
{
    const shim_experts_service_t *service = shim_ep_service();
    const char *why = "the process has no libnccl.so.2 of this Shunt";
    if (service) {
        const ncclResult_t result = service->create(comm, taken, &group->served, &why);
        if (result != ncclSuccess)
            return result;
    }
    if (!group->served)
        return forward(group, comm, config, why);
    group->service = service;
    return ncclSuccess;
}

ncclResult_t ncclEpCreateGroup(ncclEpGroup_t *group, ncclComm_t comm, const ncclEpGroupConfig_t *config)
{
    ncclEpGroupConfig_t taken;
    if (!group || !comm || !config || !shim_ep_take_GroupConfig(&taken, config))
        return ncclInvalidArgument;
    ncclEpGroup_t made = shim_ep_group_make();
    if (!made)
        return ncclSystemError;
    const ncclResult_t result = fill(made, comm, config, &taken);
    if (result == ncclSuccess)
        *group = made;
    else
        shim_ep_group_end(made);
    return result;
}

ncclResult_t ncclEpGroupDestroy(ncclEpGroup_t group)
{
    if (!group)
        return ncclSuccess;
    if (!shim_ep_group_is_valid(group))
        return ncclInvalidArgument;
    return shim_ep_group_end(group);
}
