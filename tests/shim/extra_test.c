/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extra_test.c - the memory of ended groups of experts on fake GPUs, with a thread for each rank. A wrapped
 * shim_comm_reap lets one rank after the other free, when all have given up what they had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comms.h"
#include "shim/comm/extra.h"
#include "shim/comm/reap.h"
#include "shim/experts/group.h"

enum { RANKS = 2, GROUPS = 12 };

static ncclComm_t comms[RANKS];
static pthread_barrier_t barrier;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool in_turn;
static atomic_int wrong; /* checks that failed, of all threads */

void __real_shim_comm_reap(void);
void __wrap_shim_comm_reap(void);

void __wrap_shim_comm_reap(void)
{
    if (in_turn)
        pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&turn);
    __real_shim_comm_reap();
    pthread_mutex_unlock(&turn);
}

/* ---- Fakes of algorithms/ ---- */

bool alg_experts_map(const alg_experts_shape_t *shape, alg_map_t *map)
{
    (void)shape;
    *map = (alg_map_t){.pieces = 1};
    return true;
}

uint32_t alg_experts_staged(const alg_experts_shape_t *shape)
{
    (void)shape;
    return 4;
}

uint32_t alg_experts_grid(uint32_t multiprocessors, uint32_t most)
{
    (void)multiprocessors, (void)most;
    return 1;
}

int alg_experts_preload_cuda(const alg_experts_shape_t *shape)
{
    (void)shape;
    return 0;
}

/* ---- Tests ---- */

static void expect(bool holds)
{
    atomic_fetch_add(&wrong, !holds);
}

static shim_experts_group_t *make(int rank)
{
    const ncclEpGroupConfig_t config = {
        .num_experts = 4, .max_dispatch_tokens_per_rank = 8, .max_token_bytes = 32, .num_topk = 2};
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    in_turn = true;
    expect(shim_experts_create(comms[rank], &config, &group, &why) == ncclSuccess && group != NULL);
    in_turn = false;
    return group;
}

static void *one_after_the_other(void *argument)
{
    const int rank = *(const int *)argument;
    for (int i = 0; i < GROUPS; i++) {
        shim_experts_group_t *group = make(rank);
        pthread_barrier_wait(&barrier);
        expect(fake.created - fake.freed == 2 * RANKS); /* the communicator's and the group's */
        pthread_barrier_wait(&barrier);
        expect(shim_experts_destroy(group) == ncclSuccess);
    }
    return NULL;
}

/* A kernel of the group that lives may wait for a peer, and a free would wait for it. */
static void *beside_another(void *argument)
{
    const int rank = *(const int *)argument;
    shim_experts_group_t *lives = make(rank);
    for (int i = 0; i < GROUPS; i++) {
        shim_experts_group_t *group = make(rank);
        pthread_barrier_wait(&barrier);
        expect(fake.retired <= 4); /* RETIRED_MOST */
        pthread_barrier_wait(&barrier);
        expect(shim_experts_destroy(group) == ncclSuccess);
    }
    expect(shim_experts_destroy(lives) == ncclSuccess);
    return NULL;
}

static void run(void *(*body)(void *))
{
    pthread_t thread[RANKS];
    int rank[RANKS];
    atomic_store(&wrong, 0);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, RANKS), 0);
    comms_init(comms, RANKS, comms_id());
    comms_expect(comms, RANKS, SHIM_COMM_ATTACHED);
    for (int r = 0; r < RANKS; r++) {
        rank[r] = r;
        assert_int_equal(pthread_create(&thread[r], NULL, body, &rank[r]), 0);
    }
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(pthread_join(thread[r], NULL), 0);
    comms_destroy(comms, RANKS);
    assert_int_equal(wrong, 0);
    assert_int_equal(fake.created, fake.freed + fake.pooled);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
    fake_reset();
}

static void an_ended_group_is_freed_before_the_next_is_made(void **state)
{
    (void)state;
    run(one_after_the_other);
}

static void few_ended_groups_wait_beside_a_living_one(void **state)
{
    (void)state;
    run(beside_another);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ended_group_is_freed_before_the_next_is_made),
        cmocka_unit_test(few_ended_groups_wait_beside_a_living_one),
    };
    fake_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
