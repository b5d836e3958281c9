/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_order_test.c - the order of a communicator's calls over streams and captures, on a fake GPU.
 */
#include "fake_calls.h"
#include "shim/names/names.h"

/* On one stream each call records an event, which is made once, and nothing waits. */
static void one_stream_costs_an_event(void **state)
{
    shim_comm_t *comm = *state;
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    const int first = fake.cuda_calls;
    for (int i = 0; i < 4; i++)
        assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    assert_in_order(5);
    assert_int_equal(fake.cuda_calls - first, 4);
    assert_int_equal(fake.queries, 5);
}

static void a_forwarded_call_looks_once_for_a_capture(void **state)
{
    shim_comm_t *comm = *state;
    assert_int_equal(reduce(comm, LARGE, 3), ncclSuccess);
    assert_int_equal(fake.queries, 1);
    assert_int_equal(broadcast(comm, 3), ncclSuccess);
    assert_int_equal(fake.queries, 2);
    fake_stream_capture(fake_stream(3), ~0ull);
    assert_int_equal(reduce(comm, LARGE, 3), ncclSuccess);
    assert_int_equal(fake.works, 3);
}

static void streams_take_turns_in_order(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 1);
    reduce(comm, SMALL, 1);
    reduce(comm, SMALL, 2);
    reduce(comm, SMALL, 2);
    reduce(comm, SMALL, 3);
    reduce(comm, SMALL, 1);
    assert_in_order(6);
}

static void forwarded_and_taken_share_the_order(void **state)
{
    shim_comm_t *comm = *state;
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(reduce(comm, LARGE, 2), ncclSuccess);
    assert_int_equal(broadcast(comm, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    assert_in_order(4);
    assert_int_equal(fake.work[0].kind, FAKE_OURS);
    assert_int_equal(fake.work[1].kind, FAKE_REAL);
    assert_int_equal(fake.work[2].kind, FAKE_REAL);
    assert_int_equal(fake.work[3].kind, FAKE_OURS);
}

static void configured_calls_share_it_too(void **state)
{
    shim_comm_t *comm = *state;
    static const char config[64]; /* whatever it asks for */
    const ncclCollConfig_t *some = (const void *)config;
    cudaStream_t second = fake_stream(2), third = fake_stream(3);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(ncclAllReduceConfig(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, second, some),
                     ncclSuccess);
    assert_int_equal(ncclAllReduceConfig(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, third, NULL),
                     ncclSuccess);
    assert_in_order(3);
    assert_int_equal(fake.work[0].kind, FAKE_OURS);
    assert_int_equal(fake.work[1].kind, FAKE_REAL);
    assert_int_equal(fake.work[2].kind, FAKE_OURS); /* without one it is the plain call */
}

static void puts_and_waits_for_signals_share_it_too(void **state)
{
    shim_comm_t *comm = *state;
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(ncclPutSignal(buffer, SMALL, ncclFloat32, 0, NULL, 0, 0, 0, 0, comm->handle, fake_stream(2)),
                     ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    assert_int_equal(ncclWaitSignal(0, NULL, comm->handle, fake_stream(2)), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_in_order(5);
    assert_int_equal(fake.real_calls, 2);
    assert_string_equal(fake.real_call[0], "ncclPutSignal");
    assert_string_equal(fake.real_call[1], "ncclWaitSignal");
}

static void signals_share_it_too(void **state)
{
    shim_comm_t *comm = *state;
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(ncclSignal(0, 0, 0, 0, comm->handle, fake_stream(2)), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    ncclSignal(0, 0, 0, 0, comm->handle, fake_stream(2));
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    assert_int_equal(fake.works, 6);
    assert_int_equal(fake.work[4].kind, FAKE_OURS); /* of the group, beside the signal */
    assert_true(beside(3, 4));
    assert_int_equal(fake.work[3].before, ALL_OF(3));
    assert_int_equal(fake.work[4].before, ALL_OF(3));
    assert_int_equal(fake.work[5].before, ALL_OF(5));
}

static void a_suspended_communicator_takes_no_call(void **state)
{
    shim_comm_t *comm = *state;
    fake.forward_result = ncclInvalidUsage;
    assert_int_equal(ncclCommSuspend(comm->handle, 1), ncclInvalidUsage);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess); /* it was refused, so nothing changes */
    fake.forward_result = ncclSuccess;
    assert_int_equal(ncclCommSuspend(comm->handle, 0), ncclSuccess); /* of nothing */
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(fake.work[1].kind, FAKE_OURS);
    assert_int_equal(ncclCommSuspend(comm->handle, 1), ncclSuccess);
    fake.forward_result = ncclInvalidUsage;
    assert_int_equal(reduce(comm, SMALL, 1), ncclInvalidUsage);
    assert_int_equal(fake.works, 2);
    assert_int_equal(ncclCommResume(comm->handle), ncclInvalidUsage);
    assert_int_equal(reduce(comm, SMALL, 1), ncclInvalidUsage);
    fake.forward_result = ncclSuccess;
    assert_int_equal(ncclCommResume(comm->handle), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_in_order(3);
    assert_int_equal(fake.work[2].kind, FAKE_OURS);
}

/* A call requests a missing piece of scratch once; if it is refused, such calls are forwarded and short ones are still
 * taken. */
static void a_call_waits_for_its_memory(void **state)
{
    enum { LONG = FAKE_SHORT_ELEMENTS + 1 };
    shim_comm_t *comm = *state;
    fake.cut = true;
    reduce(comm, FAKE_SHORT_ELEMENTS, 1);
    assert_int_equal(fake.asks, 0);
    assert_int_equal(fake.pieces, 1 << ALG_PIECE_FIRST);
    reduce(comm, LONG, 1);
    reduce(comm, LONG, 1);
    assert_int_equal(fake.asks, 1);
    assert_int_equal(fake.pieces, 1 << ALG_PIECE_FIRST | 1 << ALG_PIECE_HALVES);
    assert_in_order(3);
    assert_int_equal(fake.work[2].kind, FAKE_OURS);
    fake.grown = false;
    fake.stays_short = true;
    ncclGroupStart();
    reduce(comm, LONG, 1);
    reduce(comm, SMALL, 1);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.asks, 2);
    assert_int_equal(fake.works, 5);
    assert_int_equal(fake.work[3].kind, FAKE_REAL);
    assert_int_equal(fake.work[4].kind, FAKE_OURS);
}

/* The order is kept after a stream was destroyed: what is needed later is recorded while it exists. */
static void a_stream_may_be_gone(void **state)
{
    shim_comm_t *comm = *state;
    for (int i = 1; i < 6; i++) {
        reduce(comm, SMALL, i);
        fake_stream_destroy(fake_stream(i));
    }
    assert_in_order(5);
}

static void a_call_on_a_dead_stream_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_destroy(fake_stream(1));
    fake.forward_result = ncclUnhandledCudaError;
    assert_int_equal(reduce(comm, SMALL, 1), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 0);
}

static void legacy_stream_has_two_names(void **state)
{
    shim_comm_t *comm = *state;
    for (int i = 0; i < 2; i++) {
        ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, NULL);
        ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, cudaStreamLegacy);
    }
    assert_int_equal(fake.works, 4);
    assert_int_equal(fake.cuda_calls, 1 + 4); /* an event made, and recorded four times: no wait */
}

static void implicit_capture_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(0), ~0ull);
    fake.forward_result = ncclUnhandledCudaError;
    assert_int_equal(ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, NULL),
                     ncclUnhandledCudaError);
    assert_int_equal(fake.works, 0);
}

static void the_device_is_lent(void **state)
{
    (void)state;
    shim_comm_t *comm = fake_comm(5, true);
    fake.device = 1;
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(fake.work[0].device, 5);
    assert_int_equal(fake.device, 1);
    fake_comm_end(comm);
}

static void captures_are_a_world_of_their_own(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 1);
    reduce(comm, SMALL, 2);
    fake_stream_capture(fake_stream(3), 9);
    fake_stream_capture(fake_stream(4), 9);
    reduce(comm, SMALL, 3);
    reduce(comm, SMALL, 4); /* waits for 3 inside the capture */
    broadcast(comm, 3);
    fake_stream_capture(fake_stream(3), 0);
    fake_stream_capture(fake_stream(4), 0);
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.works, 6);
    assert_int_equal(fake.wrong_waits, 0);
    assert_int_equal(fake.work[2].before, 0);
    assert_int_equal(fake.work[3].before, 4);
    assert_int_equal(fake.work[4].before, 4 | 8);
    assert_int_equal(fake.work[5].before, 1 | 2);
}

/* Calls in one capture do not hide the order of those in another. */
static void captures_may_take_turns(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    fake_stream_capture(fake_stream(2), 9);
    fake_stream_capture(fake_stream(3), 10);
    fake_stream_capture(fake_stream(4), 10);
    reduce(comm, SMALL, 1);
    reduce(comm, SMALL, 3);
    reduce(comm, SMALL, 2); /* waits for 1 */
    broadcast(comm, 4);     /* waits for 3 */
    assert_int_equal(fake.works, 4);
    assert_int_equal(fake.wrong_waits, 0);
    assert_int_equal(fake.work[2].before, 1);
    assert_int_equal(fake.work[3].before, 2);
}

static void the_last_stream_may_be_in_a_capture(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 1);
    fake_stream_capture(fake_stream(1), 9);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    assert_int_equal(fake.wrong_waits, 0);
    assert_int_equal(fake.works, 2);
}

/* The order is kept across more captures than any table has room for. */
static void many_captures_may_take_turns(void **state)
{
    enum { MANY = 7 };
    shim_comm_t *comm = *state;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2 * MANY; i++)
            fake_stream_capture(fake_stream(1 + i), 0);
        for (unsigned i = 0; i < 2 * MANY; i++)
            fake_stream_capture(fake_stream(1 + (int)i), 100 + (unsigned)round * MANY + i / 2);
        for (int i = 0; i < MANY; i++)
            reduce(comm, SMALL, 1 + 2 * i);
        for (int i = 0; i < MANY; i++)
            reduce(comm, SMALL, 2 + 2 * i);
        for (uint32_t i = 0; i < MANY; i++)
            assert_int_equal(fake.work[fake.works - MANY + i].before, UINT64_C(1) << (fake.works - 2 * MANY + i));
    }
    fake_stream_capture(fake_stream(1), 100); /* the first one goes on */
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.work[fake.works - 1].before, ALL_OF(1) | UINT64_C(1) << MANY);
    assert_int_equal(fake.wrong_waits, 0);
}

static void a_captured_stream_may_be_gone(void **state)
{
    shim_comm_t *comm = *state;
    for (int i = 1; i < 4; i++)
        fake_stream_capture(fake_stream(i), 9);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    fake_stream_destroy(fake_stream(1));
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    fake_stream_destroy(fake_stream(2));
    assert_int_equal(broadcast(comm, 3), ncclSuccess);
    assert_in_order(3);
}

static void a_handle_may_come_again(void **state)
{
    shim_comm_t *comm = *state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
        fake_stream_destroy(fake_stream(1));
        fake_stream_again(fake_stream(1));
    }
    assert_in_order(3);
}

static void a_handle_may_come_again_in_a_capture(void **state)
{
    shim_comm_t *comm = *state;
    for (int i = 0; i < 3; i++) {
        fake_stream_capture(fake_stream(1), 9);
        assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
        fake_stream_destroy(fake_stream(1));
        fake_stream_again(fake_stream(1));
    }
    assert_in_order(3);
}

static void not_ready_is_forwarded(void **state)
{
    (void)state;
    shim_comm_t *comm = fake_comm(0, false);
    fake.real_state = ncclInvalidArgument;
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.work[0].kind, FAKE_REAL);
    fake.real_state = ncclSuccess;
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.work[1].kind, FAKE_OURS);
    fake_comm_end(comm);
}

/* With room for 6 blocks (share_test.c) a larger call is launched separately. */
static void a_larger_call_is_launched_apart(void **state)
{
    shim_comm_t *comm = *state, *other = fake_comm(0, true); /* a lone one has all 12 */
    fake.multiprocessors = 12;
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(fake.apart, 0);
    assert_int_equal(reduce(comm, FAKE_TAKEN_LIMIT, 1), ncclSuccess);
    assert_int_equal(fake.apart, 4);
    assert_int_equal(reduce(comm, FAKE_TAKEN_LIMIT, 1), ncclSuccess);
    assert_int_equal(fake.apart, 4);
    assert_in_order(4);
    fake_comm_end(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(one_stream_costs_an_event),
                                       TEST(a_forwarded_call_looks_once_for_a_capture),
                                       TEST(streams_take_turns_in_order),
                                       TEST(forwarded_and_taken_share_the_order),
                                       TEST(configured_calls_share_it_too),
                                       TEST(signals_share_it_too),
                                       TEST(puts_and_waits_for_signals_share_it_too),
                                       TEST(a_suspended_communicator_takes_no_call),
                                       TEST(a_call_waits_for_its_memory),
                                       TEST(a_stream_may_be_gone),
                                       TEST(a_call_on_a_dead_stream_is_forwarded),
                                       TEST(legacy_stream_has_two_names),
                                       TEST(implicit_capture_is_forwarded),
                                       TEST(the_device_is_lent),
                                       TEST(captures_are_a_world_of_their_own),
                                       TEST(captures_may_take_turns),
                                       TEST(the_last_stream_may_be_in_a_capture),
                                       TEST(many_captures_may_take_turns),
                                       TEST(a_captured_stream_may_be_gone),
                                       TEST(a_handle_may_come_again),
                                       TEST(a_handle_may_come_again_in_a_capture),
                                       TEST(a_larger_call_is_launched_apart),
                                       TEST(not_ready_is_forwarded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
