/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - see experts.h. */
#include "experts.h"

#include <string.h>

experts_place_t experts_place;
_Thread_local cudaStream_t experts_stream;

const shim_experts_service_t *experts_service(void)
{
    const shim_experts_service_t *service = shuntExperts(SHIM_EXPERTS_VERSION);
    CHECK(service != NULL && service->version == SHIM_EXPERTS_VERSION);
    return service;
}

ncclEpGroupConfig_t experts_config(int nranks)
{
    return (ncclEpGroupConfig_t){.size = sizeof(ncclEpGroupConfig_t),
                                 .magic = NCCL_EP_MAGIC,
                                 .version = NCCL_EP_API_VERSION,
                                 .algorithm = NCCL_EP_ALGO_LOW_LATENCY,
                                 .num_experts = (unsigned)nranks * EXPERTS_LOCAL,
                                 .max_dispatch_tokens_per_rank = EXPERTS_TOKENS,
                                 .max_token_bytes = EXPERTS_HIDDEN * sizeof(float)};
}

shim_experts_group_t *experts_group(ncclComm_t comm, int nranks)
{
    const ncclEpGroupConfig_t config = experts_config(nranks);
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    CHECK_NCCL(experts_service()->create(comm, &config, &group, &why));
    if (group == NULL)
        check_failed(__FILE__, __LINE__, "the group is served, but: ", why);
    return group;
}

experts_tensor_t experts_tensor(ncclDataType_t type, unsigned ndim, size_t a, size_t b, size_t c, void *data)
{
    return (experts_tensor_t){.t = {.size = sizeof(ncclEpTensor_t),
                                    .magic = NCCL_EP_TENSOR_MAGIC,
                                    .ndim = ndim,
                                    .datatype = type,
                                    .data = data},
                              .sizes = {a, b, c}};
}

static void *memory(size_t bytes)
{
    void *made = experts_place.make ? experts_place.make(bytes) : aligned_alloc(64, (bytes + 64) / 64 * 64);
    CHECK(made != NULL);
    memset(made, 0xa5, bytes);
    return made;
}

/* ---- What the seed says ---- */

static uint64_t drawn(uint64_t seed, int rank, uint32_t token, uint32_t which)
{
    uint64_t x = seed * 1000003 + (uint64_t)rank * 8191 + token * 131 + which + 1;
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static uint32_t tokens_of(uint64_t seed, int rank)
{
    return (uint32_t)(drawn(seed, rank, 999, 0) % (EXPERTS_TOKENS + 1));
}

/* Different experts, or -1. */
static int64_t choice_of(const experts_round_t *round, int rank, uint32_t token, uint32_t k)
{
    const uint64_t experts = (uint64_t)round->nranks * EXPERTS_LOCAL;
    const uint64_t first = drawn(round->seed, rank, token, 0) % experts;
    const uint64_t step = 1 + drawn(round->seed, rank, token, 1) % (experts - 1);
    return drawn(round->seed, rank, token, 2 + k) % 5 == 0 ? -1 : (int64_t)((first + k * step) % experts);
}

static float weight_of(const experts_round_t *round, int rank, uint32_t token, uint32_t k)
{
    return 1.0f / (float)(1u << drawn(round->seed, rank, token, 20 + k) % 4);
}

static float value_of(const experts_round_t *round, int rank, uint32_t token, uint32_t at)
{
    return (float)(drawn(round->seed, rank, token, 40 + at % 7) % 64);
}

/* ---- Rounds ---- */

static void fill(experts_round_t *r)
{
    const uint32_t tokens = tokens_of(r->seed, r->rank);
    const bool wide = r->seed % 2 == 0;
    for (uint32_t t = 0; t < tokens; t++) {
        float factor = 0;
        for (uint32_t k = 0; k < EXPERTS_TOP_K; k++) {
            const int64_t choice = choice_of(r, r->rank, t, k);
            if (wide)
                ((int64_t *)r->choices.t.data)[t * EXPERTS_TOP_K + k] = choice;
            else
                ((int32_t *)r->choices.t.data)[t * EXPERTS_TOP_K + k] = (int32_t)choice;
            ((float *)r->weights.t.data)[t * EXPERTS_TOP_K + k] = weight_of(r, r->rank, t, k);
            factor += choice < 0 ? 0 : weight_of(r, r->rank, t, k);
        }
        for (uint32_t i = 0; i < EXPERTS_HIDDEN; i++) {
            ((float *)r->tokens.t.data)[t * EXPERTS_HIDDEN + i] = value_of(r, r->rank, t, i);
            r->want[t * EXPERTS_HIDDEN + i] = factor * value_of(r, r->rank, t, i);
        }
    }
}

static void make_tensors(experts_round_t *r)
{
    const size_t tokens = tokens_of(r->seed, r->rank), hidden = EXPERTS_HIDDEN, top_k = EXPERTS_TOP_K;
    const size_t rows = r->rank_major ? (size_t)r->nranks : EXPERTS_LOCAL;
    const size_t slots = r->rank_major ? EXPERTS_TOKENS : (size_t)r->nranks * EXPERTS_TOKENS;
    r->choices =
        experts_tensor(r->seed % 2 == 0 ? ncclInt64 : ncclInt32, 2, tokens, top_k, 0, memory(tokens * top_k * 8));
    r->tokens = experts_tensor(ncclFloat32, 2, tokens, hidden, 0, memory(tokens * hidden * 4));
    r->weights = experts_tensor(ncclFloat32, 2, tokens, top_k, 0, memory(tokens * top_k * 4));
    r->scales = experts_tensor(ncclFloat32, 2, tokens, 4, 0, memory(tokens * 16));
    r->out = experts_tensor(ncclFloat32, 3, rows, slots, hidden, memory(rows * slots * hidden * 4));
    r->out_weights = experts_tensor(ncclFloat32, 3, rows, slots, top_k, memory(rows * slots * top_k * 4));
    r->out_choices = experts_tensor(ncclInt32, 3, rows, slots, top_k, memory(rows * slots * top_k * 4));
    r->out_scales = experts_tensor(ncclFloat32, 3, rows, slots, 4, memory(rows * slots * 16));
    r->counters = experts_tensor(ncclInt32, 1, rows, 0, 0, memory(rows * 4));
    r->combined = experts_tensor(ncclFloat32, 2, tokens, hidden, 0, memory(tokens * hidden * 4));
    r->combine_weights = r->weights;
    r->want = memory(tokens * hidden * 4);
}

/* Tensors point to their own sizes; so a round is never copied. */
static void tie(experts_round_t *r)
{
    experts_tensor_t *const all[] = {&r->choices,  &r->tokens,      &r->weights,        &r->scales,
                                     &r->out,      &r->out_weights, &r->out_choices,    &r->out_scales,
                                     &r->counters, &r->combined,    &r->combine_weights};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        all[i]->t.sizes = all[i]->sizes;
    r->inputs = (ncclEpDispatchInputs_t){.size = sizeof(r->inputs), .magic = NCCL_EP_MAGIC, .tokens = &r->tokens.t};
    r->outputs = (ncclEpDispatchOutputs_t){.size = sizeof(r->outputs), .magic = NCCL_EP_MAGIC, .tokens = &r->out.t};
    r->layout = (ncclEpLayoutInfo_t){.size = sizeof(r->layout), .magic = NCCL_EP_MAGIC};
    r->config = (ncclEpDispatchConfig_t){.size = sizeof(r->config), .magic = NCCL_EP_MAGIC};
    r->back = (ncclEpCombineInputs_t){.size = sizeof(r->back), .magic = NCCL_EP_MAGIC, .tokens = &r->out.t};
    r->result = (ncclEpCombineOutputs_t){.size = sizeof(r->result), .magic = NCCL_EP_MAGIC, .tokens = &r->combined.t};
    r->combine = (ncclEpCombineConfig_t){.size = sizeof(r->combine), .magic = NCCL_EP_MAGIC};
    if (r->rank_major) {
        r->inputs.topk_weights = &r->weights.t;
        r->outputs.topk_weights = &r->out_weights.t;
        r->outputs.topk_idx = &r->out_choices.t;
        r->layout.src_rank_counters = &r->counters.t;
    } else {
        r->layout.expert_counters = &r->counters.t;
        r->result.topk_weights = &r->combine_weights.t;
    }
}

experts_round_t *experts_round(shim_experts_group_t *group, shim_experts_handle_t *handle, int rank, int nranks,
                               bool rank_major, uint64_t seed)
{
    experts_round_t *r = calloc(1, sizeof(*r));
    CHECK(r != NULL);
    r->rank = rank;
    r->nranks = nranks;
    r->rank_major = rank_major;
    r->seed = seed;
    make_tensors(r);
    tie(r);
    fill(r);
    r->handle = handle;
    if (handle == NULL)
        CHECK_NCCL(experts_service()->handle_create(
            group, rank_major ? NCCL_EP_LAYOUT_RANK_MAJOR : NCCL_EP_LAYOUT_EXPERT_MAJOR, EXPERTS_TOP_K, NULL,
            &r->handle));
    CHECK_NCCL(experts_service()->handle_update(r->handle, &r->choices.t));
    return r;
}

void experts_round_free(experts_round_t *r)
{
    void *const all[] = {r->choices.t.data,
                         r->tokens.t.data,
                         r->weights.t.data,
                         r->scales.t.data,
                         r->out.t.data,
                         r->out_weights.t.data,
                         r->out_choices.t.data,
                         r->out_scales.t.data,
                         r->counters.t.data,
                         r->combined.t.data,
                         r->want};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        (experts_place.drop ? experts_place.drop : free)(all[i]);
    free(r);
}

static ncclResult_t ended(ncclResult_t result)
{
    if (result == ncclSuccess && experts_place.wait)
        experts_place.wait();
    return result;
}

ncclResult_t experts_dispatch(experts_round_t *r)
{
    return ended(
        experts_service()->dispatch(r->handle, &r->inputs, &r->outputs, &r->layout, &r->config, experts_stream));
}

ncclResult_t experts_combine(experts_round_t *r)
{
    return ended(experts_service()->combine(r->handle, &r->back, &r->result, &r->combine, experts_stream));
}

ncclResult_t experts_complete(experts_round_t *r)
{
    return ended(experts_service()->complete(r->handle, experts_stream));
}

/* A row of the source's token at `at`. */
static void check_row(const experts_round_t *r, int source, uint32_t token, const float *at)
{
    for (uint32_t i = 0; i < EXPERTS_HIDDEN; i++)
        CHECK(at[i] == value_of(r, source, token, i));
}

static bool goes_to(const experts_round_t *r, int source, uint32_t token, int64_t first, int64_t last)
{
    bool goes = false;
    for (uint32_t k = 0; k < EXPERTS_TOP_K; k++)
        goes = goes || (choice_of(r, source, token, k) >= first && choice_of(r, source, token, k) <= last);
    return goes;
}

static void check_expert_major(const experts_round_t *r)
{
    for (int e = 0; e < EXPERTS_LOCAL; e++) {
        const int64_t expert = r->rank * EXPERTS_LOCAL + e;
        int32_t count = 0;
        for (int source = 0; source < r->nranks; source++)
            for (uint32_t t = 0; t < tokens_of(r->seed, source); t++)
                if (goes_to(r, source, t, expert, expert))
                    check_row(r, source, t,
                              (const float *)r->out.t.data +
                                  ((size_t)e * r->nranks * EXPERTS_TOKENS + (size_t)count++) * EXPERTS_HIDDEN);
        CHECK(((const int32_t *)r->counters.t.data)[e] == count);
    }
}

static void check_slot(const experts_round_t *r, int source, uint32_t token, size_t slot)
{
    const int64_t first = r->rank * EXPERTS_LOCAL;
    check_row(r, source, token, (const float *)r->out.t.data + slot * EXPERTS_HIDDEN);
    for (uint32_t k = 0; k < EXPERTS_TOP_K; k++) {
        const int64_t choice = choice_of(r, source, token, k);
        const bool here = choice >= first && choice < first + EXPERTS_LOCAL;
        const bool global = r->layout.recv_topk_idx_kind == NCCL_EP_EXPERT_ID_GLOBAL;
        CHECK(((const int32_t *)r->out_choices.t.data)[slot * EXPERTS_TOP_K + k] ==
              (here ? (int32_t)(global ? choice : choice - first) : -1));
        if (here)
            CHECK(((const float *)r->out_weights.t.data)[slot * EXPERTS_TOP_K + k] == weight_of(r, source, token, k));
    }
}

static void check_rank_major(const experts_round_t *r)
{
    const int64_t first = r->rank * EXPERTS_LOCAL;
    for (int source = 0; source < r->nranks; source++) {
        size_t count = 0;
        for (uint32_t t = 0; t < tokens_of(r->seed, source); t++)
            if (goes_to(r, source, t, first, first + EXPERTS_LOCAL - 1))
                check_slot(r, source, t, (size_t)source * EXPERTS_TOKENS + count++);
        CHECK(((const int32_t *)r->counters.t.data)[source] == (int32_t)count);
    }
}

void experts_check_dispatch(const experts_round_t *r)
{
    (r->rank_major ? check_rank_major : check_expert_major)(r);
}

/* Rank-major: each rank has a token's row once, without weights. */
static float wanted(const experts_round_t *r, uint32_t token, uint32_t at)
{
    float ranks = 0;
    for (int to = 0; to < r->nranks; to++)
        ranks += goes_to(r, r->rank, token, to * EXPERTS_LOCAL, (to + 1) * EXPERTS_LOCAL - 1) ? 1.0f : 0.0f;
    return r->rank_major ? ranks * value_of(r, r->rank, token, at) : r->want[token * EXPERTS_HIDDEN + at];
}

void experts_check_combine(const experts_round_t *r)
{
    for (uint32_t t = 0; t < tokens_of(r->seed, r->rank); t++)
        for (uint32_t i = 0; i < EXPERTS_HIDDEN; i++)
            CHECK(((const float *)r->combined.t.data)[t * EXPERTS_HIDDEN + i] == wanted(r, t, i));
}

void experts_run(shim_experts_group_t *group, int rank, int nranks, bool rank_major, uint64_t seed)
{
    experts_round_t *r = experts_round(group, NULL, rank, nranks, rank_major, seed);
    r->layout.recv_topk_idx_kind = (ncclEpExpertIdKind_t)(seed % 3);
    CHECK_NCCL(experts_dispatch(r));
    experts_check_dispatch(r);
    CHECK_NCCL(experts_combine(r));
    experts_check_combine(r);
    CHECK_NCCL(experts_service()->handle_destroy(r->handle));
    experts_round_free(r);
}
