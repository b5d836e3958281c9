/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_order_test.c - groups, streams, captures and operators on a fake GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"
#include "shim/call/group.h"
#include "shim/comm/drain.h"
#include "shim/comm/reap.h"
#include "shim/names/names.h"
#include "shunt.h"

#define ALL_OF(n) ((UINT64_C(1) << (n)) - 1)
enum { SMALL = 10, LARGE = FAKE_TAKEN_LIMIT + 1 };
enum { COLLECTIVES = ALG_SEND_RECV }; /* messages: messages_test.c */

static float buffer[2];

static ncclResult_t reduce(shim_comm_t *comm, size_t count, int stream)
{
    return ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, comm->handle, fake_stream(stream));
}

/* One that is forwarded. */
static ncclResult_t broadcast(shim_comm_t *comm, int stream)
{
    return ncclBroadcast(buffer, buffer, LARGE, ncclFloat32, 0, comm->handle, fake_stream(stream));
}

/* Every work from number `first` on has run after all before it. */
static void assert_in_order_from(uint32_t first, uint32_t works)
{
    assert_int_equal(fake.works, works);
    for (uint32_t i = first; i < works; i++)
        assert_int_equal(fake.work[i].before & ALL_OF(i), ALL_OF(i));
    assert_int_equal(fake.wrong_waits, 0);
}

static void assert_in_order(uint32_t works)
{
    assert_in_order_from(0, works);
}

/* Every work on the device that has run, eagerly or in a replay, has run after all such before it. */
static void assert_run_in_order(int device, int count)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < fake.works; i++) {
        if (fake.work[i].capture != 0 || fake.work[i].device != device)
            continue;
        assert_int_equal(fake.work[i].before & before, before);
        before |= UINT64_C(1) << i;
        count--;
    }
    assert_int_equal(count, 0);
    assert_int_equal(fake.wrong_waits, 0);
}

static bool beside(uint32_t a, uint32_t b)
{
    return !(fake.work[a].before >> b & 1) && !(fake.work[b].before >> a & 1);
}

static int set_up(void **state)
{
    fake_reset();
    *state = fake_comm(0, true);
    return 0;
}

static int tear_down(void **state)
{
    fake_graphs_destroy();
    fake_comm_end(*state);
    return 0;
}

/* An event made once and recorded after each call; nothing is waited for. */
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

/* ncclCollConfig_t as of NCCL 2.32, as its initializer leaves it. */
typedef struct config {
    size_t size;
    unsigned magic, version;
    void *ext;
    int min_ctas, max_ctas, nvls_ctas, cga_cluster_size;
    const char *algorithms;
    int force, policy;
    uint64_t tag;
    void *event; /* not in 2.31 */
} config_t;

static const config_t no_wish = {sizeof(config_t), 0xcafebeef, 23203, NULL,    INT_MIN, INT_MIN, INT_MIN,
                                 INT_MIN,          NULL,       1,     INT_MIN, 0,       NULL};

static int kind_with(shim_comm_t *comm, const void *config)
{
    const uint32_t before = fake.works;
    assert_int_equal(
        ncclAllReduceConfig(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, fake_stream(1), config),
        ncclSuccess);
    return fake.work[before].kind;
}

/* One rank may give such a configuration and its peer none. */
static void a_configuration_without_requests_is_taken(void **state)
{
    shim_comm_t *comm = *state;
    config_t some = no_wish;
    assert_int_equal(kind_with(comm, &no_wish), FAKE_OURS);
    some.size = offsetof(config_t, event);
    some.event = &some; /* what lies behind is not the configuration's */
    assert_int_equal(kind_with(comm, &some), FAKE_OURS);
    some = no_wish;
    some.algorithms = "";
    some.force = 0;
    assert_int_equal(kind_with(comm, &some), FAKE_OURS);
}

static void a_configuration_with_requests_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    config_t wishes[11];
    for (int i = 0; i < 11; i++)
        wishes[i] = no_wish;
    wishes[0].size = 56; /* wrong */
    wishes[1].size = 80; /* of an NCCL to come */
    wishes[2].magic = 0;
    wishes[3].ext = buffer;
    wishes[4].max_ctas = 8;
    wishes[5].min_ctas = 8;
    wishes[6].algorithms = "ring";
    wishes[7].policy = 2;
    wishes[8].tag = 7;
    wishes[9].event = buffer;
    wishes[10].force = 3;
    for (int i = 0; i < 11; i++)
        assert_int_equal(kind_with(comm, &wishes[i]), FAKE_REAL);
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
    assert_int_equal(ncclCommSuspend(comm->handle, 1), ncclSuccess);
    fake.forward_result = ncclInvalidUsage;
    assert_int_equal(reduce(comm, SMALL, 1), ncclInvalidUsage);
    assert_int_equal(fake.works, 1);
    assert_int_equal(ncclCommResume(comm->handle), ncclInvalidUsage);
    assert_int_equal(reduce(comm, SMALL, 1), ncclInvalidUsage);
    fake.forward_result = ncclSuccess;
    assert_int_equal(ncclCommResume(comm->handle), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 1), ncclSuccess);
    assert_in_order(2);
    assert_int_equal(fake.work[1].kind, FAKE_OURS);
}

/* What is needed later is recorded while the stream is alive. */
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

/* Calls in one do not hide those in the other. */
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

/* More than any table has room for. */
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

/* ---- Graphs beside eager work ------------------------------------------------------------------ */

/* A capture of a call of each kind, on two streams, which it takes out of the capture again. */
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

/* A wait before the first call, a record after the last, and both once. */
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

/* As NCCL_GRAPH_MIXING_SUPPORT=0 has it. */
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

/* What its nodes use goes with the last graph, not before; the driver's callback makes no CUDA call. */
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

/* The peers' kernels of a call that did not launch here would meet the next one. */
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
        fake_stream_capture(fake_stream(1), id);
        fake.record_error = cudaErrorInvalidResourceHandle;
        assert_int_equal(reduce(other, SMALL, 1), ncclUnhandledCudaError);
        fake.record_error = 0;
        assert_int_equal(reduce(other, SMALL, 1), ncclUnhandledCudaError);
        assert_int_equal(fake.works, 1 + id);
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

/* A finalize in a group lets the group's calls launch; its end waits for them where the communicator blocks. */
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

static void a_possibly_invalid_call_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    ncclComm_t handle = comm->handle;
    cudaStream_t stream = fake_stream(1);
    ncclAllReduce(NULL, buffer, SMALL, ncclFloat32, ncclSum, handle, stream);
    ncclAllReduce(buffer, NULL, SMALL, ncclFloat32, ncclSum, handle, stream);
    ncclAllReduce(buffer, buffer, 0, ncclFloat32, ncclSum, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, (ncclDataType_t)99, ncclSum, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, (ncclDataType_t)-1, ncclSum, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, (ncclRedOp_t)6, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, (ncclRedOp_t)-1, handle, stream);
    assert_int_equal(fake.works, 7);
    for (uint32_t i = 0; i < fake.works; i++)
        assert_int_equal(fake.work[i].kind, FAKE_REAL);
    assert_int_equal(ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, NULL, stream), ncclInvalidArgument);
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

/* A thread of the real NCCL puts the work on the stream after the call has returned: nothing can be
 * recorded then, and what comes next on another stream does not wait for it. */
static void work_that_comes_late(void **state)
{
    (void)state;
    shim_comm_t *comm = fake_comm(0, false);
    reduce(comm, SMALL, 1);
    reduce(comm, SMALL, 2);
    fake.forward_result = ncclInProgress;
    assert_int_equal(broadcast(comm, 1), ncclInProgress);
    fake_work(FAKE_REAL, fake_stream(1), 0);
    assert_int_equal(reduce(comm, SMALL, 2), ncclSuccess);
    assert_int_equal(reduce(comm, SMALL, 3), ncclSuccess);
    assert_int_equal(fake.work[3].before & 2, 2);
    assert_int_equal(fake.work[4].before & 8, 8);
    assert_int_equal(fake.wrong_waits, 0);
    fake_comm_end(comm);
}

/* ---- Every collective --------------------------------------------------------------------- */

typedef struct arguments {
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    int stream;
} arguments_t;

static const arguments_t plain = {buffer, buffer, SMALL, ncclFloat32, ncclSum, 1, 1};

static ncclResult_t call(int collective, ncclComm_t comm, const arguments_t *a)
{
    cudaStream_t stream = fake_stream(a->stream);
    switch (collective) {
    case ALG_ALL_REDUCE:
        return ncclAllReduce(a->send, a->recv, a->count, a->type, a->op, comm, stream);
    case ALG_REDUCE_SCATTER:
        return ncclReduceScatter(a->send, a->recv, a->count, a->type, a->op, comm, stream);
    case ALG_REDUCE:
        return ncclReduce(a->send, a->recv, a->count, a->type, a->op, a->root, comm, stream);
    case ALG_ALL_GATHER:
        return ncclAllGather(a->send, a->recv, a->count, a->type, comm, stream);
    case ALG_ALL_TO_ALL:
        return ncclAlltoAll(a->send, a->recv, a->count, a->type, comm, stream);
    case ALG_BROADCAST:
        return ncclBroadcast(a->send, a->recv, a->count, a->type, a->root, comm, stream);
    case ALG_GATHER:
        return ncclGather(a->send, a->recv, a->count, a->type, a->root, comm, stream);
    default:
        return ncclScatter(a->send, a->recv, a->count, a->type, a->root, comm, stream);
    }
}

static const char *const functions[COLLECTIVES] = {
    [ALG_ALL_REDUCE] = "ncclAllReduce", [ALG_REDUCE_SCATTER] = "ncclReduceScatter",
    [ALG_REDUCE] = "ncclReduce",        [ALG_ALL_GATHER] = "ncclAllGather",
    [ALG_ALL_TO_ALL] = "ncclAlltoAll",  [ALG_BROADCAST] = "ncclBroadcast",
    [ALG_GATHER] = "ncclGather",        [ALG_SCATTER] = "ncclScatter",
};

/* The arguments arrive, in the order of the calls whatever their streams. */
static void each_collective_is_taken(void **state)
{
    shim_comm_t *comm = *state;
    for (int c = 0; c < COLLECTIVES; c++) {
        arguments_t a = plain;
        float in, out;
        a.send = &in;
        a.recv = &out;
        a.stream = 1 + c % 3;
        a.op = ncclMax;
        shunt_decision_t decision = {.size = sizeof(decision)};
        assert_int_equal(call(c, comm->handle, &a), ncclSuccess);
        const alg_call_t *launched = &fake.launched[c];
        assert_int_equal(fake.launches, c + 1);
        assert_int_equal(launched->collective, c);
        assert_int_equal(launched->root, alg_collective_rooted(c) ? 1 : 0);
        assert_ptr_equal(launched->input, &in);
        assert_ptr_equal(launched->output, &out);
        assert_int_equal(launched->count, SMALL);
        assert_int_equal(launched->type, ALG_FLOAT32);
        assert_int_equal(launched->op, alg_collective_reduces(c) ? ALG_MAX : ALG_SUM);
        assert_int_equal(shunt_last_decision(&decision), 0);
        assert_string_equal(decision.collective, alg_collective_name(c));
        assert_int_equal(decision.bytes, 4 * SMALL * alg_collective_blocks(c, comm->nranks));
    }
    assert_in_order(COLLECTIVES);
}

static void each_collective_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    for (int c = 0; c < COLLECTIVES; c++) {
        arguments_t a = plain;
        a.count = LARGE;
        a.stream = 1 + c % 3;
        assert_int_equal(call(c, comm->handle, &a), ncclSuccess);
        assert_string_equal(fake.real_call[c], functions[c]);
    }
    assert_int_equal(fake.launches, 0);
    assert_in_order(COLLECTIVES);
}

static void a_bcast_is_a_broadcast_in_place(void **state)
{
    shim_comm_t *comm = *state;
    assert_int_equal(ncclBcast(buffer, SMALL, ncclFloat32, 1, comm->handle, fake_stream(1)), ncclSuccess);
    assert_int_equal(fake.launched[0].collective, ALG_BROADCAST);
    assert_int_equal(fake.launched[0].root, 1);
    assert_ptr_equal(fake.launched[0].input, buffer);
    assert_ptr_equal(fake.launched[0].output, buffer);
    assert_int_equal(ncclBcast(buffer, LARGE, ncclFloat32, 1, comm->handle, fake_stream(1)), ncclSuccess);
    assert_string_equal(fake.real_call[0], "ncclBcast");
}

static void assert_forwarded(int collective, const shim_comm_t *comm, const arguments_t *a)
{
    const uint32_t launches = fake.launches, forwarded = fake.real_calls;
    call(collective, comm->handle, a);
    assert_int_equal(fake.launches, launches);
    assert_int_equal(fake.real_calls, forwarded + 1);
}

static void wrong_arguments_of_each_are_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    for (int c = 0; c < COLLECTIVES; c++) {
        arguments_t a = plain;
        a.count = 0;
        assert_forwarded(c, comm, &a);
        a = plain;
        a.type = (ncclDataType_t)99;
        assert_forwarded(c, comm, &a);
        a = plain;
        a.count = SIZE_MAX / 4 / alg_collective_blocks(c, comm->nranks) + 1; /* more bytes than there are */
        assert_forwarded(c, comm, &a);
        a = plain;
        a.op = (ncclRedOp_t)66;
        if (alg_collective_reduces(c))
            assert_forwarded(c, comm, &a);
        for (int root = -1; root <= 2; root += 3) {
            a = plain;
            a.root = root;
            if (alg_collective_rooted(c))
                assert_forwarded(c, comm, &a);
        }
        fake_reset();
    }
}

/* This rank is 0: who the root is decides which buffers it needs. One that it does not need may be NULL, and its call
 * goes the way of its peers'. */
static void only_needed_buffers_count(void **state)
{
    shim_comm_t *comm = *state;
    for (int c = 0; c < COLLECTIVES; c++)
        for (int root = 0; root < 2; root++) {
            const bool gathers = c == ALG_REDUCE || c == ALG_GATHER, spreads = c == ALG_BROADCAST || c == ALG_SCATTER;
            for (int no_send = 0; no_send < 2; no_send++) {
                arguments_t a = plain;
                a.root = root;
                if (no_send)
                    a.send = NULL;
                else
                    a.recv = NULL;
                fake_reset();
                if (root != 0 && (no_send ? spreads : gathers)) {
                    assert_int_equal(call(c, comm->handle, &a), ncclSuccess);
                    assert_int_equal(fake.launches, 1);
                } else {
                    assert_forwarded(c, comm, &a);
                }
            }
        }
}

static void each_collective_in_a_group(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    for (int c = 0; c < COLLECTIVES; c++) {
        arguments_t a = plain;
        a.stream = 1 + c % 3;
        a.root = c % 2;
        assert_int_equal(call(c, comm->handle, &a), ncclSuccess);
    }
    assert_int_equal(fake.launches, 0);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_in_order(COLLECTIVES);
    for (int c = 0; c < COLLECTIVES; c++)
        assert_int_equal(fake.launched[c].collective, c);
}

static void a_simulation_hears_of_each(void **state)
{
    shim_comm_t *comm = *state;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclGroupStart();
    for (int c = 0; c < COLLECTIVES; c++)
        assert_int_equal(call(c, comm->handle, &plain), ncclSuccess);
    assert_int_equal(ncclBcast(buffer, SMALL, ncclFloat32, 0, comm->handle, fake_stream(1)), ncclSuccess);
    assert_int_equal(fake.real_calls, 0);
    assert_int_equal(ncclGroupSimulateEnd(&info), ncclSuccess);
    for (int c = 0; c < COLLECTIVES; c++)
        assert_string_equal(fake.real_call[c], functions[c]);
    assert_string_equal(fake.real_call[COLLECTIVES], "ncclBcast");
    assert_true(info.estimatedTime == COLLECTIVES + 1);
    assert_int_equal(fake.works, 0);
}

/* The route of a call is that of its peers, who may not be captured. */
static void a_capture_decides_nothing(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    for (int c = 0; c < COLLECTIVES; c++)
        assert_int_equal(call(c, comm->handle, &plain), ncclSuccess);
    assert_int_equal(fake.launches, COLLECTIVES);
    assert_int_equal(fake.wrong_waits, 0);
}

/* ---- Groups --------------------------------------------------------------------------------- */

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

/* Another thread has aborted it: the handle may be gone, so nobody asks about it any more. */
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

/* And the abort waits for who is asking. */
static void an_abort_lets_polls_end(void **state)
{
    shim_comm_t *comm = *state;
    pthread_t thread;
    atomic_fetch_add(&comm->polls, 1);
    assert_int_equal(pthread_create(&thread, NULL, poll_for_a_while, comm), 0);
    shim_group_let_polls_end(comm);
    assert_int_equal(comm->polls, 0);
    pthread_join(thread, NULL);
}

static void a_group_without_ours_does_not_wait(void **state)
{
    (void)state;
    shim_comm_t *comm = fake_comm(0, false);
    ncclGroupStart();
    broadcast(comm, 1);
    fake.real_state = ncclInProgress;
    assert_int_equal(ncclGroupEnd(), ncclInProgress);
    assert_int_equal(fake.polls, 0);
    fake_comm_end(comm);
}

/* Ours waits for what was before the group, as the real NCCL's does, and what follows waits for both. */
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

/* Each keeps its own order, whichever of them runs beside the real NCCL's work. */
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

/* Whatever the order of the calls, all ranks of a communicator launch those of two communicators alike. */
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

/* Two ranks of one communicator: neither GPU gets its second call before the other has its first. */
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

static void long_groups(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    for (int i = 0; i < 60; i++)
        assert_int_equal(reduce(comm, SMALL, 1 + i % 3), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_in_order(60);
}

/* ---- Operators ------------------------------------------------------------------------------- */

static void an_operator_may_go_before_its_group_ends(void **state)
{
    shim_comm_t *comm = *state;
    ncclRedOp_t op;
    float scalar = 2.5f;
    uint32_t bits;
    memcpy(&bits, &scalar, sizeof(bits));
    assert_int_equal(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm->handle), 0);
    scalar = 0;
    ncclGroupStart();
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, op, comm->handle, fake_stream(1));
    ncclRedOpDestroy(op, comm->handle);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.work[0].kind, FAKE_OURS);
    assert_int_equal(fake.work[0].scalar_bits, bits);
    /* Destroyed: for the real NCCL to judge. */
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, op, comm->handle, fake_stream(1));
    assert_int_equal(fake.work[1].kind, FAKE_REAL);
}

static void an_operator_of_another_type_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    ncclRedOp_t op;
    ncclRedOpCreatePreMulSum(&op, buffer, ncclFloat64, ncclScalarDevice, comm->handle);
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, op, comm->handle, fake_stream(1));
    assert_int_equal(fake.work[0].kind, FAKE_REAL);
}

/* ---- What happened ----------------------------------------------------------------------------- */

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

static void decisions_are_told(void **state)
{
    shim_comm_t *comm = *state;
    shunt_decision_t decision = {.size = sizeof(decision)};
    reduce(comm, SMALL, 1);
    assert_int_equal(shunt_last_decision(&decision), 0);
    assert_int_equal(decision.taken, 1);
    assert_string_equal(decision.algorithm, "fake");
    assert_int_equal(decision.bytes, 4 * SMALL);
    broadcast(comm, 1);
    shunt_last_decision(&decision);
    assert_int_equal(decision.taken, 0);
    assert_string_equal(decision.collective, "broadcast");
    assert_string_equal(decision.algorithm, "nccl");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(one_stream_costs_an_event),
                                       TEST(streams_take_turns_in_order),
                                       TEST(forwarded_and_taken_share_the_order),
                                       TEST(configured_calls_share_it_too),
                                       TEST(a_configuration_without_requests_is_taken),
                                       TEST(a_configuration_with_requests_is_forwarded),
                                       TEST(signals_share_it_too),
                                       TEST(a_suspended_communicator_takes_no_call),
                                       TEST(a_stream_may_be_gone),
                                       TEST(a_call_on_a_dead_stream_is_forwarded),
                                       TEST(legacy_stream_has_two_names),
                                       TEST(implicit_capture_is_forwarded),
                                       TEST(the_device_is_lent),
                                       TEST(captures_are_a_world_of_their_own),
                                       TEST(captures_may_take_turns),
                                       TEST(many_captures_may_take_turns),
                                       TEST(a_captured_stream_may_be_gone),
                                       TEST(a_handle_may_come_again),
                                       TEST(a_graph_waits_and_records),
                                       TEST(replays_and_eager_calls_are_in_order),
                                       TEST(a_graph_may_come_before_all_eager_calls),
                                       TEST(graphs_are_in_order_among_themselves),
                                       TEST(communicators_have_their_own_order),
                                       TEST(grouped_calls_are_in_order_with_graphs),
                                       TEST(without_mixing_the_program_orders_them),
                                       TEST(a_graph_may_outlive_its_communicator),
                                       TEST(the_last_stream_may_be_in_a_capture),
                                       TEST(graphs_keep_the_communicator),
                                       TEST(a_failed_launch_is_not_forwarded),
                                       TEST(a_call_that_was_not_waited_for_is_the_last),
                                       TEST(an_unheld_captured_call_is_the_last),
                                       TEST(a_call_that_was_not_recorded_is_the_last),
                                       TEST(calls_are_drained),
                                       TEST(a_finalize_in_a_group_comes_last),
                                       TEST(a_possibly_invalid_call_is_forwarded),
                                       TEST(a_broken_communicator_reports_its_error),
                                       TEST(not_ready_is_forwarded),
                                       TEST(work_that_comes_late),
                                       TEST(each_collective_is_taken),
                                       TEST(each_collective_is_forwarded),
                                       TEST(a_bcast_is_a_broadcast_in_place),
                                       TEST(wrong_arguments_of_each_are_forwarded),
                                       TEST(only_needed_buffers_count),
                                       TEST(each_collective_in_a_group),
                                       TEST(a_simulation_hears_of_each),
                                       TEST(a_capture_decides_nothing),
                                       TEST(ours_launch_after_the_outermost_end),
                                       TEST(a_failed_group_launches_nothing),
                                       TEST(an_error_of_ours_cancels_the_real_group),
                                       TEST(simulation_launches_nothing),
                                       TEST(one_end_too_many),
                                       TEST(all_streams_of_a_group_join),
                                       TEST(a_group_follows_the_calls_before_it),
                                       TEST(a_group_of_captured_streams),
                                       TEST(one_thread_for_several_gpus),
                                       TEST(a_group_under_way_is_waited_for),
                                       TEST(a_group_under_way_ends_with_its_communicator),
                                       TEST(an_abort_lets_polls_end),
                                       TEST(a_group_without_ours_does_not_wait),
                                       TEST(taken_and_forwarded_run_side_by_side),
                                       TEST(communicators_may_share_the_streams_of_a_group),
                                       TEST(groups_of_one_kind_need_no_stream),
                                       TEST(communicators_launch_in_the_order_of_their_keys),
                                       TEST(ranks_of_one_thread_launch_in_turn),
                                       TEST(a_group_that_stops_half_way),
                                       TEST(a_group_whose_streams_do_not_join),
                                       TEST(a_group_that_fails_in_the_real_nccl),
                                       TEST(long_groups),
                                       TEST(an_operator_may_go_before_its_group_ends),
                                       TEST(an_operator_of_another_type_is_forwarded),
                                       TEST(groups_belong_to_their_thread),
                                       TEST(decisions_are_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
