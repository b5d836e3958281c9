/* SPDX-License-Identifier: Apache-2.0 */
#include "shim/ep/decode.h"

#include <string.h>

#include "shim/ep/descriptor.h"
#include "shim/ep/log.h"

/* Every structure begins with these fields. */
typedef struct head {
    unsigned int size, magic;
} head_t;

static bool take(const char *name, void *to, size_t bytes, const void *from, size_t least)
{
    const head_t own = {(unsigned int)bytes, NCCL_EP_MAGIC};
    head_t head = own;
    if (from)
        memcpy(&head, from, sizeof(head));
    if (head.size < least || head.magic != NCCL_EP_MAGIC) {
        shim_ep_warn("%s has size %u and magic word 0x%x, not a size of at least %zu and 0x%x: the call returns "
                     "ncclInvalidArgument; set both as nccl_ep.h says",
                     name, head.size, head.magic, least, NCCL_EP_MAGIC);
        return false;
    }
    memset(to, 0, bytes);
    if (from)
        memcpy(to, from, head.size < bytes ? head.size : bytes);
    memcpy(to, &own, sizeof(own));
    return true;
}

static bool all_valid(const char *name, ncclEpTensor_t *const *tensor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tensor[i] && !shim_ep_tensor_is_valid(name, tensor[i]))
            return false;
    return true;
}

/* has_valid_X: whether the tensors in X are valid; true if X has none. */
static bool has_valid_LayoutInfo(const ncclEpLayoutInfo_t *s)
{
    ncclEpTensor_t *const tensor[] = {s->expert_counters, s->src_rank_counters, s->expert_offsets,
                                      s->recv_total_counter};
    return all_valid("ncclEpLayoutInfo_t", tensor, sizeof(tensor) / sizeof(*tensor));
}

static bool has_valid_DispatchInputs(const ncclEpDispatchInputs_t *s)
{
    ncclEpTensor_t *const tensor[] = {s->tokens, s->topk_weights, s->scales};
    return all_valid("ncclEpDispatchInputs_t", tensor, sizeof(tensor) / sizeof(*tensor));
}

static bool has_valid_DispatchOutputs(const ncclEpDispatchOutputs_t *s)
{
    ncclEpTensor_t *const tensor[] = {s->tokens, s->topk_weights, s->scales, s->topk_idx};
    return all_valid("ncclEpDispatchOutputs_t", tensor, sizeof(tensor) / sizeof(*tensor));
}

static bool has_valid_CombineInputs(const ncclEpCombineInputs_t *s)
{
    ncclEpTensor_t *const tensor[] = {s->tokens, s->topk_weights, s->scales};
    return all_valid("ncclEpCombineInputs_t", tensor, sizeof(tensor) / sizeof(*tensor));
}

static bool has_valid_CombineOutputs(const ncclEpCombineOutputs_t *s)
{
    ncclEpTensor_t *const tensor[] = {s->tokens, s->topk_weights};
    return all_valid("ncclEpCombineOutputs_t", tensor, sizeof(tensor) / sizeof(*tensor));
}

#define has_valid_TensorAllocConfig(s) true
#define has_valid_GroupConfig(s) true
#define has_valid_HandleConfig(s) true
#define has_valid_DispatchConfig(s) true
#define has_valid_CombineConfig(s) true
#define has_valid_CompleteConfig(s) true

#define SHIM_EP_STRUCTURE(name, constant)                                                                         \
    bool shim_ep_take_##name(ncclEp##name##_t *to, const ncclEp##name##_t *from)                                  \
    {                                                                                                             \
        return take("ncclEp" #name "_t", to, sizeof(*to), from, NCCL_EP_##constant##_V1) && has_valid_##name(to); \
    }
SHIM_EP_STRUCTURES(SHIM_EP_STRUCTURE)
