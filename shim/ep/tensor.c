/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - ncclEpTensorAlloc and ncclEpTensorDestroy, for all groups, served or forwarded. */
#include <stdlib.h>
#include <string.h>

#include "shim/ep/decode.h"
#include "shim/ep/descriptor.h"
#include "shim/ep/names.h"

ncclResult_t ncclEpTensorAlloc(ncclEpTensor_t **tensor, unsigned int ndim, ncclDataType_t datatype, const size_t *sizes,
                               const ncclEpTensorAllocConfig_t *config)
{
    ncclEpTensorAllocConfig_t taken;
    if (!shim_ep_take_TensorAllocConfig(&taken, config) || !tensor || !sizes || ndim == 0)
        return ncclInvalidArgument;
    shim_ep_allocated_t *made = calloc(1, sizeof(*made) + ndim * sizeof(*made->size));
    if (!made)
        return ncclSystemError;
    memcpy(made->size, sizes, ndim * sizeof(*sizes));
    made->sizes = made->size;
    made->tensor = (ncclEpTensor_t){.size = sizeof(made->tensor),
                                    .magic = SHIM_EP_ALLOCATED,
                                    .ndim = ndim,
                                    .datatype = datatype,
                                    .sizes = made->size};
    *tensor = &made->tensor;
    return ncclSuccess;
}

ncclResult_t ncclEpTensorDestroy(ncclEpTensor_t *tensor)
{
    if (!tensor)
        return ncclSuccess;
    if (!shim_ep_is_allocated(tensor))
        return ncclInvalidArgument;
    tensor->magic = 0; /* a second destruction is refused while the memory is not reused */
    free(shim_ep_allocated(tensor));
    return ncclSuccess;
}
