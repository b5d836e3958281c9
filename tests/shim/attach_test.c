/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_test.c - which communicators attach, which decline and why, and that
 * all ranks of a communicator agree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "comms.h"

static void group_attaches(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    comms_expect(comms, N, SHIM_COMM_ATTACHED);
    for (int r = 0; r < N; r++) {
        const shim_comm_t *comm = shim_comm_find(comms[r]);
        assert_int_equal(comm->rank, r);
        assert_int_equal(comm->nranks, N);
        assert_true(comm->all_block);
        assert_int_equal(comm->plan->topology.link, SEL_LINK_NVSWITCH);
        assert_int_equal(comm->plan->topology.arch, 90);
    }
    assert_int_equal(shim_comm_attached(), N);
    comms_destroy(comms, N);
    assert_int_equal(fake.pooled, N);
    assert_int_equal(shim_comm_attached(), 0);
}

static void threads_attach(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init_threads(comms, 0);
    comms_expect(comms, N, SHIM_COMM_ATTACHED);
    comms_destroy(comms, N);
}

/* The ranks' views are combined: a different one on a single rank changes the class on all. */

static void same_gpu(void **state)
{
    (void)state;
    fake_reset();
    fake.same_gpu = true;
    comms_try(SHIM_COMM_FORWARD);
}

static void pool_is_used(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    for (int r = 0; r < N; r++)
        fake.idle[r] = 77;
    comms_init(comms, N, comms_id());
    assert_int_equal(fake.taken, N);
    assert_int_equal(fake.created, 0);
    comms_destroy(comms, N);
    fake_reset();
    fake.idle[0] = fake.idle[1] = 77; /* the others have none: all create */
    comms_init(comms, N, comms_id());
    assert_int_equal(fake.taken, 0);
    assert_int_equal(fake.left_idle, 2);
    assert_int_equal(fake.created, N);
    comms_destroy(comms, N);
}

/* No rank waits in Shunt's set-up for a rank without Shunt, which joins only the real NCCL. */
static void a_rank_without_shunt(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    ncclUniqueId id = comms_id();
    fake_reset();
    fake_depth = 1;
    for (int r = 1; r < N; r++)
        assert_int_equal(ncclCommInitRank(&comms[r], N, id, r), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
    comms_expect(comms + 1, N - 1, SHIM_COMM_FORWARD);
    comms_destroy(comms + 1, N - 1);
}

static void failed_group_leaves_nothing(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    ncclUniqueId id = comms_id();
    fake_reset();
    fake_depth = 1;
    for (int r = 0; r < N; r++)
        assert_int_equal(ncclCommInitRank(&comms[r], N, id, r), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclInvalidUsage), ncclInvalidUsage);
    for (int r = 0; r < N; r++)
        assert_int_equal(comms_phase(comms[r]), -1);
    assert_int_equal(fake.created, 0);
}

static void one_or_too_many(void **state)
{
    (void)state;
    ncclComm_t comms[12];
    fake_reset();
    assert_int_equal(ncclCommInitRank(&comms[0], 1, comms_id(), 0), ncclSuccess);
    assert_int_equal(comms_phase(comms[0]), -1);
    comms_init(comms, 12, comms_id());
    comms_expect(comms, 12, SHIM_COMM_FORWARD); /* known by its key, so that its children can attach */
    comms_destroy(comms, 12);
}

static void all_at_once(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    const int devices[N] = {3, 1, 0, 2};
    fake_reset();
    assert_int_equal(ncclCommInitAll(comms, N, devices), ncclSuccess);
    comms_expect(comms, N, SHIM_COMM_ATTACHED);
    assert_int_equal(shim_comm_find(comms[0])->device, 3);
    comms_destroy(comms, N);
}

static void non_blocking(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_begin(comms);
    assert_int_equal(comms_poll_once(comms[0]), ncclInProgress); /* the real ones are ready, the verdict is not */
    comms_poll_until_ready(comms, N);
    comms_expect(comms, N, SHIM_COMM_ATTACHED);
    assert_false(shim_comm_find(comms[0])->all_block);
    comms_destroy(comms, N);
}

/* After an init has returned, the program's handle variable, which may be gone, is not accessed. */
static void the_handle_may_move(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    ncclComm_t *places = mmap(NULL, sizeof(comms), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(places, MAP_FAILED);
    fake_reset();
    comms_begin(places);
    memcpy(comms, places, sizeof(comms));
    assert_int_equal(munmap(places, sizeof(comms)), 0);
    comms_poll_until_ready(comms, N);
    comms_expect(comms, N, SHIM_COMM_ATTACHED);
    comms_destroy(comms, N);
}

static void *begin_in_thread(void *comms)
{
    comms_begin(comms);
    return NULL;
}

/* Set-ups complete if a thread that has not begun them polls one after the other at any times. Only polled ones
 * proceed; the ranks meet at the latest in the first call. */
static void late_polls(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    pthread_t thread;
    fake_reset();
    pthread_create(&thread, NULL, begin_in_thread, comms);
    pthread_join(thread, NULL);
    for (int r = 0; r < N; r++) {
        ncclResult_t polled = comms_poll_once(comms[r]);
        assert_true(polled == ncclInProgress || r == N - 1);
        atomic_fetch_add(&fake_late_s, 30);
        for (int polls = 0; polled == ncclInProgress && polls < 1000; polls++)
            polled = comms_poll_once(comms[r]);
        assert_int_equal(polled, ncclSuccess);
    }
    for (int r = 0; r < N; r++) {
        comms_settle(comms[r]);
        assert_int_equal(comms_poll_once(comms[r]), ncclSuccess);
    }
    comms_expect(comms, N, SHIM_COMM_ATTACHED);
    comms_destroy(comms, N);
}

/* If rank 0 polls often and the others once a second, a rank that is told that it is ready is, and its first call does
 * not wait for the others' next polls. */
static void seldom_polls(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    pthread_t thread;
    uint32_t ready = 0;
    fake_reset();
    pthread_create(&thread, NULL, begin_in_thread, comms);
    pthread_join(thread, NULL);
    for (int rounds = 0; ready + 1 < 1u << N && rounds < 60; rounds++) {
        for (int poll = 0; poll <= N; poll++) {
            const int r = poll > 0 ? poll - 1 : 0; /* twice */
            if (!(ready >> r & 1) && comms_poll_once(comms[r]) == ncclSuccess) {
                assert_int_equal(comms_phase(comms[r]), SHIM_COMM_ATTACHED);
                ready |= 1u << r;
            }
            if (poll == 0)
                atomic_fetch_add(&fake_late_s, 1);
        }
    }
    assert_int_equal(ready, (1u << N) - 1);
    comms_destroy(comms, N);
}

static ncclUniqueId grouped_ids[2];
static bool grouped_apart; /* rank 1 is in a pid namespace of its own */

/* Rank 1 makes one communicator after the other, and a call on each at the end. Its clock goes on for 2 s. */
static void *init_singly(void *argument)
{
    ncclComm_t *comms = argument;
    fake_pids = grouped_apart;
    fake_ticks = 20;
    for (int i = 0; i < 2; i++)
        if (ncclCommInitRank(&comms[i], 2, grouped_ids[i], 1) != ncclSuccess)
            return argument;
    for (int i = 0; i < 2; i++) {
        if (comms_poll(comms[i]) != ncclSuccess) /* a rank told it so */
            return argument;
        comms_settle(comms[i]);
    }
    return NULL;
}

/* Rank 0 makes both in a group, whose end waits for both; rank 1 must reach the second meanwhile. */
static void grouped_against_single(bool apart)
{
    ncclComm_t mine[2], theirs[2];
    pthread_t thread;
    void *failed = NULL;
    fake_reset();
    grouped_apart = apart;
    atomic_store(&fake_stopped, true);
    for (int i = 0; i < 2; i++)
        grouped_ids[i] = comms_id();
    fake_depth = 1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ncclCommInitRank(&mine[i], 2, grouped_ids[i], 0), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(pthread_create(&thread, NULL, init_singly, theirs), 0);
    for (int naps = 0; atomic_load(mine[1]->joined) < 2 && naps < 60000; naps++)
        usleep(1000);
    atomic_fetch_add(&fake_late_s, atomic_load(mine[1]->joined) < 2 ? 30 : 0); /* against hanging alone */
    for (int i = 0; i < 2; i++)
        fake_wait_ready(mine[i]);
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
    for (int i = 0; i < 2; i++)
        comms_settle(mine[i]);
    pthread_join(thread, &failed);
    atomic_store(&fake_stopped, false);
    assert_null(failed);
    comms_expect(mine, 2, SHIM_COMM_ATTACHED);
    comms_expect(theirs, 2, SHIM_COMM_ATTACHED);
    comms_destroy(mine, 2);
    comms_destroy(theirs, 2);
}

static void grouped_against_single_here(void **state)
{
    (void)state;
    grouped_against_single(false);
}

static void grouped_against_single_elsewhere(void **state)
{
    (void)state;
    grouped_against_single(true);
}

static ncclUniqueId unseen_id;

static void *begin_unseen(void *comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    fake_pids = 1;
    return ncclCommInitRankConfig(comm, 2, unseen_id, 1, &config) == ncclInProgress ? NULL : comm;
}

/* The wait has a limit for a rank that continues only in its program's calls and whose death could not be seen. */
static void an_unseen_rank_that_is_away_has_a_limit(void **state)
{
    (void)state;
    ncclComm_t comms[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    pthread_t thread;
    void *failed = NULL;
    fake_reset();
    config.blocking = 0;
    unseen_id = comms_id();
    assert_int_equal(ncclCommInitRankConfig(&comms[0], 2, unseen_id, 0, &config), ncclInProgress);
    assert_int_equal(pthread_create(&thread, NULL, begin_unseen, &comms[1]), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    for (int polls = 0; polls < 3; polls++)
        assert_int_equal(comms_poll_once(comms[0]), ncclInProgress);
    atomic_fetch_add(&fake_late_s, 30);
    comms_poll_until_ready(comms, 1);
    comms_expect(comms, 1, SHIM_COMM_FORWARD);
    comms_poll_until_ready(comms + 1, 1);
    comms_destroy(comms, 2);
}

/* A rank that polls attaches with one whose init returns without waiting and whose first call waits instead. */
static void blocking_beside_polled(void **state)
{
    (void)state;
    ncclComm_t comms[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = comms_id();
    fake_reset();
    config.blocking = 0;
    assert_int_equal(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
    assert_int_equal(ncclCommInitRank(&comms[1], 2, id, 1), ncclSuccess);
    assert_int_equal(comms_phase(comms[1]), SHIM_COMM_JOINING);
    assert_int_equal(comms_poll(comms[1]), ncclSuccess);
    comms_poll_until_ready(comms, 1);
    comms_expect(comms, 2, SHIM_COMM_ATTACHED);
    comms_destroy(comms, 2);
}

int main(void)
{
    setenv("SHUNT_DEBUG", "none", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_attaches),
        cmocka_unit_test(threads_attach),
        cmocka_unit_test(same_gpu),
        cmocka_unit_test(pool_is_used),
        cmocka_unit_test(a_rank_without_shunt),
        cmocka_unit_test(failed_group_leaves_nothing),
        cmocka_unit_test(one_or_too_many),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(non_blocking),
        cmocka_unit_test(the_handle_may_move),
        cmocka_unit_test(late_polls),
        cmocka_unit_test(seldom_polls),
        cmocka_unit_test(grouped_against_single_here),
        cmocka_unit_test(grouped_against_single_elsewhere),
        cmocka_unit_test(an_unseen_rank_that_is_away_has_a_limit),
        cmocka_unit_test(blocking_beside_polled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
