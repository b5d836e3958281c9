/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_late_test.c - forwarded calls whose work is not on their stream when they return, on a fake GPU: non-blocking
 * communicators enqueue it later, and empty collectives have none.
 */
#include "fake_calls.h"
#include "shim/comm/order.h"

static void assert_last_is_behind(uint32_t works, uint64_t before)
{
    assert_int_equal(fake.works, works);
    assert_int_equal(fake.work[works - 1].before & before, before);
    assert_int_equal(fake.wrong_waits, 0);
}

/* A communicator that does not block, on whose stream 1 a thread of the real NCCL has put work after the call. */
static shim_comm_t *with_late_work(unsigned long long capture)
{
    fake_reset();
    shim_comm_t *comm = fake_comm(0, false);
    for (int i = 1; i < 4; i++)
        fake_stream_capture(fake_stream(i), capture);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    fake.forward_result = ncclInProgress;
    assert_int_equal(reduce(comm, LARGE, 1), ncclInProgress);
    fake.forward_result = ncclSuccess;
    fake_work(FAKE_REAL, fake_stream(1), 0);
    return comm;
}

static void end(shim_comm_t *comm)
{
    fake_graphs_destroy();
    fake_comm_end(comm);
}

static void late_work_is_waited_for(void **state)
{
    (void)state;
    for (unsigned long long capture = 0; capture < 2; capture++) {
        shim_comm_t *comm = with_late_work(capture);
        assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
        assert_last_is_behind(3, 2);
        assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
        assert_last_is_behind(4, 4);
        end(comm);
    }
}

/* The stream of a late call is not used once the program knows that the work is enqueued: it may destroy the stream. */
static void its_stream_may_be_gone(void **state)
{
    (void)state;
    shim_comm_t *comm = with_late_work(0);
    const uint32_t sets = fake.devices_set;
    /* ncclCommGetAsyncError, in a thread that may have no context. */
    shim_order_record_pending(comm, shim_order_pending(comm));
    assert_int_equal(fake.devices_set, sets);
    fake_stream_destroy(fake_stream(1));
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    assert_last_is_behind(3, 2);
    end(comm);
}

static void its_stream_may_be_captured_meanwhile(void **state)
{
    (void)state;
    shim_comm_t *comm = with_late_work(0);
    fake_stream_capture(fake_stream(1), 9);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    assert_last_is_behind(3, 1);
    end(comm);
}

/* A graph records after late work, so that later calls wait for its replay. */
static void late_work_of_a_graph_is_recorded(void **state)
{
    (void)state;
    shim_comm_t *comm = with_late_work(9);
    shim_order_record_pending(comm, shim_order_pending(comm));
    assert_int_equal(fake_recorded(9), 2);
    end(comm);
}

/* The real NCCL's answer may be outdated: another thread's call may be pending by then. */
static void an_answer_may_be_old(void **state)
{
    (void)state;
    shim_comm_t *comm = with_late_work(0);
    const unsigned long long asked = shim_order_pending(comm);
    fake.forward_result = ncclInProgress;
    assert_int_equal(reduce(comm, LARGE, 3), ncclInProgress);
    fake.forward_result = ncclSuccess;
    shim_order_record_pending(comm, asked);
    fake_work(FAKE_REAL, fake_stream(3), 0);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    assert_last_is_behind(4, 4);
    end(comm);
}

static void what_is_forwarded_next_covers_it(void **state)
{
    (void)state;
    shim_comm_t *comm = with_late_work(0);
    fake_join(fake_stream(2), fake_stream(1)); /* by the real NCCL */
    assert_int_equal(reduce(comm, LARGE, 2), ncclSuccess);
    fake_stream_destroy(fake_stream(1));
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    assert_last_is_behind(4, 2 | 4);
    end(comm);
}

/* A group in progress without taken calls is not waited for, but later work waits for its work. */
static void a_group_comes_late(void **state)
{
    (void)state;
    fake_reset();
    shim_comm_t *comm = fake_comm(0, false);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    ncclGroupStart();
    reduce(comm, LARGE, 1);
    fake.real_state = ncclInProgress;
    assert_int_equal(ncclGroupEnd(), ncclInProgress);
    assert_int_equal(fake.polls, 0);
    fake.real_state = ncclSuccess;
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    assert_last_is_behind(3, 2);
    end(comm);
}

/* An empty call is not the first of a group, as the real NCCL drops it and does not join its stream with the others. */
static void an_empty_call_leads_no_group(void **state)
{
    (void)state;
    fake_reset();
    shim_comm_t *comm = fake_comm(0, true);
    ncclGroupStart();
    assert_int_equal(reduce(comm, 0, 1), ncclSuccess);
    assert_int_equal(reduce(comm, LARGE, 2), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    assert_last_is_behind(2, 1);
    assert_int_equal(fake_known(fake_stream(1)), 0);
    end(comm);
}

/* A stream with an empty call does not wait, as another rank may wait for what follows there. */
static void an_empty_call_waits_for_nothing(void **state)
{
    (void)state;
    fake_reset();
    shim_comm_t *comm = fake_comm(0, true);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(reduce(comm, 0, 2), ncclSuccess);
    assert_int_equal(fake_known(fake_stream(2)), 0);
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    assert_last_is_behind(2, 1);
    end(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_work_is_waited_for),
        cmocka_unit_test(its_stream_may_be_gone),
        cmocka_unit_test(its_stream_may_be_captured_meanwhile),
        cmocka_unit_test(late_work_of_a_graph_is_recorded),
        cmocka_unit_test(an_answer_may_be_old),
        cmocka_unit_test(what_is_forwarded_next_covers_it),
        cmocka_unit_test(a_group_comes_late),
        cmocka_unit_test(an_empty_call_leads_no_group),
        cmocka_unit_test(an_empty_call_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
