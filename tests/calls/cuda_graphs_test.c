/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_graphs_test.c - captured calls beside eager ones, on a fake GPU: each graph is ordered with all other work of
 * its communicator.
 */
#include "fake_calls.h"
#include "shim/comm/reap.h"
#include "shim/comm/share.h"

/* Capture a call of each kind on two streams, which are then removed from the capture. */
static void capture(shim_comm_t *comm, unsigned long long id)
{
    for (int i = 1; i < 3; i++)
        fake_stream_capture(fake_stream(i), id);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(broadcast(comm, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    for (int i = 1; i < 3; i++)
        fake_stream_capture(fake_stream(i), 0);
}

/* A graph has one wait before its first call and one record after its last. */
static void a_graph_waits_and_records(void **state)
{
    shim_comm_t *comm = *state;
    for (int i = 1; i < 3; i++)
        fake_stream_capture(fake_stream(i), 9);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(i == 2 ? broadcast(comm, 1) : reduce(comm, SMALL, i == 4 ? 2 : 1), ncclSuccess);
        assert_int_equal(fake_nodes(9, FAKE_WAIT), 1);
        assert_int_equal(fake_nodes(9, FAKE_RECORD), 1);
        assert_int_equal(fake_recorded(9), UINT64_C(1) << i);
    }
    assert_int_equal(fake_nodes(9, FAKE_WORK), 5);
    assert_int_equal(fake_after_waits(9), ALL_OF(5));
    assert_in_order(5);
}

/* Only calls wait: work before a graph's first call runs beside the communicator's earlier work, which hides the cost
 * of the wait. */
static void a_wait_holds_nothing_but_calls(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 3);
    fake_stream_capture(fake_stream(1), 9);
    for (int i = 0; i < 2; i++)
        fake_work(FAKE_REAL, fake_stream(1), 0);
    reduce(comm, SMALL, 1);
    fake_stream_capture(fake_stream(1), 0);
    assert_true(after(3, 2));
    assert_int_equal(fake_before_waits(9), 0);
    assert_int_equal(fake_after_waits(9), 1 << 3);
    fake_graph_launch(9, fake_stream(4));
    assert_true(!after(5, 0) && after(6, 5) && after(6, 0));
}

static void replays_and_eager_calls_are_in_order(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 3);
    capture(comm, 9);
    fake_graph_launch(9, fake_stream(4));
    reduce(comm, SMALL, 3);
    reduce(comm, SMALL, 3);
    fake_graph_launch(9, fake_stream(4));
    broadcast(comm, 3);
    fake_graph_launch(9, fake_stream(5));
    fake_graph_launch(9, fake_stream(6));
    reduce(comm, SMALL, 3);
    reduce(comm, SMALL, 7);
    assert_run_in_order(0, 6 + 4 * 3);
}

static void a_graph_may_come_before_all_eager_calls(void **state)
{
    shim_comm_t *comm = *state;
    capture(comm, 9);
    fake_graph_launch(9, fake_stream(4));
    reduce(comm, SMALL, 3);
    fake_graph_launch(9, fake_stream(4));
    assert_run_in_order(0, 7);
    assert_int_equal(fake_nodes(9, FAKE_WAIT), 1); /* none without a record of the event before */
}

static void graphs_are_in_order_among_themselves(void **state)
{
    shim_comm_t *comm = *state;
    capture(comm, 9);
    capture(comm, 10);
    fake_graph_launch(9, fake_stream(3));
    fake_graph_launch(10, fake_stream(4));
    fake_stream_capture(fake_stream(1), 11);
    reduce(comm, SMALL, 1);
    fake_graph_launch(9, fake_stream(3)); /* while a capture is under way */
    reduce(comm, SMALL, 5);
    reduce(comm, SMALL, 1);
    fake_stream_capture(fake_stream(1), 0);
    fake_graph_launch(11, fake_stream(5));
    fake_graph_launch(10, fake_stream(4));
    assert_run_in_order(0, 4 * 3 + 1 + 2);
}

/* Order is kept in a graph that allocates memory, as cuBLAS does in a capture: such a graph's edges cannot be
 * removed. */
static void a_graph_that_allocates_memory_is_in_order(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    fake.remove_error = cudaErrorInvalidValue; /* memory is allocated now */
    for (int i = 0; i < 2; i++)
        assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(broadcast(comm, 1), ncclSuccess);
    fake_stream_capture(fake_stream(1), 0);
    assert_int_equal(comm->async_error, ncclSuccess);
    assert_int_equal(fake_nodes(9, FAKE_WAIT), 1);
    for (int i = 0; i < 2; i++) {
        fake_graph_launch(9, fake_stream(4));
        assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    }
    fake.remove_error = 0;
    assert_run_in_order(0, 2 * (5 + 1));
}

static void communicators_have_their_own_order(void **state)
{
    shim_comm_t *first = *state, *second = fake_comm(1, true);
    reduce(second, SMALL, 6);
    capture(first, 9);
    capture(second, 9);
    assert_int_equal(fake_nodes(9, FAKE_WAIT), 2);
    assert_int_equal(fake_nodes(9, FAKE_RECORD), 2);
    fake_graph_launch(9, fake_stream(3));
    reduce(first, SMALL, 4);
    reduce(second, SMALL, 5);
    fake_graph_launch(9, fake_stream(3));
    reduce(second, SMALL, 6);
    assert_run_in_order(0, 2 * 3 + 1);
    assert_run_in_order(1, 2 * 3 + 3);
    assert_int_equal(fake.work[7].before & fake.work[8].before, 0); /* each beside the other */
    fake_graphs_destroy();
    fake_comm_end(second);
}

static void grouped_calls_are_in_order_with_graphs(void **state)
{
    shim_comm_t *comm = *state;
    capture(comm, 9);
    fake_graph_launch(9, fake_stream(4));
    ncclGroupStart();
    reduce(comm, SMALL, 3);
    reduce(comm, SMALL, 3);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    fake_graph_launch(9, fake_stream(4));
    assert_run_in_order(0, 8);
}

/* CUDA calls of an eager one. */
static uint32_t cost_of(shim_comm_t *comm, int stream)
{
    const uint32_t before = fake.cuda_calls;
    assert_int_equal(reduce(comm, SMALL, stream), ncclSuccess);
    return fake.cuda_calls - before;
}

/* After the last graph was destroyed, one more call waits, as its replay may still run; the later calls have no extra
 * cost. */
static void calls_after_the_last_graph_are_as_cheap_as_before(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 3);
    for (unsigned long long id = 9; id < 11; id++) {
        assert_int_equal(cost_of(comm, 3), 1);
        capture(comm, id);
        fake_graph_launch(id, fake_stream(4));
        for (int i = 0; i < 2; i++)
            assert_int_equal(cost_of(comm, 3), 2);
        fake_graph_launch(id, fake_stream(4));
        fake_graphs_destroy();
        for (int i = 0; i < 2; i++)
            assert_int_equal(cost_of(comm, 3), i == 0 ? 2 : 1);
    }
    assert_int_equal(cost_of(comm, 5), 2);
    assert_run_in_order(0, 1 + 2 * (5 + 2 * 3) + 1);
}

/* A call whose work is not on its stream yet may be the one that waits for the last replay; it records nothing. */
static void a_late_call_may_be_the_first_after_the_last_graph(void **state)
{
    (void)state;
    shim_comm_t *comm = fake_comm(0, false);
    reduce(comm, SMALL, 3);
    capture(comm, 9);
    fake_graph_launch(9, fake_stream(4));
    fake_graphs_destroy();
    fake.forward_result = fake.real_state = ncclInProgress;
    assert_int_equal(reduce(comm, LARGE, 5), ncclInProgress);
    assert_int_equal(reduce(comm, LARGE, 3), ncclInProgress);
    fake.forward_result = fake.real_state = ncclSuccess;
    assert_int_equal(fake_known(fake_stream(5)) & 0x71, 0x71);
    assert_int_equal(fake_known(fake_stream(3)) & 0x71, 0x71); /* the replay of works 1 to 3 is 4 to 6 */
    fake_comm_end(comm);
}

/* A graph captured after the last one is ordered after its replay, even if the replay was the first work of all. */
static void a_graph_may_follow_the_last_one(void **state)
{
    shim_comm_t *comm = *state;
    capture(comm, 9);
    fake_graph_launch(9, fake_stream(4));
    fake_graphs_destroy();
    fake.launch_error = cudaErrorInvalidValue;
    fake.record_error = cudaErrorInvalidValue;
    assert_int_not_equal(reduce(comm, SMALL, 3), ncclSuccess);
    fake.launch_error = fake.record_error = 0;
    atomic_store(&comm->async_error, ncclSuccess);
    capture(comm, 10);
    fake_graph_launch(10, fake_stream(5));
    assert_run_in_order(0, 6);
}

/* With NCCL_GRAPH_MIXING_SUPPORT=0 graphs get no waits and records: the program orders them. */
static void without_mixing_the_program_orders_them(void **state)
{
    shim_comm_t *comm = *state;
    comm->config.graph_mixing = false;
    reduce(comm, SMALL, 3);
    const int first = fake.cuda_calls;
    capture(comm, 9);
    assert_int_equal(fake.cuda_calls, first);
    assert_int_equal(fake_nodes(9, FAKE_WAIT) + fake_nodes(9, FAKE_RECORD), 0);
    assert_int_equal(fake.work[2].before, 2);
    assert_int_equal(fake.work[3].before, 2 | 4); /* among themselves they are in order, still */
    fake_graph_launch(9, fake_stream(4));
    assert_int_equal(fake.work[4].before, 0);
    reduce(comm, SMALL, 3);
    assert_int_equal(fake.work[7].before, 1);
}

/* Resources of a graph's nodes are freed with the last graph, not with the communicator; the driver's callback makes no
 * CUDA call. */
static void a_graph_may_outlive_its_communicator(void **state)
{
    (void)state;
    shim_comm_t *comm = fake_comm(0, true);
    capture(comm, 9);
    fake_comm_end(comm);
    assert_int_equal(fake.events, 1);
    fake_graph_launch(9, fake_stream(3));
    fake_graph_launch(9, fake_stream(4));
    assert_run_in_order(0, 6);
    const uint32_t events = fake.events;
    fake_graphs_destroy();
    assert_int_equal(fake.events, events);
    shim_comm_reap();
    assert_int_equal(fake.events, 0);
}

static void graphs_keep_the_communicator(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    reduce(comm, SMALL, 1);
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.graph_references, 1);
    assert_int_equal(atomic_load(&comm->references), 2);
    fake_stream_capture(fake_stream(1), 10);
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.graph_references, 2);
    fake_graphs_destroy();
    assert_int_equal(atomic_load(&comm->references), 1);
}

/* Calls stay in order if the program rewinds its stream to an earlier node of the capture. */
static void a_rewound_stream_is_in_order(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    fake_work(FAKE_REAL, fake_stream(1), 0); /* 0: the program's */
    reduce(comm, SMALL, 1);
    fake_stream_rewind(fake_stream(1), 0);
    reduce(comm, SMALL, 1);
    assert_true(after(2, 1));
    fake_work(FAKE_REAL, fake_stream(1), 0);
    fake_work(FAKE_REAL, fake_stream(1), 0);
    fake_stream_rewind(fake_stream(1), 1);
    broadcast(comm, 1);
    assert_true(after(5, 2) && !after(5, 3));
    fake_stream_rewind(fake_stream(1), 4);
    reduce(comm, SMALL, 1);
    assert_true(after(6, 5) && after(6, 4));
    assert_int_equal(fake_nodes(9, FAKE_RECORD), 1);
    assert_int_equal(fake_recorded(9), UINT64_C(1) << 6);
}

/* Calls on a stream that is in order get no second edge, which would prevent dependent launch. */
static void a_stream_in_order_gets_no_edge(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    for (int i = 0; i < 3; i++)
        reduce(comm, SMALL, 1);
    assert_int_equal(fake.searched, 0); /* each comes right behind the other */
    for (int i = 0; i < 10; i++)
        fake_work(FAKE_REAL, fake_stream(1), 0);
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.searched, 10);
    assert_int_equal(fake_edges(9), 3 + 10 + 1);
    fake_stream_capture(fake_stream(2), 9); /* two branches of the program's, which join */
    fake_join(fake_stream(2), fake_stream(1));
    fake_work(FAKE_REAL, fake_stream(1), 0);
    fake_work(FAKE_REAL, fake_stream(2), 0);
    fake_join(fake_stream(1), fake_stream(2));
    reduce(comm, SMALL, 1);
    assert_int_equal(fake_edges(9), 14 + 2 + 2);
    assert_true(after(16, 13) && after(16, 15));
}

/* The next call waits for each end node of the last call, here a group's collective and its messages on a separate
 * path. One end that is found on two paths must not stand for both. */
static void each_end_of_the_last_call_is_waited_for(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    assert_int_equal(ncclSend(buffer, SMALL, ncclFloat32, 1, comm->handle, fake_stream(1)), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works, 2);
    fake_stream_rewind(fake_stream(1), 0); /* behind one of the two alone */
    fake_stream_capture(fake_stream(2), 9);
    fake_join(fake_stream(2), fake_stream(1));
    for (int i = 0; i < 10; i++)
        fake_work(FAKE_REAL, fake_stream(2), 0);
    fake_join(fake_stream(1), fake_stream(2)); /* to which another path leads, too */
    reduce(comm, SMALL, 1);
    assert_true(after(12, 0) && after(12, 1));
}

/* If the driver does not report a node's dependencies, the edge is added. */
static void an_unknown_path_gets_an_edge(void **state)
{
    shim_comm_t *comm = *state;
    fake.search_error = cudaErrorInvalidValue;
    fake_stream_capture(fake_stream(1), 9);
    reduce(comm, SMALL, 1);
    fake_work(FAKE_REAL, fake_stream(1), 0);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(fake_edges(9), 1 + 1 + 2);
    assert_in_order(3);
}

/* Captures some calls; returns those (bits) without dependent launch, which changes the kinds of a graph's edges. */
static uint64_t shape_of(shim_comm_t *comm, unsigned long long id)
{
    const uint32_t first = fake.launches;
    fake_stream_capture(fake_stream(1), id);
    for (int i = 0; i < 3; i++)
        reduce(comm, SMALL, 1);
    for (int i = 0; i < 2; i++)
        reduce(comm, FAKE_TAKEN_LIMIT, 1);
    reduce(comm, SMALL, 1);
    reduce(comm, 600, 1);
    fake_stream_capture(fake_stream(1), 0);
    return fake.apart >> first & ALL_OF(fake.launches - first);
}

/* Only for captured forwarded calls is the capture mode relaxed: the real NCCL may connect in them, which strict modes
 * forbid. */
static void only_captured_forwarded_calls_are_relaxed(void **state)
{
    shim_comm_t *comm = *state;
    static const bool relaxed[] = {false, false, false, true, true, false};
    assert_int_equal(reduce(comm, LARGE, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    fake_stream_capture(fake_stream(1), 9);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(reduce(comm, LARGE, 1), ncclSuccess);
    ncclGroupStart();
    assert_int_equal(reduce(comm, LARGE, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works, 6);
    for (uint32_t i = 0; i < fake.works; i++)
        assert_int_equal(fake.work[i].relaxed, relaxed[i]);
    fake_stream_capture(fake_stream(1), 0);
    fake_graphs_destroy();
}

/* So that a program may update an instance with a graph of the same calls, captured again. Only one that is larger than
 * the call before it is launched apart. */
static void calls_captured_again_have_the_same_shape(void **state)
{
    shim_comm_t *comm = *state, *other = fake_comm(0, true);
    const uint64_t apart = 1 << 3 | 1 << 6;
    fake.multiprocessors = 12;
    assert_int_equal(shape_of(comm, 9), apart);
    reduce(comm, SMALL, 3);
    assert_int_equal(shape_of(comm, 10), apart);
    reduce(comm, FAKE_TAKEN_LIMIT, 3);
    assert_int_equal(shape_of(comm, 11), apart);
    reduce(other, FAKE_TAKEN_LIMIT, 4);
    reduce(comm, SMALL, 3);
    assert_int_equal(shape_of(comm, 12), apart);
    assert_int_equal(shape_of(other, 13), apart);
    fake_graphs_destroy();
    fake_comm_end(other);
}

/* Whether a captured call is launched apart does not depend on eager calls or on other captures. */
static void captures_do_not_change_each_other(void **state)
{
    shim_comm_t *comm = *state;
    for (int i = 1; i < 3; i++)
        fake_stream_capture(fake_stream(i), 8 + (unsigned)i);
    for (int i = 0; i < 3; i++) {
        reduce(comm, 600, 1);
        reduce(comm, SMALL, 3);
        reduce(comm, SMALL, 2);
    }
    assert_int_equal(fake.apart & 0555, 0); /* of streams 1 and 2 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(a_graph_waits_and_records),
                                       TEST(a_wait_holds_nothing_but_calls),
                                       TEST(replays_and_eager_calls_are_in_order),
                                       TEST(a_graph_may_come_before_all_eager_calls),
                                       TEST(graphs_are_in_order_among_themselves),
                                       TEST(a_graph_that_allocates_memory_is_in_order),
                                       TEST(communicators_have_their_own_order),
                                       TEST(grouped_calls_are_in_order_with_graphs),
                                       TEST(calls_after_the_last_graph_are_as_cheap_as_before),
                                       TEST(a_late_call_may_be_the_first_after_the_last_graph),
                                       TEST(a_graph_may_follow_the_last_one),
                                       TEST(without_mixing_the_program_orders_them),
                                       TEST(a_graph_may_outlive_its_communicator),
                                       TEST(graphs_keep_the_communicator),
                                       TEST(a_rewound_stream_is_in_order),
                                       TEST(a_stream_in_order_gets_no_edge),
                                       TEST(each_end_of_the_last_call_is_waited_for),
                                       TEST(an_unknown_path_gets_an_edge),
                                       TEST(only_captured_forwarded_calls_are_relaxed),
                                       TEST(calls_captured_again_have_the_same_shape),
                                       TEST(captures_do_not_change_each_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
