/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - see check.h. */
#include "shim/experts/check.h"

#include <stdio.h>
#include <string.h>

#include "shim/real/real.h"

enum {
    ALIGNMENT = 16,
    HIDDEN_UNIT = 16,     /* an unquantized row has a multiple of so many elements */
    QUANTIZED_UNIT = 512, /* the same with DS_FP8E3M4: its scales are then a multiple of 16 bytes */
    COMBINED_UNIT = 128,  /* the same for a combined row */
    TEXT_BYTES = 120
};

#define TRY(call)                       \
    do {                                \
        ncclResult_t try_result = call; \
        if (try_result != ncclSuccess)  \
            return try_result;          \
    } while (0)

size_t shim_experts_type_bytes(ncclDataType_t type)
{
    return (int)type == NCCL_EP_FLOAT4X2 ? 1 : alg_type_bytes((alg_type_t)type);
}

static void write_sizes(char *text, size_t capacity, unsigned int ndim, const size_t *sizes)
{
    size_t used = 0;
    text[0] = 0;
    for (unsigned int i = 0; i < ndim && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "[%zu]", sizes[i]);
}

static ncclResult_t check_shape(const ncclEpTensor_t *tensor, const shim_experts_want_t *want)
{
    char has[TEXT_BYTES] = "none", wanted[TEXT_BYTES];
    bool fits = tensor->ndim == want->ndim && tensor->sizes;
    for (unsigned int i = 0; fits && i < want->ndim; i++)
        fits = tensor->sizes[i] == want->sizes[i];
    if (fits)
        return ncclSuccess;
    if (tensor->sizes)
        write_sizes(has, sizeof(has), tensor->ndim < 6 ? tensor->ndim : 6, tensor->sizes);
    write_sizes(wanted, sizeof(wanted), want->ndim, want->sizes);
    return shim_experts_refuse(ncclInvalidArgument, "%s has sizes %s, not %s", want->name, has, wanted);
}

static ncclResult_t resolve(const shim_experts_group_t *group, const ncclEpTensor_t *tensor, const char *name,
                            void **data)
{
    typedef ncclResult_t (*get_t)(ncclComm_t, ncclWindow_t, void **);
    const shim_real_t *real = shim_real_used();
    void *base = NULL;
    get_t get = NULL;
    if (real)
        *(void **)&get = shim_real_symbol(real, "ncclWinGetUserPtr");
    if (!tensor->win_hdl)
        return shim_experts_refuse(ncclInvalidArgument, "%s has neither data nor a window", name);
    if (!get)
        return shim_experts_refuse(
            ncclInvalidUsage, "%s has only a window, and no NCCL with ncclWinGetUserPtr is loaded: set its data", name);
    TRY(shim_real_answer(get(atomic_load(&group->extra->comm->handle), tensor->win_hdl, &base)));
    if (!base)
        return shim_experts_refuse(ncclInvalidUsage, "%s has a window without memory", name);
    *data = (uint8_t *)base + tensor->win_offset;
    return ncclSuccess;
}

ncclResult_t shim_experts_tensor(const shim_experts_group_t *group, const ncclEpTensor_t *tensor,
                                 const shim_experts_want_t *want, void **data)
{
    void *at = tensor ? tensor->data : NULL;
    bool empty = false;
    if (!tensor)
        return shim_experts_refuse(ncclInvalidArgument, "%s is missing", want->name);
    if (tensor->datatype != want->type)
        return shim_experts_refuse(ncclInvalidArgument, "%s has type %d, not %d", want->name, (int)tensor->datatype,
                                   (int)want->type);
    TRY(check_shape(tensor, want));
    for (unsigned int i = 0; i < want->ndim; i++)
        empty = empty || want->sizes[i] == 0;
    if (!at && !empty)
        TRY(resolve(group, tensor, want->name, &at));
    if (want->alignment && (uintptr_t)at % want->alignment != 0)
        return shim_experts_refuse(ncclInvalidArgument, "%s is not aligned to %zu bytes", want->name, want->alignment);
    *data = at;
    return ncclSuccess;
}

static ncclResult_t check_absent(const ncclEpTensor_t *tensor, const char *name, const char *where)
{
    if (!tensor)
        return ncclSuccess;
    return shim_experts_refuse(ncclInvalidArgument, "%s must be NULL %s", name, where);
}

static shim_experts_want_t received(const shim_experts_handle_t *handle, const char *name, ncclDataType_t type,
                                    size_t hidden)
{
    const alg_experts_shape_t *shape = &handle->group->shape;
    const size_t rows = handle->rank_major ? shape->nranks : shape->experts / shape->nranks;
    const size_t slots = handle->rank_major ? shape->most_tokens : (size_t)shape->nranks * shape->most_tokens;
    return (shim_experts_want_t){
        .name = name, .type = type, .ndim = 3, .sizes = {rows, slots, hidden}, .alignment = ALIGNMENT};
}

static bool is_plain(ncclDataType_t type)
{
    return type == ncclBfloat16 || type == ncclFloat16 || type == ncclFloat32;
}

static bool is_forwarded(ncclDataType_t type, bool scale)
{
    return is_plain(type) || type == ncclFloat8e4m3 || type == ncclFloat8e5m2 ||
           (scale ? type == ncclUint8 : (int)type == NCCL_EP_FLOAT4X2);
}

static ncclResult_t check_common(const shim_experts_handle_t *handle, const char *name, const ncclEpTensor_t *tokens,
                                 unsigned int ndim, ncclEpPassDir_t direction)
{
    if (!handle->chosen)
        return shim_experts_refuse(ncclInvalidUsage, "%s: the handle has no topk_idx: call ncclEpUpdateHandle first",
                                   name);
    if (direction != NCCL_EP_FWD_PASS)
        return shim_experts_refuse(ncclInvalidUsage, "%s: pass_direction %d: low latency has only the forward pass",
                                   name, (int)direction);
    if (!tokens || tokens->ndim != ndim || !tokens->sizes)
        return shim_experts_refuse(ncclInvalidArgument, "%s: inputs->tokens is missing or does not have %u dimensions",
                                   name, ndim);
    return ncclSuccess;
}

static void begin(const shim_experts_handle_t *handle, bool combine, alg_experts_call_t *call)
{
    *call = (alg_experts_call_t){.combine = combine,
                                 .rank_major = handle->rank_major,
                                 .tokens = handle->tokens,
                                 .top_k = handle->top_k,
                                 .choices = handle->choices,
                                 .wide = handle->wide,
                                 .routes = handle->routes};
}

static ncclResult_t check_weights(const shim_experts_handle_t *handle, const char *name, const ncclEpTensor_t *tensor,
                                  alg_experts_call_t *call)
{
    void *data = NULL;
    const shim_experts_want_t want = {
        .name = name, .type = ncclFloat32, .ndim = 2, .sizes = {handle->tokens, handle->top_k}, .alignment = 4};
    TRY(shim_experts_tensor(handle->group, tensor, &want, &data));
    call->weights = data;
    return ncclSuccess;
}

static ncclResult_t check_bytes(const shim_experts_handle_t *handle, const char *name, uint64_t bytes)
{
    if (bytes > 0 && bytes <= handle->group->shape.row_bytes)
        return ncclSuccess;
    return shim_experts_refuse(ncclInvalidArgument, "%s: a token has %llu bytes, not 1 to max_token_bytes, %u", name,
                               (unsigned long long)bytes, handle->group->shape.row_bytes);
}

static const char dispatch[] = "ncclEpDispatch";

static ncclResult_t check_plain(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                const ncclEpDispatchOutputs_t *outputs, alg_experts_call_t *call)
{
    const ncclDataType_t type = inputs->tokens->datatype;
    const size_t hidden = inputs->tokens->sizes[1];
    const shim_experts_want_t out = received(handle, "ncclEpDispatch: outputs->tokens", type, hidden);
    if (!is_plain(type))
        return shim_experts_refuse(ncclInvalidArgument, "%s: tokens of type %d need the recipe QUANT_FWD", dispatch,
                                   (int)type);
    if (hidden % HIDDEN_UNIT != 0)
        return shim_experts_refuse(ncclInvalidArgument, "%s: hidden is %zu, not a multiple of 16", dispatch, hidden);
    TRY(check_bytes(handle, dispatch, hidden * shim_experts_type_bytes(type)));
    TRY(check_absent(inputs->scales, "ncclEpDispatch: inputs->scales", "without a recipe"));
    TRY(check_absent(outputs->scales, "ncclEpDispatch: outputs->scales", "without a recipe"));
    call->token_bytes = (uint32_t)(hidden * shim_experts_type_bytes(type));
    return shim_experts_tensor(handle->group, outputs->tokens, &out, &call->out);
}

static ncclResult_t check_scales_in(const shim_experts_handle_t *handle, const ncclEpTensor_t *scales,
                                    alg_experts_call_t *call)
{
    void *data = NULL;
    if (!scales || scales->ndim != 2 || !scales->sizes || !is_forwarded(scales->datatype, true))
        return shim_experts_refuse(ncclInvalidArgument,
                                   "%s: inputs->scales is missing, not [tokens][scales], or of a type that Shunt does "
                                   "not send",
                                   dispatch);
    const shim_experts_want_t want = {.name = "ncclEpDispatch: inputs->scales",
                                      .type = scales->datatype,
                                      .ndim = 2,
                                      .sizes = {handle->tokens, scales->sizes[1]},
                                      .alignment = ALIGNMENT};
    const size_t bytes = scales->sizes[1] * shim_experts_type_bytes(scales->datatype);
    if (bytes == 0 || bytes % ALIGNMENT != 0 || bytes > UINT32_MAX)
        return shim_experts_refuse(ncclInvalidArgument, "%s: a token's scales have %zu bytes, not a multiple of 16",
                                   dispatch, bytes);
    TRY(shim_experts_tensor(handle->group, scales, &want, &data));
    call->scales = data;
    call->scale_bytes = (uint32_t)bytes;
    return ncclSuccess;
}

static ncclResult_t check_forwarded(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                    const ncclEpDispatchOutputs_t *outputs, alg_experts_call_t *call)
{
    const ncclDataType_t type = inputs->tokens->datatype;
    const size_t hidden = inputs->tokens->sizes[1], bytes = hidden * shim_experts_type_bytes(type);
    if (!is_forwarded(type, false))
        return shim_experts_refuse(ncclInvalidArgument, "%s: Shunt does not send tokens of type %d", dispatch,
                                   (int)type);
    if (bytes % ALIGNMENT != 0)
        return shim_experts_refuse(ncclInvalidArgument, "%s: a token has %zu bytes, not a multiple of 16", dispatch,
                                   bytes);
    TRY(check_scales_in(handle, inputs->scales, call));
    TRY(check_bytes(handle, dispatch, bytes ? (uint64_t)bytes + call->scale_bytes : 0));
    const shim_experts_want_t out = received(handle, "ncclEpDispatch: outputs->tokens", type, hidden);
    const shim_experts_want_t out_scales =
        received(handle, "ncclEpDispatch: outputs->scales", inputs->scales->datatype, inputs->scales->sizes[1]);
    call->token_bytes = (uint32_t)bytes;
    TRY(shim_experts_tensor(handle->group, outputs->tokens, &out, &call->out));
    return shim_experts_tensor(handle->group, outputs->scales, &out_scales, &call->out_scales);
}

static ncclResult_t check_quantized(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                    const ncclEpDispatchOutputs_t *outputs, alg_experts_call_t *call)
{
    const size_t hidden = inputs->tokens->sizes[1], scales = hidden / ALG_EXPERTS_BLOCK_ELEMENTS;
    if (inputs->tokens->datatype != ncclBfloat16 || hidden % QUANTIZED_UNIT != 0)
        return shim_experts_refuse(ncclInvalidArgument,
                                   "%s: DS_FP8E3M4 takes bf16 and a hidden size that is a multiple of 512, not type %d "
                                   "and %zu",
                                   dispatch, (int)inputs->tokens->datatype, hidden);
    TRY(check_bytes(handle, dispatch, hidden + scales * sizeof(float)));
    TRY(check_absent(inputs->scales, "ncclEpDispatch: inputs->scales", "with DS_FP8E3M4"));
    const shim_experts_want_t out = received(handle, "ncclEpDispatch: outputs->tokens", ncclFloat8e4m3, hidden);
    shim_experts_want_t out_scales = received(handle, "ncclEpDispatch: outputs->scales", ncclFloat32, scales);
    out_scales.alignment = sizeof(float);
    call->recipe = ALG_EXPERTS_E4M3;
    call->token_bytes = (uint32_t)hidden;
    call->scale_bytes = (uint32_t)(scales * sizeof(float));
    TRY(shim_experts_tensor(handle->group, outputs->tokens, &out, &call->out));
    return shim_experts_tensor(handle->group, outputs->scales, &out_scales, &call->out_scales);
}

static ncclResult_t check_recipe(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                 const ncclEpDispatchOutputs_t *outputs, const ncclEpDispatchConfig_t *config,
                                 alg_experts_call_t *call)
{
    switch (config->quant_recipe) {
    case NCCL_EP_DISP_QUANT_NONE:
        return check_plain(handle, inputs, outputs, call);
    case NCCL_EP_DISP_QUANT_FWD:
        if (config->round_scales)
            return shim_experts_refuse(ncclInvalidArgument, "%s: round_scales with QUANT_FWD, which makes no scales",
                                       dispatch);
        return check_forwarded(handle, inputs, outputs, call);
    case NCCL_EP_DISP_QUANT_DS_FP8E3M4:
        call->round_scales = config->round_scales != 0;
        return check_quantized(handle, inputs, outputs, call);
    default:
        return shim_experts_refuse(ncclInvalidArgument, "%s: quant_recipe %d is unknown", dispatch,
                                   (int)config->quant_recipe);
    }
}

static ncclResult_t check_counters(const shim_experts_handle_t *handle, const ncclEpTensor_t *tensor, const char *name,
                                   alg_experts_call_t *call)
{
    const alg_experts_shape_t *shape = &handle->group->shape;
    const shim_experts_want_t want = {.name = name,
                                      .type = ncclInt32,
                                      .ndim = 1,
                                      .sizes = {handle->rank_major ? shape->nranks : shape->experts / shape->nranks},
                                      .alignment = 4};
    void *data = NULL;
    TRY(shim_experts_tensor(handle->group, tensor, &want, &data));
    call->counters = data;
    return ncclSuccess;
}

static ncclResult_t check_expert_major(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                       const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                                       alg_experts_call_t *call)
{
    static const char where[] = "in the expert-major layout";
    TRY(check_absent(inputs->topk_weights, "ncclEpDispatch: inputs->topk_weights", where));
    TRY(check_absent(outputs->topk_weights, "ncclEpDispatch: outputs->topk_weights", where));
    TRY(check_absent(outputs->topk_idx, "ncclEpDispatch: outputs->topk_idx", where));
    TRY(check_absent(layout->src_rank_counters, "ncclEpDispatch: src_rank_counters", where));
    return check_counters(handle, layout->expert_counters, "ncclEpDispatch: expert_counters", call);
}

static ncclResult_t check_rank_major(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                     const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                                     alg_experts_call_t *call)
{
    shim_experts_want_t weights = received(handle, "ncclEpDispatch: outputs->topk_weights", ncclFloat32, handle->top_k);
    shim_experts_want_t choices = received(handle, "ncclEpDispatch: outputs->topk_idx", ncclInt32, handle->top_k);
    void *data = NULL;
    weights.alignment = choices.alignment = 4;
    TRY(check_absent(layout->expert_counters, "ncclEpDispatch: expert_counters", "in the rank-major layout"));
    TRY(check_weights(handle, "ncclEpDispatch: inputs->topk_weights", inputs->topk_weights, call));
    TRY(shim_experts_tensor(handle->group, outputs->topk_weights, &weights, &data));
    call->out_weights = data;
    TRY(shim_experts_tensor(handle->group, outputs->topk_idx, &choices, &data));
    call->out_choices = data;
    call->global_ids = layout->recv_topk_idx_kind == NCCL_EP_EXPERT_ID_GLOBAL;
    if (!layout->src_rank_counters)
        return ncclSuccess;
    return check_counters(handle, layout->src_rank_counters, "ncclEpDispatch: src_rank_counters", call);
}

ncclResult_t shim_experts_check_dispatch(const shim_experts_handle_t *handle, const ncclEpDispatchInputs_t *inputs,
                                         const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout,
                                         const ncclEpDispatchConfig_t *config, alg_experts_call_t *call)
{
    TRY(check_common(handle, dispatch, inputs->tokens, 2, config->pass_direction));
    const shim_experts_want_t tokens = {.name = "ncclEpDispatch: inputs->tokens",
                                        .type = inputs->tokens->datatype,
                                        .ndim = 2,
                                        .sizes = {handle->tokens, inputs->tokens->sizes[1]},
                                        .alignment = ALIGNMENT};
    void *rows = NULL;
    if (inputs->tokens->sizes[1] > UINT32_MAX / sizeof(double))
        return shim_experts_refuse(ncclInvalidArgument, "%s: hidden is %zu, which is too large", dispatch,
                                   inputs->tokens->sizes[1]);
    if ((unsigned)layout->recv_topk_idx_kind > NCCL_EP_EXPERT_ID_GLOBAL)
        return shim_experts_refuse(ncclInvalidArgument, "%s: recv_topk_idx_kind %d is unknown", dispatch,
                                   (int)layout->recv_topk_idx_kind);
    begin(handle, false, call);
    TRY(shim_experts_tensor(handle->group, inputs->tokens, &tokens, &rows));
    call->rows = rows;
    TRY(check_recipe(handle, inputs, outputs, config, call));
    return handle->rank_major ? check_rank_major(handle, inputs, outputs, layout, call)
                              : check_expert_major(handle, inputs, outputs, layout, call);
}

static const char combine[] = "ncclEpCombine";

ncclResult_t shim_experts_check_combine(const shim_experts_handle_t *handle, const ncclEpCombineInputs_t *inputs,
                                        const ncclEpCombineOutputs_t *outputs, const ncclEpCombineConfig_t *config,
                                        alg_experts_call_t *call)
{
    TRY(check_common(handle, combine, inputs->tokens, 3, config->pass_direction));
    const ncclDataType_t type = inputs->tokens->datatype;
    const size_t hidden = inputs->tokens->sizes[2];
    void *rows = NULL;
    if (config->quant_recipe == NCCL_EP_COMB_QUANT_NVFP4)
        return shim_experts_refuse(
            ncclInvalidUsage, "%s: NVFP4 is not served; SHUNT_ENABLE=0 leaves all groups to the real library", combine);
    if (config->quant_recipe != NCCL_EP_COMB_QUANT_NONE)
        return shim_experts_refuse(ncclInvalidArgument, "%s: quant_recipe %d is unknown", combine,
                                   (int)config->quant_recipe);
    TRY(check_absent(inputs->scales, "ncclEpCombine: inputs->scales", "without a recipe"));
    if (!is_plain(type))
        return shim_experts_refuse(ncclInvalidArgument, "%s: tokens of type %d cannot be added", combine, (int)type);
    if (hidden % COMBINED_UNIT != 0 || hidden > UINT32_MAX / sizeof(double))
        return shim_experts_refuse(ncclInvalidArgument, "%s: hidden is %zu, not a multiple of 128", combine, hidden);
    TRY(check_bytes(handle, combine, hidden * shim_experts_type_bytes(type)));
    const shim_experts_want_t in = received(handle, "ncclEpCombine: inputs->tokens", type, hidden);
    const shim_experts_want_t out = {.name = "ncclEpCombine: outputs->tokens",
                                     .type = type,
                                     .ndim = 2,
                                     .sizes = {handle->tokens, hidden},
                                     .alignment = ALIGNMENT};
    begin(handle, true, call);
    TRY(shim_experts_tensor(handle->group, inputs->tokens, &in, &rows));
    TRY(shim_experts_tensor(handle->group, outputs->tokens, &out, &call->out));
    call->rows = rows;
    call->type = (alg_type_t)type;
    call->token_bytes = (uint32_t)(hidden * shim_experts_type_bytes(type));
    if (handle->rank_major) /* the program has applied the weights */
        return ncclSuccess;
    return check_weights(handle, "ncclEpCombine: outputs->topk_weights", outputs->topk_weights, call);
}
