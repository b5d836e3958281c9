/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is served: all ranks of a group or none, with one reason, whatever one of them wants, does or suffers.
 */
#include "../cpu/cpu.h"
#include "experts.h"
#include "shim/experts/group.h"

#include <signal.h>
#include <string.h>

static const char *const short_limit[] = {"SHUNT_TIMEOUT_MS", "6000", NULL};

/* The group must be forwarded; its reason contains `text`. */
static void expect_forwarded(ncclComm_t comm, const ncclEpGroupConfig_t *config, const char *text)
{
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    CHECK_NCCL(experts_service()->create(comm, config, &group, &why));
    CHECK(group == NULL && why != NULL);
    if (strstr(why, text) == NULL || strstr(why, ": rank") != NULL)
        check_failed(__FILE__, __LINE__, "the reason is: ", why);
}

static void served_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    for (uint64_t seed = 0; seed < 6; seed++)
        experts_run(group, ranks->rank, ranks->nranks, seed % 2, seed);
    CHECK_NCCL(experts_service()->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void all_ranks_are_served(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 8; nranks += nranks < 4 ? 1 : 4)
        cpu_run(RANKS_THREADS, nranks, served_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, served_body, NULL);
    cpu_run(RANKS_PROCESSES, 4, served_body, NULL);
}

static void refuse_masks(ncclEpGroupConfig_t *config)
{
    config->enable_mask = 1;
}

static void refuse_throughput(ncclEpGroupConfig_t *config)
{
    config->algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
}

static void refuse_windows(ncclEpGroupConfig_t *config)
{
    config->zero_copy = NCCL_EP_ZERO_COPY_ON;
}

static void refuse_experts(ncclEpGroupConfig_t *config)
{
    config->num_experts++;
}

static void refuse_allocator(ncclEpGroupConfig_t *config)
{
    config->alloc.free_fn = (ncclEpFreeFn_t)(void (*)(void))refuse_experts;
}

static void refuse_size(ncclEpGroupConfig_t *config)
{
    config->max_dispatch_tokens_per_rank = 1u << 20;
}

static void refuse_no_bytes(ncclEpGroupConfig_t *config)
{
    config->max_token_bytes = 0;
}

static void refuse_top_k(ncclEpGroupConfig_t *config)
{
    config->num_topk = 33;
}

static void differ(ncclEpGroupConfig_t *config)
{
    config->max_token_bytes += 16;
}

static const struct refusal {
    void (*change)(ncclEpGroupConfig_t *config);
    const char *why;
} refusals[] = {{refuse_masks, "enable_mask"},     {refuse_throughput, "high throughput"},
                {refuse_windows, "zero_copy"},     {refuse_experts, "num_experts"},
                {refuse_allocator, "only one"},    {refuse_size, "not served"},
                {refuse_no_bytes, "is 0"},         {refuse_top_k, "num_topk"},
                {differ, "another configuration"}, {NULL, NULL}};

/* One rank, then all, want what is not served; the next group is served again. */
static void refused_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (const struct refusal *refusal = refusals; refusal->change != NULL; refusal++) {
        for (int who = 0; who < ranks->nranks + (refusal->change != differ); who++) {
            ncclEpGroupConfig_t config = experts_config(ranks->nranks);
            if (who == ranks->rank || who == ranks->nranks)
                refusal->change(&config);
            expect_forwarded(comm, &config, refusal->why);
        }
    }
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_run(group, ranks->rank, ranks->nranks, false, 3);
    CHECK_NCCL(experts_service()->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void one_refusal_forwards_all(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 3, refused_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, refused_body, NULL);
}

static void arguments_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    ncclEpGroupConfig_t config = experts_config(ranks->nranks);
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    expect_forwarded(NULL, &config, "does not serve");
    CHECK_RESULT(experts_service()->create(comm, NULL, &group, &why), ncclInvalidArgument);
    CHECK(shuntExperts(SHIM_EXPERTS_VERSION + 1) == NULL);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void arguments_are_checked(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, arguments_body, NULL);
}

static void alone_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    const ncclEpGroupConfig_t config = experts_config(1);
    expect_forwarded(comm, &config, "2 to 8 ranks");
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void one_rank_is_forwarded(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 1, alone_body, NULL);
}

static void dies_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    const ncclEpGroupConfig_t config = experts_config(ranks->nranks);
    ranks_barrier(ranks);
    if (ranks->rank == 1)
        raise(SIGKILL);
    const double began = ranks_seconds();
    expect_forwarded(comm, &config, "");
    CHECK(ranks_seconds() - began < 300); /* the limit is 600 s here */
    CHECK_NCCL(ncclCommAbort(comm));
}

static void a_dead_rank_ends_the_meeting(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .killed = 1u << 1, .body = dies_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

/* The last rank comes after the others have given up, and gives up too; then all agree again. */
static void late_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    const ncclEpGroupConfig_t config = experts_config(ranks->nranks);
    const bool last = ranks->rank == ranks->nranks - 1;
    if (last)
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
    expect_forwarded(comm, &config, "a rank did not create the group");
    atomic_fetch_add(&ranks->shared->words[0], 1);
    ranks_barrier(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_run(group, ranks->rank, ranks->nranks, false, 8);
    CHECK_NCCL(experts_service()->destroy(group));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_rank_that_does_not_come_is_not_waited_for(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .env = short_limit, .body = late_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

/* Whether fp32 sums of a group of so many tokens, of 7168 values and 8 choices, have NVIDIA's bits. */
static alg_experts_exact_t exact_of(ncclComm_t comm, int nranks, uint32_t tokens)
{
    ncclEpGroupConfig_t config = experts_config(nranks);
    config.num_experts = 64;
    config.num_topk = 8;
    config.max_token_bytes = 7168 * 4;
    config.max_dispatch_tokens_per_rank = tokens;
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    CHECK_NCCL(experts_service()->create(comm, &config, &group, &why));
    CHECK(group != NULL);
    const alg_experts_exact_t exact = group->shape.exact;
    CHECK_NCCL(experts_service()->destroy(group));
    return exact;
}

static void exact_body(ranks_t *ranks)
{
    enum { WITHIN = 136, ABOVE = 144 };
    const bool *deterministic = ranks->arg;
    ncclComm_t comm = ranks_init(ranks);
    CHECK(exact_of(comm, ranks->nranks, WITHIN) == (*deterministic ? ALG_EXPERTS_EXACT_ALL : ALG_EXPERTS_EXACT_FP32));
    CHECK(exact_of(comm, ranks->nranks, ABOVE) == (*deterministic ? ALG_EXPERTS_EXACT_ALL : ALG_EXPERTS_EXACT_NONE));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void sums_are_exact_while_their_scratch_is_small(void **state)
{
    static const char *const set[] = {"SHUNT_DETERMINISTIC", "1", NULL};
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool deterministic = i == 1;
        ranks_plan_t plan = {.shape = RANKS_PROCESSES,
                             .nranks = 2,
                             .env = deterministic ? set : NULL,
                             .body = exact_body,
                             .arg = &deterministic};
        assert_int_equal(ranks_run(&plan), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_are_served),
        cmocka_unit_test(one_refusal_forwards_all),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(one_rank_is_forwarded),
        cmocka_unit_test(a_dead_rank_ends_the_meeting),
        cmocka_unit_test(a_rank_that_does_not_come_is_not_waited_for),
        cmocka_unit_test(sums_are_exact_while_their_scratch_is_small),
    };
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
