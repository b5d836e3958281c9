/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that follow each other in any order: staged ones with others in between, several handles and groups, memory of
 * the caller or its allocator, the recipes that leave the rows as they are.
 */
#include "../cpu/cpu.h"
#include "experts.h"

#include <string.h>

typedef experts_round_t round_t;

static round_t *staged(shim_experts_group_t *group, const ranks_t *ranks, bool rank_major, uint64_t seed)
{
    round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, rank_major, seed);
    r->config.send_only = 1;
    r->combine.send_only = 1;
    return r;
}

static void end(round_t *r)
{
    CHECK_NCCL(experts_service()->handle_destroy(r->handle));
    experts_round_free(r);
}

/* Open calls of several handles, received in another order, with whole rounds in between. */
static void staged_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    for (uint64_t seed = 0; seed < 4; seed++) {
        round_t *one = staged(group, ranks, false, seed), *other = staged(group, ranks, true, seed + 10);
        CHECK_NCCL(experts_complete(one)); /* nothing is open */
        CHECK_NCCL(experts_dispatch(one));
        experts_run(group, ranks->rank, ranks->nranks, true, seed + 20);
        CHECK_NCCL(experts_dispatch(other));
        experts_run(group, ranks->rank, ranks->nranks, false, seed + 30);
        CHECK_NCCL(experts_complete(other));
        experts_check_dispatch(other);
        CHECK_NCCL(experts_complete(one));
        experts_check_dispatch(one);
        CHECK_NCCL(experts_complete(one));
        CHECK_NCCL(experts_combine(other));
        CHECK_NCCL(experts_combine(one));
        CHECK_NCCL(experts_complete(one));
        CHECK_NCCL(experts_complete(other));
        experts_check_combine(one);
        experts_check_combine(other);
        end(one);
        end(other);
    }
    CHECK_NCCL(service->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void staged_calls_let_others_pass(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 3, staged_body, NULL);
    cpu_run(RANKS_PROCESSES, 4, staged_body, NULL);
}

enum { ROOMS = 4 };

/* A second call of an open handle, and a call for which no room is free, are refused; the others stay open. */
static void rooms_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    round_t *r[ROOMS + 1];
    for (uint64_t i = 0; i <= ROOMS; i++)
        r[i] = staged(group, ranks, i % 2, i);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < ROOMS; i++)
            CHECK_NCCL(experts_dispatch(r[i]));
        CHECK_RESULT(experts_dispatch(r[ROOMS]), ncclInvalidUsage);
        CHECK_RESULT(experts_dispatch(r[1]), ncclInvalidUsage);
        CHECK_RESULT(experts_combine(r[1]), ncclInvalidUsage);
        CHECK_NCCL(experts_complete(r[2]));
        experts_check_dispatch(r[2]);
        CHECK_RESULT(experts_dispatch(r[ROOMS]), ncclInvalidUsage); /* rooms are taken in turn */
        CHECK_NCCL(experts_complete(r[0]));
        CHECK_NCCL(experts_dispatch(r[ROOMS]));
        for (int i = 0; i <= ROOMS; i++)
            CHECK_NCCL(experts_complete(r[i]));
        for (int i = 0; i <= ROOMS; i++)
            experts_check_dispatch(r[i]);
    }
    for (int i = 0; i <= ROOMS; i++)
        end(r[i]);
    CHECK_NCCL(service->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void rooms_are_taken_and_given_back(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, rooms_body, NULL);
}

/* Groups and collectives of one communicator share nothing. */
static void groups_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group[3];
    for (int i = 0; i < 3; i++)
        group[i] = experts_group(comm, ranks->nranks);
    for (uint64_t seed = 0; seed < 12; seed++) {
        float in = (float)ranks->rank, out = -1;
        experts_run(group[seed % 3], ranks->rank, ranks->nranks, seed / 3 % 2, seed);
        CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
        CHECK(out == (float)(ranks->nranks * (ranks->nranks - 1) / 2));
    }
    for (int i = 0; i < 3; i++)
        CHECK_NCCL(service->destroy(group[(i + 1) % 3]));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void groups_share_nothing(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, groups_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, groups_body, NULL);
}

/* ---- Memory ---- */

static void callers_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    size_t bytes = 0;
    CHECK_NCCL(service->handle_bytes(group, EXPERTS_TOP_K, &bytes));
    unsigned char *memory = malloc(bytes + 64);
    CHECK(memory != NULL);
    memset(memory, 0x77, bytes + 64);
    for (size_t skew = 0; skew < 64; skew += 7) {
        shim_experts_handle_t *handle = NULL;
        experts_tensor_t tensor = experts_tensor(ncclUint8, 1, bytes, 0, 0, memory + skew);
        tensor.t.sizes = tensor.sizes;
        CHECK_NCCL(service->handle_create(group, NCCL_EP_LAYOUT_EXPERT_MAJOR, EXPERTS_TOP_K, &tensor.t, &handle));
        round_t *r = experts_round(group, handle, ranks->rank, ranks->nranks, false, skew);
        CHECK_NCCL(experts_dispatch(r));
        CHECK_NCCL(experts_combine(r));
        experts_check_combine(r);
        end(r);
    }
    for (size_t i = 56 + bytes + 7; i < bytes + 64; i++)
        CHECK(memory[i] == 0x77);
    free(memory); /* still the caller's */
    CHECK_NCCL(service->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_handle_takes_memory_of_any_alignment(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, callers_body, NULL);
}

typedef struct account {
    int made, freed;
    bool full;
} account_t;

static int account_alloc(void **memory, size_t bytes, void *context)
{
    account_t *account = context;
    if (account->full)
        return 2;
    account->made++;
    *memory = malloc(bytes);
    return *memory == NULL;
}

static int account_free(void *memory, void *context)
{
    ((account_t *)context)->freed++;
    free(memory);
    return 0;
}

static void allocator_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    ncclComm_t comm = ranks_init(ranks);
    account_t account = {0};
    ncclEpGroupConfig_t config = experts_config(ranks->nranks);
    shim_experts_group_t *group = NULL;
    shim_experts_handle_t *handle = NULL;
    const char *why = NULL;
    config.alloc = (ncclEpAllocConfig_t){account_alloc, account_free, &account};
    CHECK_NCCL(service->create(comm, &config, &group, &why));
    CHECK(group != NULL);
    for (uint64_t seed = 0; seed < 5; seed++)
        experts_run(group, ranks->rank, ranks->nranks, seed % 2, seed);
    CHECK(account.made == 5 && account.freed == 5);
    account.full = true;
    CHECK_FAILS(service->handle_create(group, NCCL_EP_LAYOUT_RANK_MAJOR, EXPERTS_TOP_K, NULL, &handle));
    CHECK(handle == NULL && account.freed == 5);
    CHECK_NCCL(service->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void the_programs_allocator_is_used(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, allocator_body, NULL);
}

/* ---- Recipes ---- */

/* fp32 tokens of 256 elements, sent as bytes, with four scales each that are the token's first elements. */
static void forwarded_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    enum { HIDDEN = 256, SCALES = 4 };
    round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, true, 4);
    const float *tokens = r->tokens.t.data, *out = r->out.t.data, *out_scales = r->out_scales.t.data;
    r->tokens.sizes[1] = r->out.sizes[2] = HIDDEN;
    r->config.quant_recipe = NCCL_EP_DISP_QUANT_FWD;
    r->inputs.scales = &r->scales.t;
    r->outputs.scales = &r->out_scales.t;
    for (size_t t = 0; t < r->tokens.sizes[0]; t++)
        memcpy((float *)r->scales.t.data + t * SCALES, tokens + t * HIDDEN, SCALES * sizeof(float));
    CHECK_NCCL(experts_dispatch(r));
    int received = 0;
    for (int source = 0; source < ranks->nranks; source++) {
        const int count = ((int32_t *)r->counters.t.data)[source];
        CHECK(count >= 0 && count <= EXPERTS_TOKENS);
        received += count;
        for (int i = 0; i < count; i++) {
            const size_t slot = (size_t)source * EXPERTS_TOKENS + (size_t)i;
            CHECK(out[slot * HIDDEN] != out[slot * HIDDEN + HIDDEN - 1]); /* not the poison */
            CHECK(memcmp(out + slot * HIDDEN, out_scales + slot * SCALES, SCALES * sizeof(float)) == 0);
        }
    }
    CHECK(received > 0);
    end(r);
    CHECK_NCCL(experts_service()->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void scales_travel_with_their_tokens(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 3, forwarded_body, NULL);
}

/* bf16 ones become e4m3 with scales that give ones back: the kernels' tests have all values. */
static void quantized_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 4);
    uint16_t *tokens = r->tokens.t.data;
    r->tokens.t.datatype = ncclBfloat16;
    r->out.t.datatype = ncclFloat8e4m3;
    r->config.quant_recipe = NCCL_EP_DISP_QUANT_DS_FP8E3M4;
    r->config.round_scales = 1;
    r->outputs.scales = &r->out_scales.t;
    for (size_t i = 0; i < r->tokens.sizes[0] * EXPERTS_HIDDEN; i++)
        tokens[i] = 0x3f80;
    CHECK_NCCL(experts_dispatch(r));
    const uint8_t *out = r->out.t.data;
    const float *scales = r->out_scales.t.data;
    int received = 0;
    for (int e = 0; e < EXPERTS_LOCAL; e++) {
        const int count = ((int32_t *)r->counters.t.data)[e];
        CHECK(count >= 0 && (size_t)count <= r->out.sizes[1]);
        received += count;
        for (int i = 0; i < count; i++) {
            const size_t slot = (size_t)e * r->out.sizes[1] + (size_t)i;
            const int byte = out[slot * EXPERTS_HIDDEN + 5], exponent = byte >> 3;
            const float value = exponent >= 7 ? (float)(1 << (exponent - 7)) : 1.0f / (float)(1 << (7 - exponent));
            CHECK((byte & 7) == 0 && value * scales[slot * 4 + 1] == 1.0f);
        }
    }
    CHECK(received > 0);
    end(r);
    CHECK_NCCL(experts_service()->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void tokens_are_quantized(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, quantized_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staged_calls_let_others_pass),   cmocka_unit_test(rooms_are_taken_and_given_back),
        cmocka_unit_test(groups_share_nothing),           cmocka_unit_test(a_handle_takes_memory_of_any_alignment),
        cmocka_unit_test(the_programs_allocator_is_used), cmocka_unit_test(scales_travel_with_their_tokens),
        cmocka_unit_test(tokens_are_quantized),
    };
    cpu_limit(30);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
