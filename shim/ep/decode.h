/* SPDX-License-Identifier: Apache-2.0 */
/* decode.h - brings the structures of a call to this version of the ABI, for programs compiled against any nccl_ep.h
 * (rules: shim/experts/nccl_ep.h). shim_ep_take_X copies `from` into `to`. Fields that the caller's version lacks
 * become 0, as do all behind the head if `from` is NULL. False: a size or magic word is wrong, as a log line says. */
#ifndef SHUNT_SHIM_EP_DECODE_H
#define SHUNT_SHIM_EP_DECODE_H

#include <stdbool.h>

#include "shim/experts/nccl_ep.h"

/* SHIM_EP_STRUCTURE(name, constant): ncclEp<name>_t, whose first version ends at NCCL_EP_<constant>_V1. */
#define SHIM_EP_STRUCTURES(SHIM_EP_STRUCTURE)                 \
    SHIM_EP_STRUCTURE(TensorAllocConfig, TENSOR_ALLOC_CONFIG) \
    SHIM_EP_STRUCTURE(GroupConfig, GROUP_CONFIG)              \
    SHIM_EP_STRUCTURE(LayoutInfo, LAYOUT_INFO)                \
    SHIM_EP_STRUCTURE(DispatchInputs, DISPATCH_INPUTS)        \
    SHIM_EP_STRUCTURE(DispatchOutputs, DISPATCH_OUTPUTS)      \
    SHIM_EP_STRUCTURE(CombineInputs, COMBINE_INPUTS)          \
    SHIM_EP_STRUCTURE(CombineOutputs, COMBINE_OUTPUTS)        \
    SHIM_EP_STRUCTURE(HandleConfig, HANDLE_CONFIG)            \
    SHIM_EP_STRUCTURE(DispatchConfig, DISPATCH_CONFIG)        \
    SHIM_EP_STRUCTURE(CombineConfig, COMBINE_CONFIG)          \
    SHIM_EP_STRUCTURE(CompleteConfig, COMPLETE_CONFIG)

#define SHIM_EP_STRUCTURE(name, constant) bool shim_ep_take_##name(ncclEp##name##_t *to, const ncclEp##name##_t *from);
SHIM_EP_STRUCTURES(SHIM_EP_STRUCTURE)
#undef SHIM_EP_STRUCTURE

#endif
