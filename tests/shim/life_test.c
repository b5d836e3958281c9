/* SPDX-License-Identifier: Apache-2.0 */
/*
 * life_test.c - communicators after their set-up: split, aborted, revoked, finalized,
 * destroyed.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comms.h"
#include "shim/base/last_error.h"
#include "shim/comm/failure.h"
#include "shim/comm/reap.h"
#include "shim/comm/stop.h"

static void split_all(ncclComm_t *comms, ncclComm_t *children, const int *colors)
{
    fake_depth = 1;
    for (int r = 0; r < N; r++)
        assert_int_equal(ncclCommSplit(comms[r], colors[r], 0, &children[r], NULL), ncclSuccess);
    fake_depth = 0;
    assert_int_equal(shim_attach_after_group(ncclSuccess), ncclSuccess);
}

/* Split all ranks' communicators into one of the same ranks. */
static void copy_all(ncclComm_t *comms, ncclComm_t *children)
{
    static const int one[N];
    for (int r = 0; r < N; r++)
        fake.split_rank[r] = r, fake.split_nranks[r] = N;
    split_all(comms, children, one);
}

static void splits(void **state)
{
    (void)state;
    ncclComm_t comms[N], children[N], again[N];
    const int colors[N] = {0, 5, 0, 5}, some[N] = {1, 1, NCCL_SPLIT_NOCOLOR, 1};
    fake_reset();
    comms_init(comms, N, comms_id());
    for (int r = 0; r < N; r++) {
        fake.split_rank[r] = r / 2;
        fake.split_nranks[r] = 2;
    }
    split_all(comms, children, colors);
    comms_expect(children, N, SHIM_COMM_ATTACHED);
    assert_int_equal(shim_comm_find(children[3])->rank, 1);
    assert_int_equal(shim_comm_find(children[3])->nranks, 2);
    for (int r = 0; r < N; r++) {
        fake.split_rank[r] = r < 2 ? r : r - 1;
        fake.split_nranks[r] = 3;
    }
    split_all(comms, again, some);
    assert_null(again[2]);
    assert_int_equal(comms_phase(again[0]), SHIM_COMM_ATTACHED);
    assert_int_equal(comms_phase(again[3]), SHIM_COMM_ATTACHED);
    assert_int_equal(shim_comm_find(comms[2])->splits, 2); /* no colour counts too */
    comms_destroy(children, N);
    comms_destroy(comms, N);
    comms_destroy(again, 2);
    ncclCommDestroy(again[3]);
}

/* An abort also ends children that share resources, but no other communicators. */
static void an_abort_ends_communicators_that_share(void **state)
{
    (void)state;
    for (int share = 0; share < 2; share++) {
        ncclComm_t comms[N], children[N];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        fake_reset();
        config.splitShare = share;
        comms_init_configured(comms, &config);
        copy_all(comms, children);
        comms_expect(children, N, SHIM_COMM_ATTACHED);
        assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
        const shim_comm_t *child = shim_comm_find(children[1]);
        assert_int_equal(alg_scratch_control(child->scratch)->abort, share);
        assert_int_equal(comms_phase(children[1]), share ? SHIM_COMM_DEAD : SHIM_COMM_ATTACHED);
        comms_expect(comms, 1, SHIM_COMM_ATTACHED); /* the other ranks of this process have their own */
        comms_expect(children, 1, SHIM_COMM_ATTACHED);
        comms[1] = comms[0];
        comms_destroy(children, N);
        comms_destroy(comms + 1, N - 1);
    }
}

/* A revoked communicator shares its resources with none: its replacement is not ended with it. */
static void a_revoked_communicator_shares_nothing(void **state)
{
    (void)state;
    ncclComm_t comms[N], children[N];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    fake_reset();
    config.splitShare = 1;
    comms_init_configured(comms, &config);
    for (int i = 0; i < N; i++)
        assert_int_equal(ncclCommRevoke(comms[i], 0), ncclSuccess);
    copy_all(comms, children);
    comms_expect(children, N, SHIM_COMM_ATTACHED);
    for (int i = 0; i < N; i++)
        assert_int_equal(ncclCommAbort(comms[i]), ncclSuccess);
    comms_expect(children, N, SHIM_COMM_ATTACHED);
    comms_destroy(children, N);
}

/* A revoke, and a shrink with abort, end calls in progress of communicators that share resources, but no idle ones:
 * ranks outside of the revoked communicator go on to take the calls of its parent. */
static void idle_relatives_go_on(void **state)
{
    (void)state;
    for (int shrinks = 0; shrinks < 2; shrinks++) {
        ncclComm_t comms[N], children[N], busy[N], replays[N], shrunk = NULL;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        int excluded[] = {N - 1};
        fake_reset();
        config.splitShare = 1;
        comms_init_configured(comms, &config);
        copy_all(comms, children);
        copy_all(comms, busy);
        copy_all(comms, replays);
        busy[1]->waits = true;
        shim_comm_find(replays[1])->config.graph_mixing = false; /* so no event tells when a replay ends */
        atomic_store(&shim_comm_find(replays[1])->order.graphs, 1);
        fake.split_nranks[1] = 1;
        assert_int_equal(shrinks ? ncclCommShrink(children[1], excluded, 1, &shrunk, NULL, NCCL_SHRINK_ABORT)
                                 : ncclCommRevoke(children[1], 0),
                         ncclSuccess);
        assert_int_equal(comms_phase(children[1]), SHIM_COMM_DEAD);
        assert_int_equal(comms_phase(busy[1]), SHIM_COMM_DEAD);
        assert_int_equal(comms_phase(replays[1]), SHIM_COMM_DEAD);
        atomic_store(&shim_comm_find(replays[1])->order.graphs, 0);
        assert_int_equal(alg_scratch_control(shim_comm_find(busy[1])->scratch)->abort, 1);
        comms_expect(comms, N, SHIM_COMM_ATTACHED);
        assert_int_equal(alg_scratch_control(shim_comm_find(comms[1])->scratch)->abort, 0);
        if (shrinks)
            assert_int_equal(ncclCommDestroy(shrunk), ncclSuccess);
        comms_destroy(replays, N);
        comms_destroy(busy, N);
        comms_destroy(children, N);
        comms_destroy(comms, N);
    }
}

static void refused_split_counts_not(void **state)
{
    (void)state;
    ncclComm_t comms[N], child;
    fake_reset();
    comms_init(comms, N, comms_id());
    fake.split_result = ncclInvalidArgument;
    assert_int_equal(ncclCommSplit(comms[0], 0, 0, &child, NULL), ncclInvalidArgument);
    assert_int_equal(shim_comm_find(comms[0])->splits, 0);
    comms_destroy(comms, N);
}

static void split_of_unknown(void **state)
{
    (void)state;
    struct ncclComm stranger = {.rank = 0, .nranks = 2};
    ncclComm_t child;
    fake_reset();
    fake.split_nranks[0] = 2;
    assert_int_equal(ncclCommSplit(&stranger, 0, 0, &child, NULL), ncclSuccess);
    assert_non_null(child);
    assert_int_equal(comms_phase(child), -1);
    assert_int_equal(ncclCommDestroy(child), ncclSuccess);
}

/* The child of a non-blocking parent is attached when it appears, as the parent is polled. */
static void late_split(void **state)
{
    (void)state;
    ncclComm_t comms[1], child = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    fake_reset();
    config.blocking = 0;
    ncclUniqueId id = comms_id();
    ncclComm_t other;
    assert_int_equal(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
    assert_int_equal(ncclCommInitRankConfig(&other, 2, id, 1, &config), ncclInProgress);
    comms_poll_until_ready(comms, 1);
    comms_poll_until_ready(&other, 1);
    fake.split_late = true;
    fake.split_nranks[0] = 1;
    assert_int_equal(ncclCommSplit(comms[0], 0, 0, &child, NULL), ncclInProgress);
    assert_null(child);
    comms_poll_until_ready(comms, 1);
    assert_non_null(child);
    assert_int_equal(comms_phase(child), SHIM_COMM_FORWARD); /* one rank: known, and NCCL's */
    ncclCommDestroy(child);
    ncclCommDestroy(comms[0]);
    ncclCommDestroy(other);
}

static void refused_destroy_keeps_state(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    fake.destroy_result = ncclInvalidArgument;
    assert_int_equal(ncclCommDestroy(comms[0]), ncclInvalidArgument);
    assert_int_equal(comms_phase(comms[0]), SHIM_COMM_ATTACHED);
    fake.destroy_result = ncclSuccess;
    comms[0]->destroys = 0;
    comms_destroy(comms, N);
    assert_int_equal(ncclCommDestroy(NULL), ncclSuccess);
    assert_int_equal(ncclCommAbort(NULL), ncclSuccess);
}

/* A destroy that NCCL refuses in a group, with any error, has not begun: the state stays, as earlier calls may still
 * run. */
static void a_destroy_refused_in_a_group_keeps_state(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    const shim_comm_t *comm = shim_comm_find(comms[0]);
    fake.destroy_result = ncclRemoteError;
    fake_depth = 1;
    assert_int_equal(ncclCommDestroy(comms[0]), ncclRemoteError);
    fake_depth = 0;
    shim_attach_after_group(ncclRemoteError);
    assert_int_equal(fake.pooled + fake.freed + fake.retired, 0);
    assert_ptr_equal(shim_comm_find(comms[0]), comm);
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    assert_int_equal(fake.pooled, 0);
    assert_int_equal(fake.freed, 1);
    fake.destroy_result = ncclSuccess;
    comms_destroy(comms + 1, N - 1);
}

static void abort_stops_kernels(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    shim_comm_t *comm = shim_comm_acquire(comms[0]);
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    assert_int_equal(alg_scratch_control(comm->scratch)->abort, 1);
    assert_int_equal(fake.freed, 0); /* a call in flight still holds it */
    shim_comm_release(comm);
    shim_comm_reap();
    assert_int_equal(fake.freed, 1);
    comm = shim_comm_acquire(comms[1]);
    const int drains = fake.drains;
    assert_int_equal(ncclCommRevoke(comms[1], 0), ncclSuccess);
    assert_int_equal(fake.drains, drains + 1); /* the program may free its buffers now */
    assert_int_equal(alg_scratch_control(comm->scratch)->abort, 1);
    assert_int_equal(comms_phase(comms[1]), SHIM_COMM_DEAD);
    shim_comm_release(comm);
    comms_destroy(comms + 1, N - 1);
    assert_int_equal(fake.freed, 2);
    assert_int_equal(fake.pooled, 2);
}

/* A shrink that aborts its parent returns when the parent's kernels have left: the program may free their buffers. */
static void a_shrink_with_abort_waits_for_kernels(void **state)
{
    (void)state;
    ncclComm_t comms[N], child[2] = {NULL, NULL};
    int excluded[] = {N - 1};
    fake_reset();
    comms_init(comms, N, comms_id());
    fake.split_nranks[0] = fake.split_nranks[1] = 1;
    for (int r = 0; r < 2; r++) {
        shim_comm_t *comm = shim_comm_acquire(comms[r]);
        const int drains = fake.drains;
        shim_comm_fail(comm, ncclRemoteError, "a peer is gone");
        assert_int_equal(ncclCommShrink(comms[r], excluded, 1, &child[r], NULL, r == 0 ? NCCL_SHRINK_ABORT : 0),
                         ncclSuccess);
        assert_int_equal(comms_poll_once(comms[r]), r == 0 ? ncclSuccess : ncclRemoteError);
        assert_int_equal(fake.drains, drains + (r == 0));
        assert_int_equal(alg_scratch_control(comm->scratch)->abort, r == 0);
        shim_comm_release(comm);
        assert_int_equal(ncclCommDestroy(child[r]), ncclSuccess);
    }
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    comms_destroy(comms + 1, N - 1);
}

/* If another thread's abort ends the wait of a destroy or a finalize, it frees the handle, which no thread may use
 * afterwards. */
static void abort_in_a_drain(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    fake.abort_in_drain = comms[0];
    assert_int_equal(ncclCommDestroy(comms[0]), ncclSuccess);
    fake.abort_in_drain = comms[1];
    assert_int_equal(ncclCommFinalize(comms[1]), ncclSuccess);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(comms[r]->aborts, 1);
        assert_int_equal(comms[r]->destroys + comms[r]->finalizes, 0);
        assert_int_equal(comms_phase(comms[r]), -1);
    }
    comms_destroy(comms + 2, N - 2);
}

/* The same if that thread is delayed between the stop of Shunt's kernels and the rest. */
static void half_an_abort_in_a_drain(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    fake.half_abort_in_drain = true;
    assert_int_equal(ncclCommDestroy(comms[0]), ncclSuccess);
    fake.half_abort_in_drain = true;
    assert_int_equal(ncclCommFinalize(comms[1]), ncclSuccess);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(comms[r]->destroys + comms[r]->finalizes, 0);
        assert_int_equal(ncclCommAbort(comms[r]), ncclSuccess);
        assert_int_equal(comms[r]->aborts, 1);
        assert_int_equal(comms_phase(comms[r]), -1);
    }
    comms_destroy(comms + 2, N - 2);
}

/* One thread can abort communicators one after another while all their kernels wait for a dead peer: freeing memory of
 * the first would wait for the kernels of the others. */
static void aborts_one_after_another(void **state)
{
    (void)state;
    ncclComm_t comms[3][N];
    fake_reset();
    for (int i = 0; i < 3; i++)
        comms_init(comms[i], N, comms_id());
    for (int i = 0; i < 3 * N; i++)
        comms[i / N][i % N]->waits = true;
    for (int i = 0; i < 3 * N; i++) {
        assert_int_equal(fake.freed, 0);
        assert_int_equal(ncclCommAbort(comms[i / N][i % N]), ncclSuccess);
    }
    assert_int_equal(fake.freed, 3 * N);
    assert_int_equal(fake.stuck, 0);
}

/* The memory that graphs keep, since they may run at any time, is bounded from the next init on. */
static void graphs_keep_little(void **state)
{
    (void)state;
    ncclComm_t comms[N], others[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    shim_comm_t *captured = shim_comm_acquire(comms[0]); /* as a graph holds it */
    for (int cycle = 0; cycle < 5; cycle++) {
        comms_init(others, N, comms_id());
        assert_true(fake.retired <= 4);
        for (int r = 0; r < N; r++) {
            ncclCommAbort(others[r]);
            assert_true(fake.retired <= 4 + N);
            assert_int_equal(fake.freed + fake.retired, cycle * N + r + 1);
        }
        assert_true(cycle > 0 || fake.freed == 0);
    }
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    assert_int_equal(fake.freed, 5 * N); /* a graph of an aborted one waits for no rank */
    shim_comm_release(captured);
    comms_destroy(comms + 1, N - 1);
}

/* Kernels of the real NCCL on a forwarded communicator, whose end no event reports, count as running: one may wait for
 * a rank that waits for this thread. As with graphs, little memory is kept for that. */
static void forwarded_kernels_count_as_running(void **state)
{
    (void)state;
    enum { TOO_MANY = 12 };
    ncclComm_t forwarded[TOO_MANY], comms[N];
    fake_reset();
    comms_init(forwarded, TOO_MANY, comms_id());
    comms_expect(forwarded, TOO_MANY, SHIM_COMM_FORWARD);
    forwarded[0]->waits = true;
    comms_init(comms, N, comms_id());
    for (int r = 0; r < N; r++)
        assert_int_equal(ncclCommAbort(comms[r]), ncclSuccess);
    comms_init(comms, N, comms_id());
    assert_int_equal(fake.stuck, 0);
    assert_int_equal(fake.retired, N);
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    assert_int_equal(fake.freed, 0);
    assert_int_equal(ncclCommDestroy(comms[1]), ncclSuccess);
    assert_int_equal(fake.freed, N + 1);
    comms_destroy(forwarded, TOO_MANY);
    comms_destroy(comms + 2, N - 2);
}

/* So do the kernels of a communicator whose relative a shrink has stopped: its calls are forwarded from then on. */
static void stopped_relatives_count_as_running(void **state)
{
    (void)state;
    ncclComm_t relatives[N], comms[N];
    fake_reset();
    comms_init(relatives, N, comms_id());
    comms_init(comms, N, comms_id());
    shim_comm_stop(shim_comm_find(relatives[0]));
    assert_int_equal(ncclCommAbort(comms[0]), ncclSuccess);
    assert_int_equal(fake.freed, 0);
    assert_int_equal(ncclCommAbort(relatives[0]), ncclSuccess);
    assert_int_equal(fake.freed, 2);
    comms_destroy(relatives + 1, N - 1);
    comms_destroy(comms + 1, N - 1);
}

/* An abort does not wait to free memory, however much there is: the next one may be that of the forwarded
 * communicator. */
static void aborts_before_that_of_a_forwarded_one(void **state)
{
    (void)state;
    enum { TOO_MANY = 12 };
    for (unsigned grouped = 0; grouped < 2; grouped++) {
        ncclComm_t forwarded[TOO_MANY], comms[2][N];
        fake_reset();
        comms_init(forwarded, TOO_MANY, comms_id());
        for (int i = 0; i < 2; i++)
            comms_init(comms[i], N, comms_id());
        forwarded[0]->waits = true;
        fake_depth = grouped;
        for (int i = 0; i < 2 * N; i++)
            assert_int_equal(ncclCommAbort(comms[i / N][i % N]), ncclSuccess);
        fake_depth = 0;
        shim_attach_after_group(ncclSuccess);
        assert_int_equal(fake.stuck, 0);
        for (int i = 0; i < TOO_MANY; i++)
            assert_int_equal(ncclCommAbort(forwarded[i]), ncclSuccess);
        assert_int_equal(fake.stuck, 0);
        assert_int_equal(fake.freed, 2 * N);
    }
}

static void *settle_in_thread(void *handle)
{
    comms_settle(handle);
    return NULL;
}

/* Nor does a poll or a first call that completes a set-up, even with little memory: its thread may be the one that
 * aborts the forwarded communicator. */
static void set_ups_before_the_abort_of_a_forwarded_one(bool in_call, int error)
{
    enum { TOO_MANY = 12 };
    ncclComm_t forwarded[TOO_MANY], comms[2][N], late[N];
    fake_reset();
    comms_init(forwarded, TOO_MANY, comms_id());
    for (int i = 0; i < 2; i++)
        comms_init(comms[i], N, comms_id());
    forwarded[0]->waits = true;
    for (int i = 0; i < 2 * N; i++)
        assert_int_equal(ncclCommAbort(comms[i / N][i % N]), ncclSuccess);
    assert_int_equal(fake.retired, 2 * N);
    for (int r = 0; r < N; r++)
        fake.vmm_error[r] = error;
    comms_begin(late);
    if (in_call) {
        pthread_t threads[N];
        for (int r = 0; r < N; r++)
            comms_poll_once(late[r]); /* now a call may come */
        comms_expect(late, N, SHIM_COMM_JOINING);
        for (int r = 0; r < N; r++)
            assert_int_equal(pthread_create(&threads[r], NULL, settle_in_thread, late[r]), 0);
        for (int r = 0; r < N; r++)
            pthread_join(threads[r], NULL);
    } else {
        comms_poll_until_ready(late, N);
    }
    assert_int_equal(fake.stuck, 0);
    assert_int_equal(fake.retired, 2 * N);
    assert_int_equal(ncclCommAbort(forwarded[0]), ncclSuccess);
    comms_destroy(late, N);
    assert_int_equal(fake.freed, 2 * N);
    comms_destroy(forwarded + 1, TOO_MANY - 1);
}

static void polls_before_the_abort_of_a_forwarded_one(void **state)
{
    (void)state;
    set_ups_before_the_abort_of_a_forwarded_one(false, 0);
    set_ups_before_the_abort_of_a_forwarded_one(false, -ENOMEM);
}

static void first_calls_before_the_abort_of_a_forwarded_one(void **state)
{
    (void)state;
    set_ups_before_the_abort_of_a_forwarded_one(true, 0);
}

/* Nothing is freed before the real init, as a free may wait for a kernel whose peer waits for this rank in the real
 * init. */
static void nothing_is_freed_before_the_real_init(void **state)
{
    (void)state;
    ncclComm_t comms[N], others[N], children[N];
    for (int split = 0; split < 2; split++) {
        fake_reset();
        comms_init(comms, N, comms_id());
        comms_init(others, N, comms_id());
        fake.running = true;
        for (int r = 0; r < N; r++)
            assert_int_equal(ncclCommAbort(others[r]), ncclSuccess);
        fake.running = false;
        assert_int_equal(fake.retired, N);
        if (split)
            copy_all(comms, children);
        else
            comms_init(children, N, comms_id());
        assert_int_equal(fake.freed_before, 0);
        assert_int_equal(fake.freed, N); /* but after it */
        comms_destroy(children, N);
        comms_destroy(comms, N);
    }
}

static void destroy_in_group(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    fake_depth = 1;
    for (int r = 0; r < N; r++) {
        assert_int_equal(ncclCommDestroy(comms[r]), ncclSuccess);
        assert_int_equal(comms_phase(comms[r]), -1);
    }
    assert_int_equal(fake.pooled, 0);
    fake_depth = 0;
    shim_attach_after_group(ncclSuccess);
    assert_int_equal(fake.pooled, N);
}

static void kernel_error_is_reported(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    alg_scratch_control(shim_comm_find(comms[2])->scratch)->status = ALG_STATUS_TIMEOUT;
    assert_int_equal(comms_poll_once(comms[1]), ncclSuccess);
    assert_int_equal(comms_poll_once(comms[2]), ncclRemoteError);
    assert_int_equal(comms_phase(comms[2]), SHIM_COMM_DEAD);
    assert_non_null(strstr(shim_last_error(), "SHUNT_TIMEOUT_MS"));
    atomic_store(&comms[2]->failed, true); /* the real NCCL's own error takes precedence */
    assert_int_equal(comms_poll_once(comms[2]), ncclSystemError);
    comms_destroy(comms, N);
    assert_int_equal(fake.freed, 1);
}

static void finalize(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    assert_int_equal(ncclCommFinalize(comms[0]), ncclSuccess);
    assert_int_equal(comms_phase(comms[0]), SHIM_COMM_DEAD);
    assert_int_equal(ncclCommFinalize(comms[0]), ncclInvalidArgument);
    comms_destroy(comms, N);
    assert_int_equal(fake.pooled, N);
}

/* A non-blocking communicator is finalized after its calls have ended, including Shunt's. */
static void finalize_without_blocking(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_begin(comms);
    comms_poll_until_ready(comms, N);
    fake.running = true;
    assert_int_equal(comms_poll_once(comms[0]), ncclSuccess); /* calls may run while it lives */
    assert_int_equal(ncclCommFinalize(comms[0]), ncclSuccess);
    assert_int_equal(comms_poll_once(comms[0]), ncclInProgress);
    fake.running = false;
    assert_int_equal(comms_poll_once(comms[0]), ncclSuccess);
    comms_destroy(comms, N);
}

/* Children without a setting for mixing graphs and eager work inherit their parents'. */
static void graph_mixing_is_inherited(void **state)
{
    (void)state;
    for (int wanted = 0; wanted < 2; wanted++) {
        ncclComm_t comms[N], children[N];
        fake_reset();
        setenv("NCCL_GRAPH_MIXING_SUPPORT", wanted ? "1" : "0", 1);
        comms_init(comms, N, comms_id());
        unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
        copy_all(comms, children);
        for (int i = 0; i < N; i++) {
            assert_int_equal(shim_comm_find(comms[i])->config.graph_mixing, wanted);
            assert_int_equal(shim_comm_find(children[i])->config.graph_mixing, wanted);
        }
        comms_destroy(children, N);
        comms_destroy(comms, N);
    }
}

/* A revoke during a finalize, which NCCL refuses, does not stop Shunt's kernels, for which the finalize waits. */
static void a_refused_revoke_stops_nothing(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_begin(comms);
    comms_poll_until_ready(comms, N);
    fake.running = true;
    assert_int_equal(ncclCommFinalize(comms[0]), ncclSuccess);
    assert_int_equal(ncclCommRevoke(comms[0], 0), ncclInvalidArgument);
    assert_int_equal(alg_scratch_control(shim_comm_find(comms[0])->scratch)->abort, 0);
    assert_int_equal(comms_poll_once(comms[0]), ncclInProgress);
    fake.running = false;
    assert_int_equal(comms_poll_once(comms[0]), ncclSuccess);
    assert_int_equal(ncclCommRevoke(comms[1], 1), ncclInvalidArgument);
    assert_int_equal(comms_phase(comms[1]), SHIM_COMM_ATTACHED);
    assert_int_equal(ncclCommRevoke(comms[1], 0), ncclSuccess);
    assert_int_equal(comms_phase(comms[1]), SHIM_COMM_DEAD);
    assert_int_equal(ncclCommRevoke(comms[1], 0), ncclInvalidArgument);
    comms_destroy(comms, N);
    assert_int_equal(fake.freed, 1);
    assert_int_equal(fake.pooled, N - 1);
}

/* A revoke ends the failure that it follows: the program polls until the communicator is ready, then shrinks it. */
static void a_revoked_communicator_has_no_error(void **state)
{
    (void)state;
    ncclComm_t comms[N], children[N];
    fake_reset();
    comms_init(comms, N, comms_id());
    for (int i = 0; i < N; i++) {
        shim_comm_fail(shim_comm_find(comms[i]), ncclRemoteError, "a peer is gone");
        assert_int_equal(comms_poll_once(comms[i]), ncclRemoteError);
        assert_int_equal(ncclCommRevoke(comms[i], 0), ncclSuccess);
        assert_int_equal(alg_scratch_control(shim_comm_find(comms[i])->scratch)->abort, 1);
        assert_int_equal(comms_poll_once(comms[i]), ncclSuccess);
    }
    copy_all(comms, children);
    comms_expect(children, N, SHIM_COMM_ATTACHED);
    comms_destroy(children, N);
    comms_destroy(comms, N);
    assert_int_equal(fake.pooled, N);
    assert_int_equal(fake.freed, N);
}

/* Communicators with NCCL's launch order are forwarded, also children without the setting. The field is newer than the
 * build's nccl.h: it is seven words after nvlsCTAs. */
static void launch_order_is_forwarded(void **state)
{
    (void)state;
    union {
        ncclConfig_t config;
        int word[64];
    } newer;
    const size_t place = offsetof(ncclConfig_t, nvlsCTAs) / sizeof(int) + 7;
    for (size_t i = 0; i < sizeof(newer.word) / sizeof(int); i++)
        newer.word[i] = NCCL_CONFIG_UNDEF_INT;
    newer.config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    newer.config.size = sizeof(newer);
    for (int wanted = 0; wanted < 2; wanted++) {
        ncclComm_t comms[N], children[N];
        fake_reset();
        newer.word[place] = wanted;
        comms_init_configured(comms, &newer.config);
        comms_expect(comms, N, wanted ? SHIM_COMM_FORWARD : SHIM_COMM_ATTACHED);
        copy_all(comms, children);
        comms_expect(children, N, wanted ? SHIM_COMM_FORWARD : SHIM_COMM_ATTACHED);
        comms_destroy(children, N);
        comms_destroy(comms, N);
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1); /* overrides the field */
        comms_init_configured(comms, &newer.config);
        unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
        comms_expect(comms, N, SHIM_COMM_ATTACHED);
        comms_destroy(comms, N);
    }
}

/* A CTA policy is forwarded to NCCL, since only NCCL decides how few multiprocessors it uses: for registered memory
 * copy engines can do all the work. */
static void a_cta_policy_is_forwarded(void **state)
{
    (void)state;
    for (int policy = 0; policy < 3; policy++) {
        ncclComm_t comms[N];
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        fake_reset();
        config.CTAPolicy = policy;
        comms_init_configured(comms, &config);
        comms_expect(comms, N, policy ? SHIM_COMM_FORWARD : SHIM_COMM_ATTACHED);
        comms_destroy(comms, N);
    }
}

int main(void)
{
    setenv("SHUNT_DEBUG", "none", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),
        cmocka_unit_test(an_abort_ends_communicators_that_share),
        cmocka_unit_test(a_revoked_communicator_shares_nothing),
        cmocka_unit_test(idle_relatives_go_on),
        cmocka_unit_test(refused_split_counts_not),
        cmocka_unit_test(split_of_unknown),
        cmocka_unit_test(late_split),
        cmocka_unit_test(refused_destroy_keeps_state),
        cmocka_unit_test(a_destroy_refused_in_a_group_keeps_state),
        cmocka_unit_test(abort_stops_kernels),
        cmocka_unit_test(a_shrink_with_abort_waits_for_kernels),
        cmocka_unit_test(abort_in_a_drain),
        cmocka_unit_test(half_an_abort_in_a_drain),
        cmocka_unit_test(aborts_one_after_another),
        cmocka_unit_test(graphs_keep_little),
        cmocka_unit_test(forwarded_kernels_count_as_running),
        cmocka_unit_test(stopped_relatives_count_as_running),
        cmocka_unit_test(aborts_before_that_of_a_forwarded_one),
        cmocka_unit_test(polls_before_the_abort_of_a_forwarded_one),
        cmocka_unit_test(first_calls_before_the_abort_of_a_forwarded_one),
        cmocka_unit_test(nothing_is_freed_before_the_real_init),
        cmocka_unit_test(destroy_in_group),
        cmocka_unit_test(kernel_error_is_reported),
        cmocka_unit_test(finalize),
        cmocka_unit_test(finalize_without_blocking),
        cmocka_unit_test(graph_mixing_is_inherited),
        cmocka_unit_test(a_refused_revoke_stops_nothing),
        cmocka_unit_test(a_revoked_communicator_has_no_error),
        cmocka_unit_test(launch_order_is_forwarded),
        cmocka_unit_test(a_cta_policy_is_forwarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
