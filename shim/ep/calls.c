/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - dispatch, combine, complete. */
#include "shim/ep/decode.h"
#include "shim/ep/names.h"
#include "shim/ep/object.h"

ncclResult_t ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t *inputs,
                            const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                            const ncclEpDispatchConfig_t *config, cudaStream_t stream)
{
    ncclEpDispatchInputs_t in;
    ncclEpDispatchOutputs_t out;
    ncclEpLayoutInfo_t info;
    ncclEpDispatchConfig_t taken;
    if (!shim_ep_handle_is_valid(handle))
        return ncclInvalidArgument;
    if (!handle->group->service)
        return shim_ep_real()->Dispatch(handle->real, inputs, outputs, layout, config, stream);
    if (!inputs || !outputs || !shim_ep_take_DispatchInputs(&in, inputs) ||
        !shim_ep_take_DispatchOutputs(&out, outputs) || !shim_ep_take_LayoutInfo(&info, layout) ||
        !shim_ep_take_DispatchConfig(&taken, config))
        return ncclInvalidArgument;
    return handle->group->service->dispatch(handle->served, &in, &out, &info, &taken, stream);
}

ncclResult_t ncclEpCombine(ncclEpHandle_t handle, const ncclEpCombineInputs_t *inputs,
                           const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                           cudaStream_t stream)
{
    ncclEpCombineInputs_t in;
    ncclEpCombineOutputs_t out;
    ncclEpCombineConfig_t taken;
    if (!shim_ep_handle_is_valid(handle))
        return ncclInvalidArgument;
    if (!handle->group->service)
        return shim_ep_real()->Combine(handle->real, inputs, outputs, config, stream);
    if (!inputs || !outputs || !shim_ep_take_CombineInputs(&in, inputs) ||
        !shim_ep_take_CombineOutputs(&out, outputs) || !shim_ep_take_CombineConfig(&taken, config))
        return ncclInvalidArgument;
    return handle->group->service->combine(handle->served, &in, &out, &taken, stream);
}

ncclResult_t ncclEpComplete(ncclEpHandle_t handle, const ncclEpCompleteConfig_t *config, cudaStream_t stream)
{
    ncclEpCompleteConfig_t taken;
    if (!shim_ep_handle_is_valid(handle))
        return ncclInvalidArgument;
    if (!handle->group->service)
        return shim_ep_real()->Complete(handle->real, config, stream);
    if (!shim_ep_take_CompleteConfig(&taken, config))
        return ncclInvalidArgument;
    return handle->group->service->complete(handle->served, stream);
}
