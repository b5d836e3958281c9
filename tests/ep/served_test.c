/* SPDX-License-Identifier: Apache-2.0 */
/*
 * served_test.c - groups that Shunt serves, by a fake service: what it gets from structures of older, this and newer
 * versions, and which arguments are refused before it. NVIDIA's library does not exist here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "service.h"
#include "structures.h"
#include "tests/abi/child.h"

static ncclEpGroup_t g_group;
static ncclEpHandle_t g_handle;

static int set_up(void **state)
{
    (void)state;
    const ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t, .version = NCCL_EP_API_VERSION, .num_experts = 16);
    g_service = (service_t){0};
    if (ncclEpCreateGroup(&g_group, COMM, &config) != ncclSuccess)
        return -1;
    return ncclEpInitHandle(&g_handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, NULL, 4, NULL) == ncclSuccess ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    g_service.result = ncclSuccess;
    const bool ended = ncclEpHandleDestroy(g_handle) == ncclSuccess && ncclEpGroupDestroy(g_group) == ncclSuccess;
    return ended && g_service.groups == 0 && g_service.handles == 0 ? 0 : -1;
}

#define REFUSED(call) assert_int_equal(call, ncclInvalidArgument)
#define SERVED(call) assert_int_equal(call, ncclSuccess)

/* ---- Structures of other versions ---- */

/* A caller's structure with a tail that this version does not know. */
#define NEWER(type)       \
    struct {              \
        type known;       \
        uint64_t tail[4]; \
    }

static void a_group_of_version_1_has_defaults_behind_it(void **state)
{
    (void)state;
    ncclEpGroup_t group = NULL;
    ncclEpGroupConfig_t config;
    memset(&config, 0xff, sizeof(config)); /* what lies behind is not read */
    config.size = NCCL_EP_GROUP_CONFIG_V1;
    config.magic = NCCL_EP_MAGIC;
    config.timeout_ns = 17;
    SERVED(ncclEpCreateGroup(&group, COMM, &config));
    const ncclEpGroupConfig_t *got = &g_service.config;
    assert_ptr_equal(g_service.create.word[0], COMM);
    assert_int_equal(got->size, sizeof(*got));
    assert_int_equal(got->timeout_ns, 17);
    assert_int_equal(got->num_experts, UINT32_MAX);
    assert_int_equal(got->zero_copy, NCCL_EP_ZERO_COPY_AUTO);
    assert_int_equal(got->overflow_policy, NCCL_EP_OVERFLOW_AUTO);
    assert_int_equal(got->num_topk, 0);
    SERVED(ncclEpGroupDestroy(group));
}

static void a_newer_groups_tail_is_ignored(void **state)
{
    (void)state;
    ncclEpGroup_t group = NULL;
    NEWER(ncclEpGroupConfig_t) config = {.known = EP(ncclEpGroupConfig_t, .version = 9, .num_topk = 6), .tail = {1, 2}};
    config.known.size = sizeof(config);
    SERVED(ncclEpCreateGroup(&group, COMM, &config.known));
    assert_int_equal(g_service.config.size, sizeof(g_service.config));
    assert_int_equal(g_service.config.version, 9);
    assert_int_equal(g_service.config.num_topk, 6);
    SERVED(ncclEpGroupDestroy(group));
}

static void calls_of_version_1_have_defaults_behind_them(void **state)
{
    (void)state;
    size_t sizes[2] = {2, 4};
    ncclEpTensor_t tensor = ep_tensor(NULL, sizes);
    ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t, .tokens = &tensor);
    ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t, .tokens = &tensor, .topk_idx = &tensor);
    ncclEpLayoutInfo_t info = EP(ncclEpLayoutInfo_t, .src_rank_counters = &tensor, .recv_topk_idx_kind = 2);
    ncclEpDispatchConfig_t config = EP(ncclEpDispatchConfig_t, .round_scales = 1, .quant_recipe = 2);
    ncclEpCombineInputs_t back_in = EP(ncclEpCombineInputs_t, .tokens = &tensor, .scales = (ncclEpTensor_t *)1);
    ncclEpCombineOutputs_t back_out = EP(ncclEpCombineOutputs_t, .tokens = &tensor, .topk_weights = &tensor);
    ncclEpCombineConfig_t back = EP(ncclEpCombineConfig_t, .send_only = 1, .quant_recipe = 1);
    info.size = NCCL_EP_LAYOUT_INFO_V1;
    config.size = NCCL_EP_DISPATCH_CONFIG_V1;
    back_in.size = NCCL_EP_COMBINE_INPUTS_V1;
    back.size = NCCL_EP_COMBINE_CONFIG_V1;
    SERVED(ncclEpDispatch(g_handle, &in, &out, &info, &config, STREAM));
    assert_ptr_equal(g_service.dispatch.word[0], STREAM);
    assert_memory_equal(&g_service.dispatch_inputs, &in, sizeof(in));
    assert_memory_equal(&g_service.dispatch_outputs, &out, sizeof(out));
    assert_ptr_equal(g_service.layout.src_rank_counters, &tensor);
    assert_int_equal(g_service.layout.recv_topk_idx_kind, NCCL_EP_EXPERT_ID_AUTO);
    assert_int_equal(g_service.dispatch_config.round_scales, 1);
    assert_int_equal(g_service.dispatch_config.quant_recipe, NCCL_EP_DISP_QUANT_NONE);
    SERVED(ncclEpCombine(g_handle, &back_in, &back_out, &back, STREAM));
    assert_ptr_equal(g_service.combine_inputs.tokens, &tensor);
    assert_null(g_service.combine_inputs.scales);
    assert_memory_equal(&g_service.combine_outputs, &back_out, sizeof(back_out));
    assert_int_equal(g_service.combine_config.send_only, 1);
    assert_int_equal(g_service.combine_config.quant_recipe, NCCL_EP_COMB_QUANT_NONE);
}

static void what_may_be_null_has_defaults(void **state)
{
    (void)state;
    const ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t);
    const ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t);
    const ncclEpCombineInputs_t back_in = EP(ncclEpCombineInputs_t);
    const ncclEpCombineOutputs_t back_out = EP(ncclEpCombineOutputs_t);
    SERVED(ncclEpDispatch(g_handle, &in, &out, NULL, NULL, STREAM));
    const ncclEpLayoutInfo_t info = EP(ncclEpLayoutInfo_t);
    const ncclEpDispatchConfig_t config = EP(ncclEpDispatchConfig_t);
    assert_memory_equal(&g_service.layout, &info, sizeof(info));
    assert_memory_equal(&g_service.dispatch_config, &config, sizeof(config));
    SERVED(ncclEpCombine(g_handle, &back_in, &back_out, NULL, STREAM));
    const ncclEpCombineConfig_t back = EP(ncclEpCombineConfig_t);
    assert_memory_equal(&g_service.combine_config, &back, sizeof(back));
    SERVED(ncclEpComplete(g_handle, NULL, STREAM));
    assert_ptr_equal(g_service.complete.word[0], STREAM);
}

/* A copy of a valid structure with a short size, then one with another magic word, are refused; a longer one is not. */
#define HEAD_IS_CHECKED(type, v1, valid, call)                \
    do {                                                      \
        NEWER(type) given = {.known = (valid)}, good = given; \
        type *const s = &given.known;                         \
        given.known.size = (v1)-1;                            \
        REFUSED(call);                                        \
        given = good;                                         \
        given.known.magic ^= 1;                               \
        REFUSED(call);                                        \
        given = good;                                         \
        given.known.size = sizeof(given);                     \
        SERVED(call);                                         \
    } while (0)

static void every_head_is_checked(void **state)
{
    (void)state;
    size_t bytes;
    const ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t);
    const ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t);
    const ncclEpCombineInputs_t back_in = EP(ncclEpCombineInputs_t);
    const ncclEpCombineOutputs_t back_out = EP(ncclEpCombineOutputs_t);
    HEAD_IS_CHECKED(ncclEpDispatchInputs_t, NCCL_EP_DISPATCH_INPUTS_V1, in,
                    ncclEpDispatch(g_handle, s, &out, NULL, NULL, STREAM));
    HEAD_IS_CHECKED(ncclEpDispatchOutputs_t, NCCL_EP_DISPATCH_OUTPUTS_V1, out,
                    ncclEpDispatch(g_handle, &in, s, NULL, NULL, STREAM));
    HEAD_IS_CHECKED(ncclEpLayoutInfo_t, NCCL_EP_LAYOUT_INFO_V1, EP(ncclEpLayoutInfo_t),
                    ncclEpDispatch(g_handle, &in, &out, s, NULL, STREAM));
    HEAD_IS_CHECKED(ncclEpDispatchConfig_t, NCCL_EP_DISPATCH_CONFIG_V1, EP(ncclEpDispatchConfig_t),
                    ncclEpDispatch(g_handle, &in, &out, NULL, s, STREAM));
    HEAD_IS_CHECKED(ncclEpCombineInputs_t, NCCL_EP_COMBINE_INPUTS_V1, back_in,
                    ncclEpCombine(g_handle, s, &back_out, NULL, STREAM));
    HEAD_IS_CHECKED(ncclEpCombineOutputs_t, NCCL_EP_COMBINE_OUTPUTS_V1, back_out,
                    ncclEpCombine(g_handle, &back_in, s, NULL, STREAM));
    HEAD_IS_CHECKED(ncclEpCombineConfig_t, NCCL_EP_COMBINE_CONFIG_V1, EP(ncclEpCombineConfig_t),
                    ncclEpCombine(g_handle, &back_in, &back_out, s, STREAM));
    HEAD_IS_CHECKED(ncclEpCompleteConfig_t, NCCL_EP_COMPLETE_CONFIG_V1, EP(ncclEpCompleteConfig_t),
                    ncclEpComplete(g_handle, s, STREAM));
    HEAD_IS_CHECKED(ncclEpHandleConfig_t, NCCL_EP_HANDLE_CONFIG_V1, EP(ncclEpHandleConfig_t),
                    ncclEpHandleMemSize(g_group, NCCL_EP_LAYOUT_RANK_MAJOR, s, &bytes, 1));
    assert_int_equal(g_service.dispatch.calls, 4);
    assert_int_equal(g_service.combine.calls, 3);
    assert_int_equal(g_service.complete.calls, 1);
}

static void every_tensor_is_checked(void **state)
{
    (void)state;
    size_t sizes[2] = {1, 1};
    ncclEpTensor_t bad = ep_tensor(NULL, sizes);
    bad.magic = 0;
    for (int i = 0; i < 4; i++) {
        ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t);
        ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t);
        ncclEpLayoutInfo_t info = EP(ncclEpLayoutInfo_t);
        ncclEpCombineInputs_t back_in = EP(ncclEpCombineInputs_t);
        ncclEpCombineOutputs_t back_out = EP(ncclEpCombineOutputs_t);
        if (i < 3) {
            (&in.tokens)[i] = &bad;
            REFUSED(ncclEpDispatch(g_handle, &in, &out, NULL, NULL, STREAM));
            (&in.tokens)[i] = NULL;
            (&back_in.tokens)[i] = &bad;
            REFUSED(ncclEpCombine(g_handle, &back_in, &back_out, NULL, STREAM));
            (&back_in.tokens)[i] = NULL;
        }
        if (i < 2) {
            (&back_out.tokens)[i] = &bad;
            REFUSED(ncclEpCombine(g_handle, &back_in, &back_out, NULL, STREAM));
        }
        (&info.expert_counters)[i] = &bad;
        REFUSED(ncclEpDispatch(g_handle, &in, &out, &info, NULL, STREAM));
        (&out.tokens)[i] = &bad;
        REFUSED(ncclEpDispatch(g_handle, &in, &out, NULL, NULL, STREAM));
    }
    assert_int_equal(g_service.dispatch.calls + g_service.combine.calls, 0);
}

/* ---- Arguments ---- */

static void a_groups_arguments_are_checked(void **state)
{
    (void)state;
    ncclEpGroup_t group = NULL;
    const ncclEpGroupConfig_t good = EP(ncclEpGroupConfig_t);
    ncclEpGroupConfig_t config = good;
    const int before = g_service.create.calls;
    REFUSED(ncclEpCreateGroup(NULL, COMM, &good));
    REFUSED(ncclEpCreateGroup(&group, NULL, &good));
    REFUSED(ncclEpCreateGroup(&group, COMM, NULL));
    config.size = NCCL_EP_GROUP_CONFIG_V1 - 1;
    REFUSED(ncclEpCreateGroup(&group, COMM, &config));
    config = good;
    config.magic = NCCL_EP_TENSOR_MAGIC;
    REFUSED(ncclEpCreateGroup(&group, COMM, &config));
    assert_int_equal(g_service.create.calls, before);
    g_service.result = ncclSystemError;
    assert_int_equal(ncclEpCreateGroup(&group, COMM, &good), ncclSystemError);
    assert_null(group);
    assert_int_equal(g_service.groups, 1);
}

/* Every function with this group, or handle. */
static void refuse_group(ncclEpGroup_t group)
{
    size_t sizes[2] = {1, 1}, bytes;
    ncclEpTensor_t choices = ep_tensor(NULL, sizes);
    ncclEpHandle_t handle = NULL;
    int mask[8];
    REFUSED(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, &bytes, 1));
    REFUSED(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 1, NULL));
    REFUSED(ncclEpCreateHandle(&handle, group, NCCL_EP_LAYOUT_RANK_MAJOR, &choices, NULL, NULL, STREAM));
    REFUSED(ncclEpMaskQuery(group, mask, STREAM));
    REFUSED(ncclEpMaskUpdate(group, mask, STREAM));
    REFUSED(ncclEpMaskClean(group, STREAM));
    REFUSED(ncclEpGetAsyncError(group, mask));
    REFUSED(ncclEpErrorClear(group));
    assert_null(handle);
    if (group)
        REFUSED(ncclEpGroupDestroy(group));
}

static void refuse_handle(ncclEpHandle_t handle)
{
    size_t sizes[2] = {1, 1};
    ncclEpTensor_t choices = ep_tensor(NULL, sizes);
    const ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t);
    const ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t);
    const ncclEpCombineInputs_t back_in = EP(ncclEpCombineInputs_t);
    const ncclEpCombineOutputs_t back_out = EP(ncclEpCombineOutputs_t);
    REFUSED(ncclEpUpdateHandle(handle, &choices, NULL, STREAM));
    REFUSED(ncclEpDispatch(handle, &in, &out, NULL, NULL, STREAM));
    REFUSED(ncclEpCombine(handle, &back_in, &back_out, NULL, STREAM));
    REFUSED(ncclEpComplete(handle, NULL, STREAM));
    if (handle)
        REFUSED(ncclEpHandleDestroy(handle));
}

static void foreign_and_destroyed_objects_are_refused(void **state)
{
    (void)state;
    uint64_t foreign[16] = {NCCL_EP_MAGIC};
    ncclEpGroup_t group = NULL;
    ncclEpHandle_t handle = NULL;
    const ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    refuse_group(NULL);
    refuse_group((ncclEpGroup_t)foreign);
    refuse_group((ncclEpGroup_t)g_handle);
    refuse_handle(NULL);
    refuse_handle((ncclEpHandle_t)foreign);
    refuse_handle((ncclEpHandle_t)g_group);
    SERVED(ncclEpGroupDestroy(NULL));
    SERVED(ncclEpHandleDestroy(NULL));
    SERVED(ncclEpCreateGroup(&group, COMM, &config));
    SERVED(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 1, NULL));
    SERVED(ncclEpHandleDestroy(handle));
    refuse_handle(handle);
    SERVED(ncclEpGroupDestroy(group));
    refuse_group(group);
}

static void inputs_and_outputs_must_be_there(void **state)
{
    (void)state;
    const ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t);
    const ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t);
    const ncclEpCombineInputs_t back_in = EP(ncclEpCombineInputs_t);
    const ncclEpCombineOutputs_t back_out = EP(ncclEpCombineOutputs_t);
    REFUSED(ncclEpDispatch(g_handle, NULL, &out, NULL, NULL, STREAM));
    REFUSED(ncclEpDispatch(g_handle, &in, NULL, NULL, NULL, STREAM));
    REFUSED(ncclEpCombine(g_handle, NULL, &back_out, NULL, STREAM));
    REFUSED(ncclEpCombine(g_handle, &back_in, NULL, NULL, STREAM));
    REFUSED(ncclEpGetVersion(NULL));
}

static void handles_follow_the_rules_of_low_latency(void **state)
{
    (void)state;
    static const ncclEpLayout_t others[] = {NCCL_EP_LAYOUT_UNSET, NCCL_EP_LAYOUT_FLAT, (ncclEpLayout_t)77};
    size_t bytes = 7, sizes[2] = {3, 4};
    ncclEpTensor_t memory = ep_tensor(NULL, sizes), choices = memory, bad = memory;
    ncclEpHandle_t handle = NULL;
    ncclEpLayoutInfo_t info = EP(ncclEpLayoutInfo_t);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        REFUSED(ncclEpInitHandle(&handle, g_group, others[i], NULL, 1, NULL));
        REFUSED(ncclEpCreateHandle(&handle, g_group, others[i], &choices, NULL, NULL, STREAM));
        REFUSED(ncclEpHandleMemSize(g_group, others[i], NULL, &bytes, 1));
    }
    REFUSED(ncclEpInitHandle(&handle, g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 0, NULL));
    REFUSED(ncclEpInitHandle(&handle, g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, -1, NULL));
    REFUSED(ncclEpInitHandle(NULL, g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 1, NULL));
    REFUSED(ncclEpHandleMemSize(g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, &bytes, 0));
    REFUSED(ncclEpHandleMemSize(g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, NULL, 1));
    REFUSED(ncclEpUpdateHandle(g_handle, &choices, &info, STREAM));
    REFUSED(ncclEpUpdateHandle(g_handle, NULL, NULL, STREAM));
    bad.size = NCCL_EP_TENSOR_V1 - 1;
    REFUSED(ncclEpUpdateHandle(g_handle, &bad, NULL, STREAM));
    REFUSED(ncclEpInitHandle(&handle, g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 1, &bad));
    assert_int_equal(bytes, 7);
    assert_null(handle);
    assert_int_equal(g_service.handle_create.calls, 1); /* of the set-up */
    SERVED(ncclEpHandleMemSize(g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, &bytes, 6));
    assert_int_equal(bytes, SERVICE_HANDLE_BYTES);
    assert_int_equal(g_service.handle_bytes.word[0], 6);
    SERVED(ncclEpInitHandle(&handle, g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 6, &memory));
    const uint64_t word[] = {NCCL_EP_LAYOUT_RANK_MAJOR, 6, WORD(&memory)};
    assert_memory_equal(g_service.handle_create.word, word, sizeof(word));
    SERVED(ncclEpUpdateHandle(handle, &choices, NULL, STREAM));
    assert_ptr_equal(g_service.handle_update.word[0], &choices);
    SERVED(ncclEpHandleDestroy(handle));
}

static void a_created_handle_is_updated(void **state)
{
    (void)state;
    size_t sizes[2] = {3, 5};
    ncclEpTensor_t choices = ep_tensor(NULL, sizes), flat = choices;
    ncclEpLayoutInfo_t info = EP(ncclEpLayoutInfo_t);
    ncclEpHandle_t handle = NULL;
    SERVED(ncclEpCreateHandle(&handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, &choices, NULL, NULL, STREAM));
    assert_int_equal(g_service.handle_create.word[1], 5);
    assert_ptr_equal(g_service.handle_update.word[0], &choices);
    SERVED(ncclEpHandleDestroy(handle));
    handle = NULL;
    flat.ndim = 1;
    REFUSED(ncclEpCreateHandle(&handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, &flat, NULL, NULL, STREAM));
    REFUSED(ncclEpCreateHandle(&handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, NULL, NULL, NULL, STREAM));
    REFUSED(ncclEpCreateHandle(&handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, &choices, &info, NULL, STREAM));
    sizes[1] = 0;
    REFUSED(ncclEpCreateHandle(&handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, &choices, NULL, NULL, STREAM));
    sizes[1] = (size_t)1 << 40;
    REFUSED(ncclEpCreateHandle(&handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, &choices, NULL, NULL, STREAM));
    sizes[1] = 5;
    g_service.update = ncclInvalidUsage;
    assert_int_equal(ncclEpCreateHandle(&handle, g_group, NCCL_EP_LAYOUT_EXPERT_MAJOR, &choices, NULL, NULL, STREAM),
                     ncclInvalidUsage);
    assert_null(handle);
    assert_int_equal(g_service.handles, 1); /* nothing leaks */
}

static void errors_of_the_service_are_returned(void **state)
{
    (void)state;
    size_t bytes = 7;
    ncclEpHandle_t handle = NULL;
    const ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t);
    const ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t);
    g_service.result = ncclRemoteError;
    assert_int_equal(ncclEpDispatch(g_handle, &in, &out, NULL, NULL, STREAM), ncclRemoteError);
    assert_int_equal(ncclEpComplete(g_handle, NULL, STREAM), ncclRemoteError);
    assert_int_equal(ncclEpHandleMemSize(g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, &bytes, 6), ncclRemoteError);
    assert_int_equal(bytes, 7);
    assert_int_equal(ncclEpInitHandle(&handle, g_group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 6, NULL), ncclRemoteError);
    assert_null(handle);
}

static void a_group_lives_until_its_last_handle_ends(void **state)
{
    (void)state;
    ncclEpGroup_t group = NULL;
    ncclEpHandle_t handle = NULL;
    const ncclEpGroupConfig_t config = EP(ncclEpGroupConfig_t);
    SERVED(ncclEpCreateGroup(&group, COMM, &config));
    SERVED(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_RANK_MAJOR, NULL, 1, NULL));
    SERVED(ncclEpGroupDestroy(group)); /* the fake ends the process if handles are left when it destroys a group */
    refuse_group(group);
    assert_int_equal(g_service.groups, 2);
    SERVED(ncclEpComplete(handle, NULL, STREAM));
    SERVED(ncclEpHandleDestroy(handle));
    assert_int_equal(g_service.groups, 1);
}

static void a_served_group_has_no_masks(void **state)
{
    (void)state;
    int mask[8] = {0};
    assert_int_equal(ncclEpMaskQuery(g_group, mask, STREAM), ncclInvalidUsage);
    assert_int_equal(ncclEpMaskUpdate(g_group, mask, STREAM), ncclInvalidUsage);
    assert_int_equal(ncclEpMaskClean(g_group, STREAM), ncclInvalidUsage);
    assert_int_equal(ncclEpGetAsyncError(g_group, mask), ncclInvalidUsage);
    assert_int_equal(ncclEpErrorClear(g_group), ncclInvalidUsage);
}

/* ---- Tensors ---- */

static void an_allocated_tensor_is_whole(void **state)
{
    (void)state;
    const size_t sizes[3] = {5, 6, 7};
    ncclEpTensor_t *tensor = NULL;
    SERVED(ncclEpTensorAlloc(&tensor, 3, ncclFloat16, sizes, NULL));
    assert_int_equal(tensor->size, sizeof(*tensor));
    assert_int_equal(tensor->ndim, 3);
    assert_int_equal(tensor->datatype, ncclFloat16);
    assert_null(tensor->data);
    assert_null(tensor->win_hdl);
    assert_int_equal(tensor->win_offset, 0);
    assert_memory_equal(tensor->sizes, sizes, sizeof(sizes));
    tensor->win_hdl = (ncclWindow_t)8;
    tensor->sizes[0] = 1;
    SERVED(ncclEpUpdateHandle(g_handle, tensor, NULL, STREAM));
    assert_ptr_equal(g_service.handle_update.word[0], tensor);
    SERVED(ncclEpTensorDestroy(tensor));
    SERVED(ncclEpTensorDestroy(NULL));
}

static void tensors_that_are_not_allocated_are_not_destroyed(void **state)
{
    (void)state;
    size_t sizes[2] = {1, 1};
    ncclEpTensor_t own = ep_tensor(NULL, sizes), zero = {0}, *tensor = NULL;
    REFUSED(ncclEpTensorDestroy(&own));
    REFUSED(ncclEpTensorDestroy(&zero));
    SERVED(ncclEpTensorAlloc(&tensor, 2, ncclInt32, sizes, NULL));
    size_t *array = tensor->sizes;
    tensor->sizes = sizes; /* the library's own array */
    REFUSED(ncclEpTensorDestroy(tensor));
    REFUSED(ncclEpUpdateHandle(g_handle, tensor, NULL, STREAM));
    tensor->sizes = array;
    SERVED(ncclEpTensorDestroy(tensor));
}

static void a_tensors_arguments_are_checked(void **state)
{
    (void)state;
    const size_t sizes[1] = {1};
    ncclEpTensor_t *tensor = NULL;
    REFUSED(ncclEpTensorAlloc(NULL, 1, ncclUint8, sizes, NULL));
    REFUSED(ncclEpTensorAlloc(&tensor, 0, ncclUint8, sizes, NULL));
    REFUSED(ncclEpTensorAlloc(&tensor, 1, ncclUint8, NULL, NULL));
    NEWER(ncclEpTensorAllocConfig_t) config = {.known = EP(ncclEpTensorAllocConfig_t), .tail = {5}};
    config.known.size = NCCL_EP_TENSOR_ALLOC_CONFIG_V1 - 1;
    REFUSED(ncclEpTensorAlloc(&tensor, 1, ncclUint8, sizes, &config.known));
    config.known.size = sizeof(config);
    config.known.magic ^= 1;
    REFUSED(ncclEpTensorAlloc(&tensor, 1, ncclUint8, sizes, &config.known));
    assert_null(tensor);
    config.known.magic ^= 1;
    SERVED(ncclEpTensorAlloc(&tensor, 1, ncclUint8, sizes, &config.known));
    SERVED(ncclEpTensorDestroy(tensor));
}

/* ---- What the log says ---- */

static int wrong_sizes(void *unused)
{
    (void)unused;
    size_t sizes[2] = {1, 4};
    ncclEpDispatchInputs_t in = EP(ncclEpDispatchInputs_t);
    ncclEpDispatchOutputs_t out = EP(ncclEpDispatchOutputs_t);
    ncclEpTensor_t tensor = ep_tensor(NULL, sizes), *allocated = NULL;
    in.magic = 7;
    CHILD_CHECK(ncclEpDispatch(g_handle, &in, &out, NULL, NULL, STREAM) == ncclInvalidArgument);
    in.magic = NCCL_EP_MAGIC;
    out.tokens = &tensor;
    tensor.size = 8;
    CHILD_CHECK(ncclEpDispatch(g_handle, &in, &out, NULL, NULL, STREAM) == ncclInvalidArgument);
    CHILD_CHECK(ncclEpTensorAlloc(&allocated, 2, ncclInt32, sizes, NULL) == ncclSuccess);
    allocated->sizes = sizes;
    CHILD_CHECK(ncclEpUpdateHandle(g_handle, allocated, NULL, STREAM) == ncclInvalidArgument);
    return 0;
}

static void a_refused_structure_has_a_line(void **state)
{
    (void)state;
    char text[4096];
    assert_int_equal(child_run(wrong_sizes, NULL, text, sizeof(text)), 0);
    assert_int_equal(child_count(text, "\n"), 3);
    assert_int_equal(child_count(text, "WARN ncclEpDispatchInputs_t has size "), 1);
    assert_int_equal(child_count(text, " and magic word 0x7, not a size of at least "), 1);
    assert_int_equal(child_count(text, "WARN ncclEpDispatchOutputs_t: a tensor has size 8 and magic word "), 1);
    assert_int_equal(child_count(text, "WARN topk_idx: the pointer to the sizes of a tensor "), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_group_of_version_1_has_defaults_behind_it),
        TEST(a_newer_groups_tail_is_ignored),
        TEST(calls_of_version_1_have_defaults_behind_them),
        TEST(what_may_be_null_has_defaults),
        TEST(every_head_is_checked),
        TEST(every_tensor_is_checked),
        TEST(a_groups_arguments_are_checked),
        TEST(foreign_and_destroyed_objects_are_refused),
        TEST(inputs_and_outputs_must_be_there),
        TEST(handles_follow_the_rules_of_low_latency),
        TEST(a_created_handle_is_updated),
        TEST(errors_of_the_service_are_returned),
        TEST(a_group_lives_until_its_last_handle_ends),
        TEST(a_served_group_has_no_masks),
        TEST(an_allocated_tensor_is_whole),
        TEST(tensors_that_are_not_allocated_are_not_destroyed),
        TEST(a_tensors_arguments_are_checked),
        TEST(a_refused_structure_has_a_line),
    };
    setenv("SHUNT_NCCL_EP_PATH", "/nowhere", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
