/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_reset_test.c - the program resets a device that has communicators: no earlier event or stream is used again, and
 * a later communicator is served.
 */
#include "fake_calls.h"
#include "shim/comm/drain.h"
#include "shim/comm/order.h"
#include "shim/comm/reap.h"

static int set_up_with_life(void **state)
{
    fake_reset();
    fake.life = 1;
    *state = fake_comm(0, true);
    return 0;
}

/* Make calls that have created an event and side streams, and have not ended. */
static void make_calls(shim_comm_t *comm)
{
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(ncclGroupStart(), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(broadcast(comm, 2), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_true(fake.events > 0 && fake.streams_made > 0);
    fake.running = true;
}

static void its_calls_have_ended(void **state)
{
    shim_comm_t *comm = *state;
    make_calls(comm);
    assert_false(shim_drained(comm));
    fake_device_reset();
    assert_true(shim_drained(comm));
    assert_true(shim_drain(comm, 0));
    assert_int_equal(fake.stale, 0);
}

/* A set-up ends with a reap, which after a reset must not query a lost event. */
static void another_one_is_set_up(void **state)
{
    shim_comm_t *comm = *state;
    make_calls(comm);
    comm->scratch = (alg_scratch_t *)buffer; /* it has one */
    fake_device_reset();
    shim_comm_reap();
    assert_int_equal(fake.stale, 0);
    assert_int_equal(fake.reaps, 1);
}

static void it_ends(void **state)
{
    shim_comm_t *comm = *state;
    make_calls(comm);
    fake_device_reset();
    *state = fake_comm(0, true);
    fake_comm_end(comm);
    assert_int_equal(fake.stale, 0);
    assert_int_equal(fake.events, 0);
}

/* A communicator that waits for its kernels at a reset is released without use of its event. */
static void it_ended_before(void **state)
{
    shim_comm_t *comm = *state;
    make_calls(comm);
    shim_comm_retain(comm);
    assert_true(shim_comm_drop(comm, comm->handle));
    shim_comm_release_later(comm);
    shim_comm_reap();
    assert_non_null(comm->order.event); /* it still waits */
    fake_device_reset();
    *state = fake_comm(0, true);
    shim_comm_reap();
    assert_int_equal(fake.stale, 0);
    assert_null(comm->order.event);
}

static void with_a_graph(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    fake_stream_capture(fake_stream(1), 0);
    fake_device_reset();
    *state = fake_comm(0, true);
    fake_comm_end(comm);
    fake_graphs_destroy(); /* the program's graph outlived the device */
    shim_comm_reap();
    assert_int_equal(fake.stale, 0);
    assert_null(comm->order.captured);
}

/* The large part can be given away after a reset, without a query of its holder's event. */
static void it_held_the_large_part(void **state)
{
    make_calls(*state);
    fake.multiprocessors = 132;
    assert_int_equal(reduce(*state, FAKE_TAKEN_LIMIT, 1), ncclSuccess);
    fake_device_reset();
    shim_comm_t *other = fake_comm(0, true);
    assert_int_equal(reduce(other, FAKE_TAKEN_LIMIT, 3), ncclSuccess);
    assert_int_equal(fake.stale, 0);
    fake.running = false;
    fake_comm_end(other);
}

/* After a reset a late forwarded call of a non-blocking communicator is forgotten. */
static void a_late_call_is_forgotten(void **state)
{
    fake_comm_end(*state);
    shim_comm_t *comm = *state = fake_comm(0, false);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    fake.forward_result = ncclInProgress;
    assert_int_equal(broadcast(comm, 1), ncclInProgress);
    const unsigned long long number = shim_order_pending(comm);
    assert_int_not_equal(number, 0);
    fake_device_reset();
    shim_order_record_pending(comm, number);
    assert_int_equal(fake.stale, 0);
    assert_int_equal(shim_order_pending(comm), 0);
}

#define RESET(name) cmocka_unit_test_setup_teardown(name, set_up_with_life, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RESET(its_calls_have_ended),    RESET(another_one_is_set_up), RESET(it_ends),
        RESET(it_ended_before),         RESET(with_a_graph),          RESET(it_held_the_large_part),
        RESET(a_late_call_is_forgotten)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
