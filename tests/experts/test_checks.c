/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call refuses: each fault gives an error with a text, launches nothing, and leaves the group in order.
 */
#include "../cpu/cpu.h"
#include "experts.h"

#include <string.h>

typedef experts_round_t round_t;

/* ---- Dispatch, each layout ---- */

static void no_tokens(round_t *r)
{
    r->inputs.tokens = NULL;
}
static void flat_tokens(round_t *r)
{
    r->tokens.t.ndim = 1;
}
static void no_sizes(round_t *r)
{
    r->tokens.t.sizes = NULL;
}
static void other_count(round_t *r)
{
    r->tokens.sizes[0]++;
}
static void odd_hidden(round_t *r)
{
    r->tokens.sizes[1] = r->out.sizes[2] = 24;
}
static void no_hidden(round_t *r)
{
    r->tokens.sizes[1] = r->out.sizes[2] = 0;
}
static void much_hidden(round_t *r)
{
    r->tokens.sizes[1] = r->out.sizes[2] = 2 * EXPERTS_HIDDEN;
}
static void endless_hidden(round_t *r)
{
    r->tokens.sizes[1] = r->out.sizes[2] = SIZE_MAX / 2;
}
static void skewed(round_t *r)
{
    r->tokens.t.data = (char *)r->tokens.t.data + 8;
}
static void nowhere(round_t *r)
{
    r->out.t.data = NULL;
}
static void window_only(round_t *r)
{
    r->out.t.data = NULL;
    r->out.t.win_hdl = (ncclWindow_t)&r->out;
}
static void integers(round_t *r)
{
    r->tokens.t.datatype = r->out.t.datatype = ncclInt32;
}
static void no_output(round_t *r)
{
    r->outputs.tokens = NULL;
}
static void flat_output(round_t *r)
{
    r->out.t.ndim = 2;
}
static void short_output(round_t *r)
{
    r->out.sizes[1]--;
}
static void few_rows(round_t *r)
{
    r->out.sizes[0]--;
}
static void other_type(round_t *r)
{
    r->out.t.datatype = ncclInt32;
}
static void stray_scales(round_t *r)
{
    r->inputs.scales = &r->scales.t;
}
static void stray_out_scales(round_t *r)
{
    r->outputs.scales = &r->out_scales.t;
}
static void backward(round_t *r)
{
    r->config.pass_direction = NCCL_EP_BWD_PASS;
}
static void unknown_recipe(round_t *r)
{
    r->config.quant_recipe = (ncclEpDispQuant_t)7;
}
static void unknown_ids(round_t *r)
{
    r->layout.recv_topk_idx_kind = (ncclEpExpertIdKind_t)3;
}
static void long_counters(round_t *r)
{
    r->counters.sizes[0]++;
}
static void wide_counters(round_t *r)
{
    r->counters.t.datatype = ncclInt64;
}

/* ---- Dispatch, recipes ---- */

static void forward(round_t *r)
{
    r->config.quant_recipe = NCCL_EP_DISP_QUANT_FWD;
    r->tokens.sizes[1] = r->out.sizes[2] = 256; /* leaves room for scales */
    r->inputs.scales = &r->scales.t;
    r->outputs.scales = &r->out_scales.t;
}
static void forward_rounded(round_t *r)
{
    forward(r);
    r->config.round_scales = 1;
}
static void forward_no_scales(round_t *r)
{
    forward(r);
    r->inputs.scales = NULL;
}
static void forward_no_out_scales(round_t *r)
{
    forward(r);
    r->outputs.scales = NULL;
}
static void forward_odd_scales(round_t *r)
{
    forward(r);
    r->scales.sizes[1] = r->out_scales.sizes[2] = 3;
}
static void forward_empty_scales(round_t *r)
{
    forward(r);
    r->scales.sizes[1] = r->out_scales.sizes[2] = 0;
}
static void forward_other_scales(round_t *r)
{
    forward(r);
    r->out_scales.t.datatype = ncclUint8;
}
static void forward_wide_scales(round_t *r)
{
    forward(r);
    r->scales.t.datatype = r->out_scales.t.datatype = ncclFloat64;
}
static void forward_integers(round_t *r)
{
    forward(r);
    r->tokens.t.datatype = r->out.t.datatype = ncclUint8;
}
static void forward_odd_bytes(round_t *r)
{
    forward(r);
    r->tokens.sizes[1] = r->out.sizes[2] = 250;
}
static void forward_too_much(round_t *r)
{
    forward(r);
    r->tokens.sizes[1] = r->out.sizes[2] = EXPERTS_HIDDEN;
}
static void quantize(round_t *r)
{
    r->config.quant_recipe = NCCL_EP_DISP_QUANT_DS_FP8E3M4;
    r->tokens.t.datatype = ncclBfloat16;
    r->out.t.datatype = ncclFloat8e4m3;
    r->outputs.scales = &r->out_scales.t;
}
static void quantize_floats(round_t *r)
{
    quantize(r);
    r->tokens.t.datatype = ncclFloat32;
}
static void quantize_into_floats(round_t *r)
{
    quantize(r);
    r->out.t.datatype = ncclBfloat16;
}
static void quantize_odd(round_t *r)
{
    quantize(r);
    r->tokens.sizes[1] = r->out.sizes[2] = 384;
}
static void quantize_given(round_t *r)
{
    quantize(r);
    r->inputs.scales = &r->scales.t;
}
static void quantize_no_scales(round_t *r)
{
    quantize(r);
    r->outputs.scales = NULL;
}
static void quantize_few_scales(round_t *r)
{
    quantize(r);
    r->out_scales.sizes[2] = 3;
}

/* ---- Layouts ---- */

static void em_weights(round_t *r)
{
    r->inputs.topk_weights = &r->weights.t;
}
static void em_out_weights(round_t *r)
{
    r->outputs.topk_weights = &r->out_weights.t;
}
static void em_choices(round_t *r)
{
    r->outputs.topk_idx = &r->out_choices.t;
}
static void em_no_counters(round_t *r)
{
    r->layout.expert_counters = NULL;
}
static void em_rank_counters(round_t *r)
{
    r->layout.src_rank_counters = &r->counters.t;
}
static void rm_no_weights(round_t *r)
{
    r->inputs.topk_weights = NULL;
}
static void rm_few_weights(round_t *r)
{
    r->weights.sizes[1]--;
}
static void rm_half_weights(round_t *r)
{
    r->weights.t.datatype = ncclFloat16;
}
static void rm_no_out_weights(round_t *r)
{
    r->outputs.topk_weights = NULL;
}
static void rm_no_choices(round_t *r)
{
    r->outputs.topk_idx = NULL;
}
static void rm_wide_choices(round_t *r)
{
    r->out_choices.t.datatype = ncclInt64;
}
static void rm_expert_counters(round_t *r)
{
    r->layout.expert_counters = &r->counters.t;
}

/* ---- Combine ---- */

static void back_missing(round_t *r)
{
    r->back.tokens = NULL;
}
static void back_flat(round_t *r)
{
    r->out.t.ndim = 2;
}
static void back_scales(round_t *r)
{
    r->back.scales = &r->out_scales.t;
}
static void back_no_output(round_t *r)
{
    r->result.tokens = NULL;
}
static void back_other_output(round_t *r)
{
    r->combined.sizes[0]++;
}
static void back_other_type(round_t *r)
{
    r->combined.t.datatype = ncclBfloat16;
}
static void back_bytes(round_t *r)
{
    r->out.t.datatype = r->combined.t.datatype = ncclFloat8e4m3;
}
static void back_odd(round_t *r)
{
    r->out.sizes[2] = r->combined.sizes[1] = 192;
}
static void back_backward(round_t *r)
{
    r->combine.pass_direction = NCCL_EP_BWD_PASS;
}
static void back_fp4(round_t *r)
{
    r->combine.quant_recipe = NCCL_EP_COMB_QUANT_NVFP4;
}
static void back_unknown(round_t *r)
{
    r->combine.quant_recipe = (ncclEpCombQuant_t)5;
}
static void back_no_weights(round_t *r)
{
    r->result.topk_weights = NULL;
}
static void back_few_weights(round_t *r)
{
    r->combine_weights.sizes[1]--;
}

enum { EM = 1, RM = 2, BOTH = 3 };
typedef struct fault {
    const char *name;
    void (*make)(round_t *round);
    int layouts;
    bool combine;
    ncclResult_t result; /* 0: ncclInvalidArgument */
} fault_t;
#define FAULT(make, ...)         \
    {                            \
#make, make, __VA_ARGS__ \
    }
static const fault_t faults[] = {
    FAULT(no_tokens, BOTH, false, 0),
    FAULT(flat_tokens, BOTH, false, 0),
    FAULT(no_sizes, BOTH, false, 0),
    FAULT(other_count, BOTH, false, 0),
    FAULT(odd_hidden, BOTH, false, 0),
    FAULT(no_hidden, BOTH, false, 0),
    FAULT(much_hidden, BOTH, false, 0),
    FAULT(endless_hidden, BOTH, false, 0),
    FAULT(skewed, BOTH, false, 0),
    FAULT(nowhere, BOTH, false, 0),
    FAULT(window_only, BOTH, false, ncclInvalidUsage),
    FAULT(integers, BOTH, false, 0),
    FAULT(no_output, BOTH, false, 0),
    FAULT(flat_output, BOTH, false, 0),
    FAULT(short_output, BOTH, false, 0),
    FAULT(few_rows, BOTH, false, 0),
    FAULT(other_type, BOTH, false, 0),
    FAULT(stray_scales, BOTH, false, 0),
    FAULT(stray_out_scales, BOTH, false, 0),
    FAULT(backward, BOTH, false, ncclInvalidUsage),
    FAULT(unknown_recipe, BOTH, false, 0),
    FAULT(unknown_ids, BOTH, false, 0),
    FAULT(long_counters, BOTH, false, 0),
    FAULT(wide_counters, BOTH, false, 0),
    FAULT(forward_rounded, BOTH, false, 0),
    FAULT(forward_no_scales, BOTH, false, 0),
    FAULT(forward_no_out_scales, BOTH, false, 0),
    FAULT(forward_odd_scales, BOTH, false, 0),
    FAULT(forward_empty_scales, BOTH, false, 0),
    FAULT(forward_other_scales, BOTH, false, 0),
    FAULT(forward_wide_scales, BOTH, false, 0),
    FAULT(forward_integers, BOTH, false, 0),
    FAULT(forward_odd_bytes, BOTH, false, 0),
    FAULT(forward_too_much, BOTH, false, 0),
    FAULT(quantize_floats, BOTH, false, 0),
    FAULT(quantize_into_floats, BOTH, false, 0),
    FAULT(quantize_odd, BOTH, false, 0),
    FAULT(quantize_given, BOTH, false, 0),
    FAULT(quantize_no_scales, BOTH, false, 0),
    FAULT(quantize_few_scales, BOTH, false, 0),
    FAULT(em_weights, EM, false, 0),
    FAULT(em_out_weights, EM, false, 0),
    FAULT(em_choices, EM, false, 0),
    FAULT(em_no_counters, EM, false, 0),
    FAULT(em_rank_counters, EM, false, 0),
    FAULT(rm_no_weights, RM, false, 0),
    FAULT(rm_few_weights, RM, false, 0),
    FAULT(rm_half_weights, RM, false, 0),
    FAULT(rm_no_out_weights, RM, false, 0),
    FAULT(rm_no_choices, RM, false, 0),
    FAULT(rm_wide_choices, RM, false, 0),
    FAULT(rm_expert_counters, RM, false, 0),
    FAULT(back_missing, BOTH, true, 0),
    FAULT(back_flat, BOTH, true, 0),
    FAULT(back_scales, BOTH, true, 0),
    FAULT(back_no_output, BOTH, true, 0),
    FAULT(back_other_output, BOTH, true, 0),
    FAULT(back_other_type, BOTH, true, 0),
    FAULT(back_bytes, BOTH, true, 0),
    FAULT(back_odd, BOTH, true, 0),
    FAULT(back_backward, BOTH, true, ncclInvalidUsage),
    FAULT(back_fp4, BOTH, true, ncclInvalidUsage),
    FAULT(back_unknown, BOTH, true, 0),
    FAULT(back_no_weights, EM, true, 0),
    FAULT(back_few_weights, EM, true, 0),
};

static const uint64_t seed = 4; /* every rank has tokens */

static void expect(shim_experts_group_t *group, const ranks_t *ranks, const fault_t *fault, bool rank_major)
{
    round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, rank_major, seed);
    void *const out = r->out.t.data, *const tokens = r->tokens.t.data;
    CHECK(r->choices.sizes[0] > 0);
    fault->make(r);
    const ncclResult_t result = fault->combine ? experts_combine(r) : experts_dispatch(r);
    if (result != (fault->result ? fault->result : ncclInvalidArgument))
        check_failed(__FILE__, __LINE__, fault->name, check_detail(result));
    CHECK(strlen(ncclGetLastError(NULL)) > 0);
    r->out.t.data = out;
    r->tokens.t.data = tokens;
    CHECK_NCCL(experts_service()->handle_destroy(r->handle));
    experts_round_free(r);
}

static void faults_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        for (int rank_major = 0; rank_major < 2; rank_major++)
            if (faults[i].layouts >> rank_major & 1)
                expect(group, ranks, &faults[i], rank_major);
    experts_run(group, ranks->rank, ranks->nranks, false, seed);
    experts_run(group, ranks->rank, ranks->nranks, true, seed);
    CHECK_NCCL(experts_service()->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void every_fault_of_a_call_is_an_error(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, faults_body, NULL);
}

/* ---- Handles ---- */

static void handles_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    shim_experts_handle_t *handle = NULL;
    size_t bytes = 0;
    const int most = ranks->nranks * EXPERTS_LOCAL;
    CHECK_RESULT(service->handle_bytes(group, 0, &bytes), ncclInvalidArgument);
    CHECK_RESULT(service->handle_bytes(group, most + 1, &bytes), ncclInvalidArgument);
    CHECK_NCCL(service->handle_bytes(group, EXPERTS_TOP_K, &bytes));
    CHECK_RESULT(service->handle_create(group, NCCL_EP_LAYOUT_UNSET, 1, NULL, &handle), ncclInvalidArgument);
    CHECK_RESULT(service->handle_create(group, NCCL_EP_LAYOUT_FLAT, 1, NULL, &handle), ncclInvalidArgument);
    CHECK_RESULT(service->handle_create(group, NCCL_EP_LAYOUT_RANK_MAJOR, -1, NULL, &handle), ncclInvalidArgument);
    CHECK_RESULT(service->handle_create(group, NCCL_EP_LAYOUT_RANK_MAJOR, most + 1, NULL, &handle),
                 ncclInvalidArgument);

    char *memory = malloc(bytes + 1);
    experts_tensor_t wrong[] = {
        experts_tensor(ncclUint8, 1, bytes - 1, 0, 0, memory), experts_tensor(ncclInt8, 1, bytes, 0, 0, memory),
        experts_tensor(ncclUint8, 2, bytes, 1, 0, memory), experts_tensor(ncclUint8, 1, bytes, 0, 0, NULL)};
    CHECK(memory != NULL);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        wrong[i].t.sizes = wrong[i].sizes;
        CHECK_RESULT(service->handle_create(group, NCCL_EP_LAYOUT_RANK_MAJOR, EXPERTS_TOP_K, &wrong[i].t, &handle),
                     ncclInvalidArgument);
    }
    CHECK(handle == NULL);
    free(memory);
    CHECK_NCCL(service->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void faults_of_a_handle_are_errors(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, handles_body, NULL);
}

static void choices_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, seed);
    shim_experts_handle_t *handle = r->handle, *fresh = NULL;
    int32_t many[(EXPERTS_TOKENS + 1) * EXPERTS_TOP_K] = {0};
    experts_tensor_t wrong[] = {experts_tensor(ncclFloat32, 2, 1, EXPERTS_TOP_K, 0, many),
                                experts_tensor(ncclInt32, 1, 1, 0, 0, many),
                                experts_tensor(ncclInt32, 2, 1, EXPERTS_TOP_K + 1, 0, many),
                                experts_tensor(ncclInt32, 2, EXPERTS_TOKENS + 1, EXPERTS_TOP_K, 0, many),
                                experts_tensor(ncclInt32, 2, 1, EXPERTS_TOP_K, 0, NULL)};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        wrong[i].t.sizes = wrong[i].sizes;
        CHECK_RESULT(service->handle_update(handle, &wrong[i].t), ncclInvalidArgument);
    }
    CHECK_RESULT(service->handle_update(handle, NULL), ncclInvalidArgument);
    CHECK_RESULT(experts_combine(r), ncclInvalidUsage); /* nothing was dispatched */
    CHECK_NCCL(experts_dispatch(r));                    /* the choices from before still hold */
    experts_check_dispatch(r);
    const size_t tokens = r->choices.sizes[0];
    r->choices.sizes[0] = r->combined.sizes[0] = r->combine_weights.sizes[0] = tokens - 1;
    CHECK_NCCL(service->handle_update(handle, &r->choices.t));
    CHECK_RESULT(experts_combine(r), ncclInvalidUsage); /* of other tokens */
    r->choices.sizes[0] = r->combined.sizes[0] = r->combine_weights.sizes[0] = tokens;
    CHECK_NCCL(service->handle_update(handle, &r->choices.t));

    CHECK_NCCL(service->handle_create(group, NCCL_EP_LAYOUT_EXPERT_MAJOR, EXPERTS_TOP_K, NULL, &fresh));
    r->handle = fresh;
    CHECK_RESULT(experts_dispatch(r), ncclInvalidUsage);
    CHECK_RESULT(experts_combine(r), ncclInvalidUsage);
    CHECK_NCCL(service->handle_destroy(fresh));
    CHECK_NCCL(service->handle_destroy(handle));
    experts_round_free(r);
    CHECK_NCCL(service->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void faults_of_choices_change_nothing(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, choices_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_of_a_call_is_an_error),
        cmocka_unit_test(faults_of_a_handle_are_errors),
        cmocka_unit_test(faults_of_choices_change_nothing),
    };
    cpu_limit(20);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
