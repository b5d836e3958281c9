/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_groups_test.c - groups on a fake GPU: when calls launch, on which streams and in which order.
 */
#include <pthread.h>
#include <unistd.h>

#include "fake_calls.h"
#include "shim/call/group.h"

static void ours_launch_after_the_outermost_end(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    ncclGroupStart();
    assert_int_equal(shim_group_depth(), 2);
    assert_int_equal(broadcast(comm, 1), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works, 0);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(shim_group_depth(), 0);
    assert_int_equal(fake.works, 3);
    assert_int_equal(fake.work[0].kind, FAKE_REAL);
    assert_int_equal(fake.work[1].kind, FAKE_OURS);
    assert_int_equal(fake.work[2].before, 2); /* in order, beside the real NCCL's */
    assert_int_equal(fake.wrong_waits, 0);
    assert_int_equal(atomic_load(&comm->references), 1);
}

static void simulation_launches_nothing(void **state)
{
    shim_comm_t *comm = *state;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    broadcast(comm, 1);
    assert_int_equal(ncclGroupSimulateEnd(&info), ncclSuccess);
    assert_true(info.estimatedTime == 2.0f); /* of all calls, whoever would run them */
    assert_int_equal(fake.works, 0);
    assert_int_equal(shim_group_depth(), 0);
    reduce(comm, SMALL, 1);
    assert_int_equal(fake.works, 1);
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    assert_int_equal(ncclGroupSimulateEnd(NULL), ncclSuccess);
    assert_int_equal(fake.works, 2);
}

static void one_end_too_many(void **state)
{
    (void)state;
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    assert_int_equal(shim_group_depth(), 0);
}

static void all_streams_of_a_group_join(void **state)
{
    shim_comm_t *comm = *state;
    /* Work of the program on streams 1 to 3 that the group must wait for. */
    shim_comm_t *other[3];
    for (int i = 0; i < 3; i++) {
        other[i] = fake_comm(0, true);
        reduce(other[i], SMALL, i + 1);
    }
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    broadcast(comm, 2);
    reduce(comm, SMALL, 3);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works, 6);
    for (uint32_t i = 3; i < 6; i++)
        assert_int_equal(fake.work[i].before & ALL_OF(3), ALL_OF(3));
    for (int i = 1; i <= 3; i++)
        assert_int_equal(fake_known(fake_stream(i)) & ALL_OF(6), ALL_OF(6));
    reduce(comm, SMALL, 4);
    assert_in_order_from(6, 7);
    for (int i = 0; i < 3; i++)
        fake_comm_end(other[i]);
}

static void a_group_follows_the_calls_before_it(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 1);
    ncclGroupStart();
    reduce(comm, SMALL, 2);
    reduce(comm, SMALL, 2);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    ncclGroupStart();
    broadcast(comm, 3);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    reduce(comm, SMALL, 1);
    assert_in_order(5);
}

static void a_group_of_captured_streams(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 1);
    fake_stream_capture(fake_stream(2), 9);
    fake_stream_capture(fake_stream(3), 9);
    ncclGroupStart();
    reduce(comm, SMALL, 2);
    reduce(comm, SMALL, 3);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.wrong_waits, 0);
    assert_int_equal(fake.works, 3);
    assert_int_equal(fake.work[2].before, 2);
    assert_int_equal(fake.graph_references, 1);
}

static void one_thread_for_several_gpus(void **state)
{
    (void)state;
    shim_comm_t *comm[3];
    for (int i = 0; i < 3; i++)
        comm[i] = fake_comm(i, true);
    ncclGroupStart();
    for (int i = 0; i < 3; i++)
        assert_int_equal(reduce(comm[i], SMALL, i + 1), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fake.work[i].device, i);
        assert_ptr_equal(fake.work[i].stream, fake_stream(i + 1));
        fake_comm_end(comm[i]);
    }
    assert_int_equal(fake.device, 0);
}

/* A communicator that does not block, in a group with a call of each kind, whose end will be in progress. */
static shim_comm_t *group_under_way(void)
{
    shim_comm_t *comm = fake_comm(0, false);
    ncclGroupStart();
    broadcast(comm, 1);
    reduce(comm, SMALL, 1);
    fake.real_state = ncclInProgress;
    return comm;
}

static void a_group_under_way_is_waited_for(void **state)
{
    (void)state;
    shim_comm_t *comm = group_under_way();
    assert_int_equal(ncclGroupEnd(), ncclInProgress);
    assert_int_equal(fake.works, 2);
    assert_int_equal(fake.real_state, ncclSuccess);
    fake_comm_end(comm);
}

/* A group waits for a communicator that Shunt does not serve, too, while the real NCCL's thread still enqueues its
 * work. */
static void an_unattached_one_under_way_is_waited_for(void **state)
{
    (void)state;
    shim_comm_t *comm = fake_comm(0, true), *other = fake_comm(0, false);
    atomic_store(&other->phase, SHIM_COMM_FORWARD);
    ncclGroupStart();
    broadcast(other, 1);
    reduce(comm, SMALL, 1);
    fake.real_state = ncclInProgress;
    assert_int_equal(ncclGroupEnd(), ncclInProgress);
    assert_int_equal(fake.real_state, ncclSuccess);
    assert_int_equal(fake.work[fake.works - 1].kind, FAKE_OURS);
    fake_comm_end(comm);
    fake_comm_end(other);
}

/* A group in progress ends if another thread aborts its communicator, and the handle, which may be freed, is not polled
 * again. */
static void a_group_under_way_ends_with_its_communicator(void **state)
{
    (void)state;
    shim_comm_t *comm = group_under_way();
    atomic_store(&comm->phase, SHIM_COMM_DEAD);
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    assert_int_equal(fake.polls, 0);
    assert_int_equal(fake.works, 1);
    fake.real_state = ncclSuccess;
    fake_comm_end(comm);
}

static void *poll_for_a_while(void *argument)
{
    shim_comm_t *comm = argument;
    usleep(20000);
    atomic_fetch_sub(&comm->polls, 1);
    return NULL;
}

/* An abort waits for the threads that poll the communicator. */
static void an_abort_lets_polls_end(void **state)
{
    shim_comm_t *comm = *state;
    pthread_t thread;
    atomic_fetch_add(&comm->polls, 1);
    assert_int_equal(pthread_create(&thread, NULL, poll_for_a_while, comm), 0);
    shim_group_wait_for_polls(comm);
    assert_int_equal(comm->polls, 0);
    pthread_join(thread, NULL);
}

/* Taken and forwarded work of a group both wait for earlier work only, and later work waits for both. */
static void taken_and_forwarded_run_side_by_side(void **state)
{
    for (unsigned long long id = 0; id < 2; id++) {
        shim_comm_t *comm = id == 0 ? *state : fake_comm(0, true);
        const uint32_t first = fake.works;
        const uint64_t before = UINT64_C(1) << first;
        for (int i = 1; i < 4; i++)
            fake_stream_capture(fake_stream(i), id);
        reduce(comm, SMALL, 3);
        ncclGroupStart();
        reduce(comm, SMALL, 1);
        broadcast(comm, 1);
        broadcast(comm, 2);
        reduce(comm, SMALL, 2);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(fake.works, first + 5);
        for (uint32_t real = first + 1; real < first + 3; real++) {
            assert_int_equal(fake.work[real].kind, FAKE_REAL);
            assert_int_equal(fake.work[real].before & before, before);
            for (uint32_t ours = first + 3; ours < first + 5; ours++) {
                assert_int_equal(fake.work[ours].kind, FAKE_OURS);
                assert_true(beside(real, ours));
            }
        }
        assert_int_equal(fake.work[first + 3].before & before, before);
        assert_true(fake.work[first + 4].before >> (first + 3) & 1);
        reduce(comm, SMALL, 3);
        assert_int_equal(fake.work[first + 5].before >> first, ALL_OF(5));
        for (int i = 1; i < 3; i++)
            assert_int_equal(fake_known(fake_stream(i)) >> first & ALL_OF(5), ALL_OF(5));
        assert_int_equal(fake.wrong_waits, 0);
        if (id == 0)
            continue;
        assert_int_equal(fake_recorded(id), UINT64_C(1) << (first + 5));
        assert_int_equal(fake_after_waits(id), ALL_OF(6) << first);
        fake_graphs_destroy();
        fake_comm_end(comm);
    }
    assert_int_equal(fake.streams_made, 1); /* a capture needs none */
}

/* Each of the communicators that share a group's streams keeps its own order, whichever runs beside the real NCCL's
 * work. */
static void communicators_may_share_the_streams_of_a_group(void **state)
{
    (void)state;
    for (unsigned long long id = 0; id < 2; id++) {
        shim_comm_t *comm[4];
        const uint32_t first = fake.works;
        for (int i = 0; i < 4; i++)
            comm[i] = fake_comm(0, true);
        for (int i = 1; i < 5; i++)
            fake_stream_capture(fake_stream(i), id);
        for (int i = 0; i < 4; i++)
            reduce(comm[i], SMALL, 1 + i);
        for (int i = 0; i < 4; i++)
            comm[i]->key.word[0] = 4 - (uint64_t)i;
        ncclGroupStart();
        for (int i = 0; i < 4; i++) {
            if (i != 3)
                broadcast(comm[i], 1);
            if (i != 1)
                reduce(comm[i], SMALL, 1);
        }
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        /* The real NCCL's of 0, 1, 2, then ours of 3, 2, 0 */
        static const uint32_t owner[] = {0, 1, 2, 3, 2, 0};
        assert_int_equal(fake.works, first + 10);
        for (uint32_t i = 0; i < 6; i++) {
            assert_int_equal(fake.work[first + 4 + i].kind, i < 3 ? FAKE_REAL : FAKE_OURS);
            assert_true(fake.work[first + 4 + i].before >> (first + owner[i]) & 1);
            for (uint32_t k = 4; k < 6 && i < 3; k++)
                assert_true(beside(first + 4 + i, first + 4 + k));
        }
        for (int i = 0; i < 4; i++) {
            reduce(comm[i], SMALL, 4 - i);
            for (uint32_t k = 0; k < 6; k++)
                assert_true(owner[k] != (uint32_t)i || fake.work[fake.works - 1].before >> (first + 4 + k) & 1);
        }
        assert_int_equal(fake.wrong_waits, 0);
        fake_graphs_destroy();
        for (int i = 0; i < 4; i++)
            fake_comm_end(comm[i]);
    }
}

static void groups_of_one_kind_need_no_stream(void **state)
{
    shim_comm_t *comm = *state, *other = fake_comm(0, true);
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    broadcast(other, 1);
    reduce(comm, SMALL, 1);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.streams_made, 0);
    assert_in_order(3);
    fake_comm_end(other);
}

/* All ranks launch the calls of two communicators in the same order, that of their keys, whatever the order of the
 * calls. */
static void communicators_launch_in_the_order_of_their_keys(void **state)
{
    (void)state;
    shim_comm_t *comm[3];
    for (int i = 0; i < 3; i++) {
        comm[i] = fake_comm(i, true);
        comm[i]->key = (net_key_t){{i == 2 ? 1 : 2, (uint64_t)(5 - i)}};
    }
    ncclGroupStart();
    for (int i = 0; i < 6; i++)
        assert_int_equal(reduce(comm[i % 3], SMALL, i + 1), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    static const int order[] = {2, 2, 1, 1, 0, 0};
    assert_int_equal(fake.works, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(fake.work[i].device, order[i]);
    for (int i = 0; i < 3; i++)
        fake_comm_end(comm[i]);
}

/* Ranks of one thread launch alternately: neither GPU gets a second call before the other has its first. */
static void ranks_of_one_thread_launch_in_turn(void **state)
{
    (void)state;
    shim_comm_t *comm[2] = {fake_comm(0, true), fake_comm(1, true)};
    ncclGroupStart();
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 20; k++)
            assert_int_equal(reduce(comm[i], SMALL, i + 1), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works, 40);
    for (int i = 0; i < 40; i++)
        assert_int_equal(fake.work[i].device, i % 2);
    for (int i = 0; i < 2; i++)
        fake_comm_end(comm[i]);
}

/* CUDA calls of a group of `calls` collectives on one stream. */
static uint32_t cost_of(shim_comm_t *comm, int calls)
{
    const uint32_t before = fake.cuda_calls;
    ncclGroupStart();
    for (int i = 0; i < calls; i++)
        assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    return fake.cuda_calls - before;
}

/* A group records one event at its end. While a graph lives it waits once; in a capture the nodes for the order are
 * made once. */
static void a_group_costs_an_event(void **state)
{
    shim_comm_t *comm = *state;
    reduce(comm, SMALL, 1);
    for (int calls = 1; calls <= 8; calls += 7)
        assert_int_equal(cost_of(comm, calls), 1);
    fake_stream_capture(fake_stream(1), 9);
    assert_int_equal(cost_of(comm, 8), 1);
    assert_int_equal(fake_nodes(9, FAKE_WAIT), 1);
    assert_int_equal(fake_recorded(9), UINT64_C(1) << 17);
    assert_int_equal(fake_edges(9), 8);
    fake_stream_capture(fake_stream(1), 0);
    assert_int_equal(cost_of(comm, 8), 2);
    reduce(comm, SMALL, 2);
    assert_true(after(26, 25));
}

/* The large part is not given away between a group's call and its event, when the call would not be seen to run. */
static void the_large_part_is_kept_until_a_group_has_its_event(void **state)
{
    shim_comm_t *first = *state, *second = fake_comm(0, true);
    fake.multiprocessors = 12;
    first->key.word[0] = 1;
    second->key.word[0] = 2;
    ncclGroupStart();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(reduce(first, 500, 1), ncclSuccess);
        assert_int_equal(reduce(second, 500, 2), ncclSuccess);
    }
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(fake.launched[i].most_blocks > 0, i >= 2); /* those have fewer than they ask for */
    assert_int_equal(reduce(second, 500, 2), ncclSuccess);
    assert_int_equal(fake.launched[4].most_blocks, 0);
    fake_comm_end(second);
}

static void long_groups(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    for (int i = 0; i < 60; i++)
        assert_int_equal(reduce(comm, SMALL, 1 + i % 3), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_in_order(60);
}

static void *grouped_thread(void *argument)
{
    ncclGroupStart();
    reduce(argument, SMALL, 1);
    return (void *)(uintptr_t)shim_group_depth();
}

static void groups_belong_to_their_thread(void **state)
{
    shim_comm_t *comm = *state;
    pthread_t thread;
    void *depth;
    assert_int_equal(pthread_create(&thread, NULL, grouped_thread, comm), 0);
    assert_int_equal(pthread_join(thread, &depth), 0);
    assert_int_equal((uintptr_t)depth, 1);
    assert_int_equal(shim_group_depth(), 0);
    /* The thread ended inside its group: nothing has run, and nothing is held any more. */
    assert_int_equal(fake.works, 0);
    assert_int_equal(atomic_load(&comm->references), 1);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {TEST(ours_launch_after_the_outermost_end),
                                       TEST(simulation_launches_nothing),
                                       TEST(one_end_too_many),
                                       TEST(all_streams_of_a_group_join),
                                       TEST(a_group_follows_the_calls_before_it),
                                       TEST(a_group_of_captured_streams),
                                       TEST(one_thread_for_several_gpus),
                                       TEST(a_group_under_way_is_waited_for),
                                       TEST(an_unattached_one_under_way_is_waited_for),
                                       TEST(a_group_under_way_ends_with_its_communicator),
                                       TEST(an_abort_lets_polls_end),
                                       TEST(taken_and_forwarded_run_side_by_side),
                                       TEST(communicators_may_share_the_streams_of_a_group),
                                       TEST(groups_of_one_kind_need_no_stream),
                                       TEST(communicators_launch_in_the_order_of_their_keys),
                                       TEST(ranks_of_one_thread_launch_in_turn),
                                       TEST(a_group_costs_an_event),
                                       TEST(the_large_part_is_kept_until_a_group_has_its_event),
                                       TEST(long_groups),
                                       TEST(groups_belong_to_their_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
