/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages_test.c - sends and receives on a fake GPU: what is launched, what runs concurrently, and what is refused.
 *
 * Concurrent works do not wait for each other, so a group ends whatever the order and the groups of the other ranks'
 * calls. A message's bytes alone decide whether it is forwarded or taken.
 */
#include "fake_calls.h"
#include "shim/call/group.h"
#include "shim/cpu/cpu.h"
#include "shunt.h"

static ncclResult_t send_to(shim_comm_t *comm, size_t count, int peer, int stream)
{
    return ncclSend(buffer, count, ncclFloat32, peer, comm->handle, fake_stream(stream));
}

static ncclResult_t receive(shim_comm_t *comm, size_t count, int peer, int stream)
{
    return ncclRecv(buffer + 1, count, ncclFloat32, peer, comm->handle, fake_stream(stream));
}

static void assert_message(const alg_message_t *message, size_t bytes, uint32_t peer, bool send)
{
    assert_ptr_equal(message->buffer, send ? buffer : buffer + 1);
    assert_int_equal(message->bytes, bytes);
    assert_int_equal(message->peer, peer);
    assert_int_equal(message->send, send);
}

/* ---- Alone -------------------------------------------------------------------------------- */

static void a_message_is_a_call_of_its_own(void **state)
{
    shim_comm_t *comm = *state;
    shunt_decision_t decision = {.size = sizeof(decision)};
    assert_int_equal(send_to(comm, SMALL, 1, 1), ncclSuccess);
    assert_int_equal(shunt_last_decision(&decision), 0);
    assert_string_equal(decision.collective, "send");
    assert_int_equal(decision.bytes, 4 * SMALL);
    assert_true(decision.taken);
    assert_int_equal(receive(comm, SMALL, 1, 2), ncclSuccess);
    assert_int_equal(fake.launches, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fake.launched[i].collective, ALG_SEND_RECV);
        assert_int_equal(fake.launched[i].message_count, 1);
        assert_message(fake.launched[i].messages, 4 * SMALL, 1, i == 0);
    }
    assert_true(after(1, 0)); /* for any streams */
}

/* Large messages go to the real NCCL, in order with taken ones. */
static void routes_share_the_order(void **state)
{
    shim_comm_t *comm = *state;
    send_to(comm, SMALL, 1, 1);
    send_to(comm, LARGE, 1, 2);
    receive(comm, LARGE, 1, 1);
    receive(comm, SMALL, 1, 3);
    assert_int_equal(fake.works, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(fake.work[i].kind, i == 1 || i == 2 ? FAKE_REAL : FAKE_OURS);
        assert_int_equal(fake.work[i].before, ALL_OF(i));
    }
    assert_string_equal(fake.real_call[0], "ncclSend");
    assert_string_equal(fake.real_call[1], "ncclRecv");
}

static void a_possibly_invalid_call_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    cudaStream_t stream = fake_stream(1);
    uint32_t calls = 0;
    for (int peer = -1; peer <= 2; peer += 3) {
        send_to(comm, SMALL, peer, 1);
        receive(comm, SMALL, peer, 1);
        send_to(comm, 0, peer, 1);
        assert_int_equal(fake.real_calls, calls += 3);
    }
    ncclSend(NULL, SMALL, ncclFloat32, 1, comm->handle, stream);
    ncclRecv(NULL, SMALL, ncclFloat32, 1, comm->handle, stream);
    ncclSend(buffer, SMALL, (ncclDataType_t)99, 1, comm->handle, stream);
    ncclRecv(buffer, 0, (ncclDataType_t)-1, 1, comm->handle, stream);
    send_to(comm, SIZE_MAX / 4 + 1, 1, 1);
    send_to(comm, SMALL, 0, 1); /* to itself, without a receive */
    receive(comm, SMALL, 0, 1);
    assert_int_equal(fake.real_calls, calls + 7);
    assert_int_equal(fake.launches, 0);
}

/* An empty message causes no launch and no wait at either end. */
static void an_empty_message_is_nothing(void **state)
{
    shim_comm_t *comm = *state;
    cudaStream_t stream = fake_stream(1);
    assert_int_equal(ncclSend(NULL, 0, ncclFloat32, 1, comm->handle, stream), ncclSuccess);
    assert_int_equal(receive(comm, 0, 1, 1), ncclSuccess);
    ncclGroupStart();
    assert_int_equal(ncclSend(NULL, 0, ncclFloat32, 0, comm->handle, stream), ncclSuccess);
    assert_int_equal(receive(comm, 0, 1, 2), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.works + fake.real_calls, 0);
}

static void a_failed_launch_is_the_last(void **state)
{
    shim_comm_t *comm = *state;
    fake.launch_error = 400;
    assert_int_equal(send_to(comm, SMALL, 1, 1), ncclUnhandledCudaError);
    fake.launch_error = 0;
    assert_int_equal(receive(comm, SMALL, 1, 1), ncclUnhandledCudaError);
    assert_int_equal(fake.works, 0);
}

/* ---- Groups ------------------------------------------------------------------------------- */

/* Long and short messages are one call in any order: the grid is that of the algorithm for both kinds, and each message
 * keeps its kind. */
static void long_and_short_ones_are_one_call(void **state)
{
    shim_comm_t *comm = *state;
    enum { LONG = FAKE_BULK_LEAST + 1, SHORT = FAKE_BULK_LEAST };
    static const size_t orders[][3] = {{SHORT, LONG, SMALL}, {LONG, SHORT, SMALL}, {SMALL, SHORT, LONG}};
    fake.bulk_messages = true;
    for (int i = 0; i < 3; i++) {
        ncclGroupStart();
        for (int k = 0; k < 3; k++)
            assert_int_equal(k == 1 ? receive(comm, orders[i][k], 1, 1) : send_to(comm, orders[i][k], 1, 1),
                             ncclSuccess);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(fake.launches, i + 1);
        const alg_call_t *call = &fake.launched[i];
        assert_int_equal(call->message_count, 3);
        assert_int_equal(call->blocks, orders[i][1] == LONG ? FAKE_SLOW_BLOCKS : FAKE_BULK_BLOCKS); /* unaligned */
        for (int k = 0; k < 3; k++) {
            assert_message(&call->messages[k], 4 * orders[i][k], 1, k != 1);
            assert_int_equal(call->messages[k].bulk, orders[i][k] == LONG);
        }
    }
    assert_int_equal(send_to(comm, LONG, 1, 1), ncclSuccess);
    assert_true(fake.launched[3].messages[0].bulk);
    ncclGroupStart();
    assert_int_equal(send_to(comm, LONG, 1, 1), ncclSuccess);
    assert_int_equal(send_to(comm, LONG, (int)comm->rank, 1), ncclSuccess);
    assert_int_equal(ncclRecv(buffer, LONG, ncclFloat32, (int)comm->rank, comm->handle, fake_stream(1)), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launched[4].blocks,
                     FAKE_SLOW_BLOCKS); /* the same blocks copy what the rank sends to itself */
}

static void a_group_is_one_call(void **state)
{
    shim_comm_t *comm = *state;
    comm->nranks = 4;
    reduce(comm, SMALL, 4);
    ncclGroupStart();
    for (int peer = 3; peer > 0; peer--) {
        assert_int_equal(send_to(comm, SMALL, peer, peer), ncclSuccess);
        assert_int_equal(receive(comm, 100 * (size_t)peer, peer, 1), ncclSuccess);
    }
    send_to(comm, SMALL + 1, 3, 1); /* the second message to that peer */
    assert_int_equal(fake.launches, 1);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 2);
    const alg_call_t *call = &fake.launched[1];
    assert_int_equal(call->message_count, 7);
    assert_int_equal(call->blocks, 4); /* the grid of the longest one */
    assert_int_equal(call->threads, 32);
    for (uint32_t i = 0; i < 6; i++)
        assert_message(&call->messages[i], i % 2 == 0 ? 4 * SMALL : 400 * (3 - i / 2), 3 - i / 2, i % 2 == 0);
    assert_message(&call->messages[6], 4 * (SMALL + 1), 3, true);
    assert_true(after(1, 0));
    for (int i = 1; i <= 3; i++)
        assert_int_equal(fake_known(fake_stream(i)), ALL_OF(2));
    assert_int_equal(fake.streams_made, 0);
    reduce(comm, SMALL, 4);
    assert_true(after(2, 1));
    assert_int_equal(atomic_load(&comm->references), 1);
}

/* Messages of a group run beside its collectives, since another rank may make the calls in any order without a
 * group. */
static void messages_run_beside_collectives(void **state)
{
    for (unsigned long long id = 0; id < 2; id++) {
        shim_comm_t *comm = id == 0 ? *state : fake_comm(0, true);
        const uint32_t first = fake.works;
        for (int i = 1; i < 4; i++)
            fake_stream_capture(fake_stream(i), id);
        reduce(comm, SMALL, 3);
        ncclGroupStart();
        reduce(comm, SMALL, 1);
        send_to(comm, SMALL, 1, 2);
        reduce(comm, SMALL, 2);
        receive(comm, SMALL, 1, 1);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(fake.works, first + 4);
        assert_int_equal(fake.launched[fake.launches - 3].message_count, 2); /* first, or a full queue delays it */
        for (uint32_t i = first + 1; i < first + 4; i++)
            assert_true(after(i, first));
        assert_true(beside(first + 1, first + 2) && beside(first + 1, first + 3));
        assert_true(after(first + 3, first + 2));
        reduce(comm, SMALL, 3);
        assert_int_equal(fake.work[first + 4].before >> first, ALL_OF(4));
        assert_int_equal(fake_known(fake_stream(2)) >> first & ALL_OF(4), ALL_OF(4));
        assert_int_equal(fake.wrong_waits, 0);
        if (id == 0)
            continue;
        assert_int_equal(fake_recorded(id), UINT64_C(1) << (first + 4));
        assert_int_equal(fake_after_waits(id), ALL_OF(5) << first);
        fake_graphs_destroy();
        fake_comm_end(comm);
    }
    assert_int_equal(fake.streams_made, 1); /* a capture needs none */
}

/* Collectives and the messages of both routes run on three concurrent branches. */
static void three_kinds_run_side_by_side(void **state)
{
    for (unsigned long long id = 0; id < 2; id++) {
        shim_comm_t *comm = id == 0 ? *state : fake_comm(0, true);
        const uint32_t first = fake.works;
        fake_stream_capture(fake_stream(1), id);
        send_to(comm, SMALL, 1, 1);
        ncclGroupStart();
        receive(comm, LARGE, 1, 1);
        send_to(comm, SMALL, 1, 1);
        reduce(comm, SMALL, 1);
        receive(comm, SMALL, 1, 1);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(fake.works, first + 4);
        assert_int_equal(fake.work[first + 1].kind, FAKE_REAL);
        for (uint32_t i = 1; i < 4; i++) {
            assert_true(after(first + i, first));
            for (uint32_t k = 1; k < i; k++)
                assert_true(beside(first + i, first + k));
        }
        receive(comm, SMALL, 1, 1);
        assert_int_equal(fake.work[first + 4].before >> first, ALL_OF(4));
        assert_int_equal(fake.wrong_waits, 0);
        fake_graphs_destroy();
        if (id != 0)
            fake_comm_end(comm);
    }
    assert_int_equal(fake.streams_made, 2);
}

/* A forwarded and a taken message of one pair run concurrently: the other rank may make them without a group, in either
 * order. */
static void messages_of_both_routes_run_side_by_side(void **state)
{
    shim_comm_t *comm = *state;
    for (int order = 0; order < 2; order++) {
        const uint32_t first = fake.works;
        ncclGroupStart();
        for (int i = 0; i < 2; i++)
            if (i == order)
                send_to(comm, LARGE, 1, 1);
            else
                receive(comm, SMALL, 1, 1);
        assert_int_equal(ncclGroupEnd(), ncclSuccess);
        assert_int_equal(fake.works, first + 2);
        assert_true(beside(first, first + 1));
    }
}

/* Communicators may share a stream: whatever the order of keys, one's calls and the other's messages do not wait for
 * each other. */
static void communicators_may_share_a_stream(void **state)
{
    for (unsigned long long id = 0; id < 2; id++)
        for (uint64_t key = 0; key < 2; key++) {
            shim_comm_t *comm = *state, *other = fake_comm(0, true);
            const uint32_t first = fake.works;
            fake_stream_capture(fake_stream(1), id);
            comm->key.word[0] = key;
            other->key.word[0] = 1 - key;
            send_to(comm, SMALL, 1, 1);
            send_to(other, SMALL, 1, 1);
            ncclGroupStart();
            send_to(comm, SMALL, 1, 1);
            reduce(other, SMALL, 1);
            send_to(other, SMALL, 1, 1);
            assert_int_equal(ncclGroupEnd(), ncclSuccess);
            assert_int_equal(fake.works, first + 5);
            for (uint32_t i = 2; i < 5; i++) {
                assert_int_equal(fake.work[first + i].before >> first & 3, 3);
                for (uint32_t k = 2; k < i; k++)
                    assert_true(beside(first + i, first + k));
            }
            reduce(other, SMALL, 1);
            assert_int_equal(fake.work[first + 5].before >> first & ALL_OF(5), ALL_OF(5));
            assert_int_equal(fake.wrong_waits, 0);
            fake_graphs_destroy();
            fake_comm_end(other);
        }
}

/* One thread with several GPUs, each with its own stream, makes one call per GPU without streams of Shunt's. */
static void one_thread_for_several_gpus(void **state)
{
    (void)state;
    shim_comm_t *comm[3];
    for (int i = 0; i < 3; i++) {
        comm[i] = fake_comm(i, true);
        comm[i]->rank = (uint32_t)i;
        comm[i]->nranks = 3;
    }
    ncclGroupStart();
    for (int round = 0; round < 1000; round++)
        for (int i = 0; i < 3; i++)
            assert_int_equal(round % 2 ? send_to(comm[i], SMALL, (i + 1) % 3, i + 1)
                                       : receive(comm[i], SMALL, (i + 2) % 3, i + 1),
                             ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(fake.launched[i].message_count, 1000);
        assert_int_equal(fake.work[i].before, 0);
        fake_comm_end(comm[i]);
    }
    assert_int_equal(fake.streams_made, 0);
    assert_int_equal(fake.device, 0);
}

/* ---- To oneself ------------------------------------------------------------------------------ */

static void messages_to_oneself_meet_in_a_group(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    receive(comm, SMALL, 0, 1);
    send_to(comm, SMALL, 1, 1);
    send_to(comm, SMALL, 0, 1);
    send_to(comm, SMALL + 1, 0, 1);
    receive(comm, SMALL + 1, 0, 1);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 1);
    assert_int_equal(fake.launched[0].message_count, 5);
}

static void those_that_do_not_meet_are_refused(void **state)
{
    static const size_t wrong[][3] = {{SMALL, 0, 0}, {0, SMALL, 0}, {SMALL, SMALL + 1, 0}, {SMALL, SMALL, SMALL}};
    shim_comm_t *comm = *state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ncclGroupStart();
        reduce(comm, SMALL, 1);
        reduce(comm, LARGE, 1);
        send_to(comm, wrong[i][0], 0, 1);
        receive(comm, wrong[i][1], 0, 1);
        send_to(comm, wrong[i][2], 0, 1);
        assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
        assert_int_equal(fake.works, 0);
        assert_int_equal(fake.real_depth, 0);
    }
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess); /* an error of the program does not end the communicator */
    assert_int_equal(fake.works, 1);
}

/* ---- Ends of groups ---------------------------------------------------------------------------- */

static void a_simulation_hears_of_messages(void **state)
{
    shim_comm_t *comm = *state;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclGroupStart();
    receive(comm, SMALL, 1, 1);
    send_to(comm, SMALL, 1, 1);
    assert_int_equal(ncclGroupSimulateEnd(&info), ncclSuccess);
    assert_string_equal(fake.real_call[0], "ncclRecv");
    assert_string_equal(fake.real_call[1], "ncclSend");
    assert_int_equal(fake.works, 0);
    assert_int_equal(atomic_load(&comm->references), 1);
}

static void a_group_that_stops_half_way(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    reduce(comm, SMALL, 1);
    send_to(comm, SMALL, 1, 1);
    receive(comm, SMALL, 1, 1);
    fake.launches_left = 2; /* the messages launch, the collective does not */
    assert_int_equal(ncclGroupEnd(), ncclUnhandledCudaError);
    fake.launch_error = 0;
    assert_int_equal(send_to(comm, SMALL, 1, 1), ncclUnhandledCudaError);
    assert_int_equal(fake_known(fake_stream(1)), 1); /* launched work is ordered */
    assert_int_equal(atomic_load(&comm->references), 1);
}

static void a_capture_decides_nothing(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    send_to(comm, SMALL, 1, 1);
    ncclGroupStart();
    receive(comm, SMALL, 1, 1);
    send_to(comm, SMALL, 1, 1);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 2);
    assert_int_equal(fake.graph_references, 1);
    fake_graph_launch(9, fake_stream(2));
    fake_stream_capture(fake_stream(1), 0);
    receive(comm, SMALL, 1, 3);
    assert_int_equal(fake.work[4].before, 12); /* the two of the replay */
    assert_int_equal(fake.wrong_waits, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {TEST(a_message_is_a_call_of_its_own),
                                       TEST(routes_share_the_order),
                                       TEST(a_possibly_invalid_call_is_forwarded),
                                       TEST(an_empty_message_is_nothing),
                                       TEST(a_failed_launch_is_the_last),
                                       TEST(long_and_short_ones_are_one_call),
                                       TEST(a_group_is_one_call),
                                       TEST(messages_run_beside_collectives),
                                       TEST(three_kinds_run_side_by_side),
                                       TEST(messages_of_both_routes_run_side_by_side),
                                       TEST(communicators_may_share_a_stream),
                                       TEST(one_thread_for_several_gpus),
                                       TEST(messages_to_oneself_meet_in_a_group),
                                       TEST(those_that_do_not_meet_are_refused),
                                       TEST(a_simulation_hears_of_messages),
                                       TEST(a_group_that_stops_half_way),
                                       TEST(a_capture_decides_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
