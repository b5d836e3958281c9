/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extra_test.c - the memory of ended groups of experts on fake GPUs, with a thread for each rank. Wrapped,
 * shim_comm_reap and shim_comm_reap_idle let one rank after the other free, when all have given up what they had; and a
 * free can wait for a kernel, as the driver's do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <unistd.h>

#include "comms.h"
#include "shim/comm/extra.h"
#include "shim/comm/reap.h"
#include "shim/experts/group.h"

enum { RANKS = 2, GROUPS = 12, NAPS = 500 };

static ncclComm_t comms[RANKS];
static pthread_barrier_t barrier;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool in_turn;
static atomic_int wrong; /* checks that failed, of all threads */

static _Thread_local bool kernel_waits; /* on this thread's GPU, until `called` */
static atomic_bool called;

void __real_shim_comm_reap(void);
void __wrap_shim_comm_reap(void);
void __real_shim_comm_reap_idle(void);
void __wrap_shim_comm_reap_idle(void);
void __real_alg_scratch_reap(void);
void __wrap_alg_scratch_reap(void);

static void reap(void (*real)(void))
{
    if (in_turn)
        pthread_barrier_wait(&barrier);
    if (!kernel_waits)
        pthread_mutex_lock(&turn);
    real();
    if (!kernel_waits)
        pthread_mutex_unlock(&turn);
}

void __wrap_shim_comm_reap(void)
{
    reap(__real_shim_comm_reap);
}

void __wrap_shim_comm_reap_idle(void)
{
    reap(__real_shim_comm_reap_idle);
}

/* A free may wait for all kernels of a GPU. A call that is launched meanwhile may wait for the thread that frees,
 * unless the other ranks have ended. */
static void count_locks(shim_comm_t *comm, void *context)
{
    int *locks = context;
    locks[0]++;
    if (pthread_mutex_trylock(&comm->lock) != 0)
        return;
    pthread_mutex_unlock(&comm->lock);
    locks[1]++;
}

void __wrap_alg_scratch_reap(void)
{
    int locks[2] = {0, 0}; /* all, free */
    shim_comm_each(count_locks, locks);
    atomic_fetch_add(&wrong, locks[0] > 1 && locks[1] > 0);
    for (int naps = 0; kernel_waits && !atomic_load(&called); naps++) {
        usleep(10000);
        if (naps < NAPS)
            continue;
        atomic_fetch_add(&wrong, 1);
        break;
    }
    __real_alg_scratch_reap();
}

/* A broken peer announces success at once. */
static atomic_bool lies;

net_verdict_t __real_net_verdict(const net_rendezvous_t *rendezvous);
net_verdict_t __wrap_net_verdict(const net_rendezvous_t *rendezvous);
net_verdict_t __wrap_net_verdict(const net_rendezvous_t *rendezvous)
{
    return atomic_load(&lies) ? NET_ATTACHED : __real_net_verdict(rendezvous);
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

static int preload(const alg_experts_shape_t *shape)
{
    (void)shape;
    return 0;
}

const shim_experts_ops_t shim_experts_cuda = {.enter = net_scope_enter, .preload = preload};
const shim_experts_ops_t shim_experts_cpu;

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

/* As above, while rank 0's call of that group waits for rank 1's, which follows the creation there: no rank waits in a
 * creation for a free of another one. */
static void *beside_a_waiting_call(void *argument)
{
    const int rank = *(const int *)argument;
    shim_experts_group_t *lives = make(rank);
    for (int i = 0; i < GROUPS; i++) {
        kernel_waits = rank == 0;
        shim_experts_group_t *group = make(rank);
        if (rank == 1)
            atomic_store(&called, true);
        kernel_waits = false;
        pthread_barrier_wait(&barrier);
        expect(fake.retired <= 4);
        pthread_barrier_wait(&barrier);
        atomic_store(&called, false);
        expect(shim_experts_destroy(group) == ncclSuccess);
    }
    expect(shim_experts_destroy(lives) == ncclSuccess);
    return NULL;
}

static void *with_a_liar(void *argument)
{
    const int rank = *(const int *)argument;
    const ncclEpGroupConfig_t config = {
        .num_experts = 4, .max_dispatch_tokens_per_rank = 8, .max_token_bytes = 32, .num_topk = 2};
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    atomic_store(&lies, true);
    pthread_barrier_wait(&barrier);
    expect(shim_experts_create(comms[rank], &config, &group, &why) == ncclSuccess && group == NULL && why != NULL);
    pthread_barrier_wait(&barrier);
    atomic_store(&lies, false);
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

static void a_free_that_waits_for_a_peers_call_keeps_no_rank_from_creating(void **state)
{
    (void)state;
    run(beside_a_waiting_call);
}

static void an_early_verdict_is_no_success(void **state)
{
    (void)state;
    run(with_a_liar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ended_group_is_freed_before_the_next_is_made),
        cmocka_unit_test(few_ended_groups_wait_beside_a_living_one),
        cmocka_unit_test(a_free_that_waits_for_a_peers_call_keeps_no_rank_from_creating),
        cmocka_unit_test(an_early_verdict_is_no_success),
    };
    fake_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
