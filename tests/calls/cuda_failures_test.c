/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_failures_test.c - calls and groups that fail partly on a fake GPU, and the end of a communicator: what still
 * runs, and that no later call is paired with the peers' kernels of a call that did not launch.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "fake_calls.h"
#include "shim/call/group.h"
#include "shim/comm/drain.h"
#include "shim/comm/stop.h"

static void a_failed_launch_is_not_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    fake.launch_error = cudaErrorInvalidResourceHandle;
    assert_int_equal(reduce(comm, SMALL, 1), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 0);
    assert_non_null(strstr(ncclGetLastError(NULL), "400"));
    /* Nor is the next call taken: it would meet the peers' kernels of this one. */
    fake.launch_error = 0;
    assert_int_equal(reduce(comm, SMALL, 1), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 0);
}

/* End the set-up so that the communicator forwards. */
static void forward_from_now(shim_comm_t *comm)
{
    atomic_store(&comm->phase, SHIM_COMM_FORWARD);
}

/* Abort the communicator from another thread (ncclCommAbort); NCCL's communicator is gone. */
static void abort_it(shim_comm_t *comm)
{
    atomic_store(&comm->aborted, true);
    shim_comm_stop(comm);
}

/* From another thread, abort a communicator that shares its resources; NCCL's communicator still exists. */
static void stop_it(shim_comm_t *comm)
{
    shim_comm_stop(comm);
}

static void a_call_whose_communicator_is_aborted_while_it_waits(void **state)
{
    shim_comm_t *comm = *state;
    atomic_store(&comm->phase, SHIM_COMM_JOINING);
    fake.while_settling = abort_it;
    assert_int_equal(reduce(comm, SMALL, 1), ncclInvalidUsage);
    assert_int_equal(fake.works, 0);
    assert_non_null(strstr(ncclGetLastError(NULL), "aborted"));
    atomic_store(&comm->aborted, false);
    void (*const others[])(shim_comm_t *) = {forward_from_now, stop_it};
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store(&comm->phase, SHIM_COMM_JOINING);
        fake.while_settling = others[i];
        assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
        assert_int_equal(fake.works, 1 + i);
    }
}

/* If a call fails at the second of its kernels, the first one runs and must be drained, as it waits for its peers. */
static void a_call_that_launched_in_part_is_drained(void **state)
{
    shim_comm_t *comm = *state;
    fake.launch_error = cudaErrorInvalidResourceHandle;
    fake.launches_part = true;
    assert_int_equal(reduce(comm, SMALL, 1), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 1);
    fake.running = true;
    assert_false(shim_drain(comm, 1));
    assert_false(shim_drained(comm));
    fake.running = false;
    assert_true(shim_drain(comm, 1));
}

/* If a call's wait fails, it does not launch and all later calls fail: the peers' kernels of that call would be paired
 * with them. */
static void a_call_that_was_not_waited_for_is_the_last(void **state)
{
    shim_comm_t *comm = *state;
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    fake.wait_error = cudaErrorInvalidResourceHandle;
    assert_int_equal(reduce(comm, SMALL, 2), ncclUnhandledCudaError);
    fake.wait_error = 0;
    assert_int_equal(reduce(comm, SMALL, 2), ncclUnhandledCudaError);
    assert_int_equal(broadcast(comm, 2), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 1);
}

static void an_unheld_captured_call_is_the_last(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    fake.retain_error = cudaErrorMemoryAllocation;
    assert_int_equal(reduce(comm, SMALL, 1), ncclUnhandledCudaError);
    assert_int_equal(atomic_load(&comm->references), 1);
    fake.retain_error = 0;
    assert_int_equal(reduce(comm, SMALL, 1), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 0);
}

static void a_call_that_was_not_recorded_is_the_last(void **state)
{
    shim_comm_t *comm = *state;
    for (unsigned long long id = 0; id < 2; id++) {
        shim_comm_t *other = fake_comm(0, true);
        assert_int_equal(reduce(other, SMALL, 1), ncclSuccess);
        fake_stream_capture(fake_stream(1), id);
        fake.record_error = cudaErrorInvalidResourceHandle;
        assert_int_equal(reduce(other, SMALL, 1), ncclUnhandledCudaError);
        fake.record_error = 0;
        assert_int_equal(reduce(other, SMALL, 1), ncclUnhandledCudaError);
        assert_int_equal(fake.works, 2 * (1 + id));
        assert_int_equal(shim_drain(other, 1), id != 0); /* nobody knows when it ends; what is captured does not run */
        fake_graphs_destroy();
        fake_comm_end(other);
    }
    fake_stream_capture(fake_stream(1), 0);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
}

static void calls_are_drained(void **state)
{
    shim_comm_t *comm = *state;
    fake.running = true;
    assert_true(shim_drain(comm, 1));
    assert_true(shim_drained(comm));
    reduce(comm, SMALL, 1);
    assert_false(shim_drain(comm, 1));
    assert_false(shim_drained(comm));
    fake.running = false;
    assert_true(shim_drain(comm, 0));
    assert_true(shim_drained(comm));
}

static void *drain_for_a_while(void *comm)
{
    return shim_drain(comm, 1) ? comm : NULL;
}

/* A drain with a limit does not wait for the lock of a launch: that thread may be blocked in a full launch queue until
 * this one aborts another communicator. */
static void a_drain_with_a_limit_does_not_wait_for_a_launch(void **state)
{
    shim_comm_t *comm = *state;
    pthread_t thread;
    struct timespec limit; /* against hanging alone */
    void *drained = comm;
    reduce(comm, SMALL, 1);
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 20;
    pthread_mutex_lock(&comm->lock);
    assert_int_equal(pthread_create(&thread, NULL, drain_for_a_while, comm), 0);
    const int error = pthread_timedjoin_np(thread, &drained, &limit);
    pthread_mutex_unlock(&comm->lock);
    if (error != 0)
        pthread_join(thread, &drained);
    assert_int_equal(error, 0);
    assert_null(drained);
    assert_true(shim_drain(comm, 1));
}

/* A drain waits for replays, too, as they record the event. */
static void replays_are_drained(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    fake_stream_capture(fake_stream(1), 0);
    assert_true(shim_drained(comm));
    fake_graph_launch(9, fake_stream(3));
    fake.running = true;
    assert_false(shim_drain(comm, 1));
    assert_false(shim_drained(comm));
    fake.running = false;
    assert_true(shim_drain(comm, 0));
    assert_true(shim_drained(comm));
}

/* A finalize in a group comes after the group's calls; for a blocking communicator the group's end waits for them. */
static void a_finalize_in_a_group_comes_last(void **state)
{
    (void)state;
    for (int blocking = 0; blocking < 2; blocking++) {
        shim_comm_t *comm = fake_comm(0, blocking);
        const uint32_t launches = fake.launches;
        fake.running = true;
        fake.ends_after = blocking ? 3 : 0;
        assert_int_equal(ncclGroupStart(), ncclSuccess);
        assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
        assert_true(shim_group_finalize(comm));
        assert_int_equal(atomic_load(&comm->phase), SHIM_COMM_ATTACHED);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(fake.launches, launches + 1);
        assert_int_equal(fake.running, !blocking);
        assert_int_equal(atomic_load(&comm->phase), SHIM_COMM_DEAD);
        fake.running = false;
        fake_comm_end(comm);
    }
}

static void a_broken_communicator_reports_its_error(void **state)
{
    shim_comm_t *comm = *state;
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    atomic_store(&comm->async_error, ncclRemoteError);
    assert_int_equal(reduce(comm, SMALL, 1), ncclRemoteError);
    assert_int_equal(broadcast(comm, 1), ncclRemoteError);
    assert_int_equal(fake.works, 0);
}

static void a_failed_group_launches_nothing(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    fake.forward_result = ncclInvalidArgument;
    assert_int_equal(broadcast(comm, 1), ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidArgument);
    assert_int_equal(fake.works, 0);
    fake.forward_result = ncclSuccess;
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works, 1);
}

static void an_error_of_ours_cancels_the_real_group(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(2), 9);
    ncclGroupStart();
    assert_int_equal(broadcast(comm, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 2), ncclInvalidUsage); /* one captured, one not */
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    assert_int_equal(fake.works, 0);
    assert_int_equal(fake.real_depth, 0);
}

/* A group of a call of each of three communicators, with a forwarded one of the first. */
static ncclResult_t group_of_three(shim_comm_t *comm[3])
{
    for (int i = 0; i < 3; i++) {
        comm[i] = fake_comm(0, true);
        comm[i]->key.word[0] = (uint64_t)i + 1;
    }
    ncclGroupStart();
    for (int i = 0; i < 3; i++)
        reduce(comm[i], SMALL, i + 1);
    broadcast(comm[0], 4);
    return ncclGroupEnd();
}

static void assert_over_from(shim_comm_t *comm[3], int first)
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(comm[i]->async_error != ncclSuccess, i >= first);
        assert_int_equal(reduce(comm[i], SMALL, 1), comm[i]->async_error);
        fake_comm_end(comm[i]);
    }
}

static void a_group_that_stops_half_way(void **state)
{
    (void)state;
    shim_comm_t *comm[3];
    fake.launches_left = 2;
    assert_int_equal(group_of_three(comm), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 2); /* the real NCCL's, and the first of ours */
    fake.launch_error = 0;
    assert_int_equal(fake_known(fake_stream(1)), ALL_OF(2)); /* what ran is ordered all the same */
    assert_over_from(comm, 1);
}

static void a_group_whose_streams_do_not_join(void **state)
{
    (void)state;
    shim_comm_t *comm[3];
    fake.wait_error = cudaErrorInvalidResourceHandle;
    assert_int_equal(group_of_three(comm), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 0);
    fake.wait_error = 0;
    assert_over_from(comm, 0);
}

/* An error of the program is the same on all ranks, so nobody is behind; one of the machine is not. */
/* If the streams of a group do not join at its end, a collective or a message on a branch runs on without an event for
 * its end: nobody may take the scratch. */
static void a_group_whose_streams_do_not_join_at_its_end(void **state)
{
    (void)state;
    for (int message = 0; message < 2; message++) {
        shim_comm_t *comm = fake_comm(0, true);
        ncclGroupStart();
        for (int stream = 1; stream < 3; stream++)
            assert_int_equal(message ? ncclSend(buffer, SMALL, ncclFloat32, 1, comm->handle, fake_stream(stream))
                                     : reduce(comm, SMALL, stream),
                             ncclSuccess);
        fake.late_wait_error = cudaErrorInvalidResourceHandle;
        assert_int_equal(ncclGroupEnd(), ncclUnhandledCudaError);
        fake.late_wait_error = fake.wait_error = 0;
        fake.running = true;
        assert_false(shim_drain(comm, 1));
        fake.running = false;
        fake_comm_end(comm);
    }
}

static void a_group_that_fails_in_the_real_nccl(void **state)
{
    (void)state;
    shim_comm_t *comm[3];
    fake.forward_result = ncclInvalidArgument;
    assert_int_equal(group_of_three(comm), ncclInvalidArgument);
    assert_int_equal(fake.works, 0);
    assert_over_from(comm, 3);
    fake.forward_result = ncclSystemError;
    assert_int_equal(group_of_three(comm), ncclSystemError);
    assert_over_from(comm, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {TEST(a_failed_launch_is_not_forwarded),
                                       TEST(a_call_whose_communicator_is_aborted_while_it_waits),
                                       TEST(a_call_that_launched_in_part_is_drained),
                                       TEST(a_call_that_was_not_waited_for_is_the_last),
                                       TEST(an_unheld_captured_call_is_the_last),
                                       TEST(a_call_that_was_not_recorded_is_the_last),
                                       TEST(calls_are_drained),
                                       TEST(a_drain_with_a_limit_does_not_wait_for_a_launch),
                                       TEST(replays_are_drained),
                                       TEST(a_finalize_in_a_group_comes_last),
                                       TEST(a_broken_communicator_reports_its_error),
                                       TEST(a_failed_group_launches_nothing),
                                       TEST(an_error_of_ours_cancels_the_real_group),
                                       TEST(a_group_that_stops_half_way),
                                       TEST(a_group_whose_streams_do_not_join),
                                       TEST(a_group_whose_streams_do_not_join_at_its_end),
                                       TEST(a_group_that_fails_in_the_real_nccl)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
