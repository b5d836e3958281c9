/* SPDX-License-Identifier: Apache-2.0 */
/*
 * abort_test.c - aborts of communicators whose set-up has not ended.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "comms.h"

static void abort_one(ncclComm_t *comms)
{
    shim_comm_t *state = shim_comm_acquire(comms[1]); /* as a call that waits has one */
    assert_int_equal(ncclCommAbort(comms[1]), ncclSuccess);
    assert_int_equal(comms[1]->aborts, 1);
    assert_true(atomic_load(&state->aborted));
    shim_comm_release(state);
}

static void expect_the_others_to_forward(ncclComm_t *comms)
{
    assert_int_equal(comms_phase(comms[1]), -1);
    for (int r = 0; r < N; r++) {
        if (r == 1)
            continue;
        while (comms_poll_once(comms[r]) == ncclInProgress)
            usleep(10);
        assert_int_equal(comms_phase(comms[r]), SHIM_COMM_FORWARD);
        ncclCommAbort(comms[r]);
    }
}

static void while_pending(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    fake_reset();
    comms_begin(comms);
    comms_poll_once(comms[0]);
    abort_one(comms);
    expect_the_others_to_forward(comms);
}

static atomic_bool in_step, step_ended;

static void take_a_while(void)
{
    atomic_store(&in_step, true);
    usleep(50000); /* an abort that does not wait returns before */
    atomic_store(&step_ended, true);
}

static void *poll_in_thread(void *comm)
{
    comms_poll(comm);
    return NULL;
}

/* An abort waits for a running step, which may read the application's pointers, even if the time of day changes. */
static void waits_for_a_step(void **state)
{
    (void)state;
    ncclComm_t comms[N];
    pthread_t thread;
    atomic_fetch_add(&fake_late_s, 60); /* the wait has a limit, which a busy machine must not reach */
    fake_reset();
    comms_begin(comms);
    atomic_store(&fake.in_step, take_a_while);
    assert_int_equal(pthread_create(&thread, NULL, poll_in_thread, comms[0]), 0);
    while (!atomic_load(&in_step))
        usleep(10);
    atomic_store(&fake_day_s, 3600);
    abort_one(comms);
    assert_true(atomic_load(&step_ended));
    atomic_store(&fake_day_s, 0);
    pthread_join(thread, NULL);
    expect_the_others_to_forward(comms);
}

static ncclComm_t parent;

static void abort_parent(void)
{
    assert_int_equal(ncclCommAbort(parent), ncclSuccess);
}

/* A thread aborts the parent while another one's split waits in the real NCCL, which then succeeds or fails. */
static void while_a_split_is_forwarded(void **state)
{
    (void)state;
    static const ncclResult_t results[] = {ncclSuccess, ncclInternalError};
    for (int i = 0; i < 2; i++) {
        ncclComm_t comms[N], child = NULL;
        fake_reset();
        comms_init(comms, N, comms_id());
        fake.split_nranks[0] = N;
        fake.split_result = results[i];
        parent = comms[0];
        atomic_store(&fake.in_split, abort_parent);
        assert_int_equal(ncclCommSplit(parent, 0, 0, &child, NULL), results[i]);
        if (child) {
            assert_int_equal(comms_phase(child), SHIM_COMM_FORWARD);
            assert_int_equal(ncclCommAbort(child), ncclSuccess);
        }
        for (int r = 1; r < N; r++)
            assert_int_equal(ncclCommAbort(comms[r]), ncclSuccess);
    }
}

int main(void)
{
    setenv("SHUNT_DEBUG", "none", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_pending),
        cmocka_unit_test(waits_for_a_step),
        cmocka_unit_test(while_a_split_is_forwarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
