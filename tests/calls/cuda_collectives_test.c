/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_collectives_test.c - each collective on a fake GPU: its arguments, its configuration, its operators; taken,
 * forwarded, grouped and captured.
 */
#include <limits.h>
#include <string.h>

#include "fake_calls.h"
#include "shim/names/names.h"
#include "shunt.h"
#include "tests/support/coll_config.h"

enum { COLLECTIVES = ALG_SEND_RECV }; /* messages: messages_test.c */

static int kind_with(shim_comm_t *comm, const void *config)
{
    const uint32_t before = fake.works;
    assert_int_equal(
        ncclAllReduceConfig(buffer, buffer, SMALL, ncclFloat32, ncclSum, comm->handle, fake_stream(1), config),
        ncclSuccess);
    return fake.work[before].kind;
}

/* A configuration without requests does not prevent that a communicator is taken, as a peer may give none. */
static void a_configuration_without_requests_is_taken(void **state)
{
    shim_comm_t *comm = *state;
    coll_config_t some = coll_config_unset;
    assert_int_equal(kind_with(comm, &coll_config_unset), FAKE_OURS);
    some.size = offsetof(coll_config_t, event);
    some.event = &some; /* what lies behind is not the configuration's */
    assert_int_equal(kind_with(comm, &some), FAKE_OURS);
    some = coll_config_unset;
    some.algorithms = "";
    some.force = 0;
    some.tag = 7; /* for a profiler */
    assert_int_equal(kind_with(comm, &some), FAKE_OURS);
}

/* Of a call that is forwarded the real NCCL's profiler gets the tag, also where the configuration is gone by then. */
static void a_forwarded_call_keeps_its_tag(void **state)
{
    shim_comm_t *comm = *state;
    coll_config_t some = coll_config_unset;
    some.tag = 7;
    ncclAllReduceConfig(buffer, buffer, LARGE, ncclFloat32, ncclSum, comm->handle, fake_stream(1), (const void *)&some);
    assert_int_equal(fake.work[0].kind, FAKE_REAL);
    assert_int_equal(fake.config_tag, 7);
    some.tag = 8;
    ncclGroupStart();
    ncclAllReduceConfig(buffer, buffer, LARGE, ncclFloat32, ncclSum, comm->handle, fake_stream(1), (const void *)&some);
    memset(&some, 0xff, sizeof some);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.config_tag, 8);
}

static void a_configuration_with_requests_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    coll_config_t configs[10];
    for (int i = 0; i < 10; i++)
        configs[i] = coll_config_unset;
    configs[0].size = 56; /* wrong */
    configs[1].size = 80; /* of an NCCL to come */
    configs[2].magic = 0;
    configs[3].ext = buffer;
    configs[4].max_ctas = 8;
    configs[5].min_ctas = 8;
    configs[6].algorithms = "ring";
    configs[7].policy = 2;
    configs[8].event = buffer;
    configs[9].force = 3;
    for (int i = 0; i < 10; i++)
        assert_int_equal(kind_with(comm, &configs[i]), FAKE_REAL);
}

static void a_possibly_invalid_call_is_forwarded(void **state)
{
    shim_comm_t *comm = *state;
    ncclComm_t handle = comm->handle;
    cudaStream_t stream = fake_stream(1);
    ncclAllReduce(NULL, buffer, SMALL, ncclFloat32, ncclSum, handle, stream);
    ncclAllReduce(buffer, NULL, SMALL, ncclFloat32, ncclSum, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, (ncclDataType_t)99, ncclSum, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, (ncclDataType_t)-1, ncclSum, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, (ncclRedOp_t)6, handle, stream);
    ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, (ncclRedOp_t)-1, handle, stream);
    assert_int_equal(fake.works, 6);
    for (uint32_t i = 0; i < fake.works; i++)
        assert_int_equal(fake.work[i].kind, FAKE_REAL);
    assert_int_equal(ncclAllReduce(buffer, buffer, SMALL, ncclFloat32, ncclSum, NULL, stream), ncclInvalidArgument);
}

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

static ncclResult_t call_configured(int collective, ncclComm_t comm, const arguments_t *a, const void *config)
{
    cudaStream_t stream = fake_stream(a->stream);
    switch (collective) {
    case ALG_ALL_REDUCE:
        return ncclAllReduceConfig(a->send, a->recv, a->count, a->type, a->op, comm, stream, config);
    case ALG_REDUCE_SCATTER:
        return ncclReduceScatterConfig(a->send, a->recv, a->count, a->type, a->op, comm, stream, config);
    case ALG_REDUCE:
        return ncclReduceConfig(a->send, a->recv, a->count, a->type, a->op, a->root, comm, stream, config);
    case ALG_ALL_GATHER:
        return ncclAllGatherConfig(a->send, a->recv, a->count, a->type, comm, stream, config);
    case ALG_ALL_TO_ALL:
        return ncclAlltoAllConfig(a->send, a->recv, a->count, a->type, comm, stream, config);
    case ALG_BROADCAST:
        return ncclBroadcastConfig(a->send, a->recv, a->count, a->type, a->root, comm, stream, config);
    case ALG_GATHER:
        return ncclGatherConfig(a->send, a->recv, a->count, a->type, a->root, comm, stream, config);
    default:
        return ncclScatterConfig(a->send, a->recv, a->count, a->type, a->root, comm, stream, config);
    }
}

/* Launch number `collective`, the last one, is a call with `plain`'s arguments, these buffers and ncclMax. */
static void assert_last_launch(int collective, const void *input, const void *output)
{
    const alg_call_t *launched = &fake.launched[collective];
    assert_int_equal(fake.launches, collective + 1);
    assert_int_equal(launched->collective, collective);
    assert_int_equal(launched->root, alg_collective_rooted(collective) ? 1 : 0);
    assert_ptr_equal(launched->input, input);
    assert_ptr_equal(launched->output, output);
    assert_int_equal(launched->count, SMALL);
    assert_int_equal(launched->type, ALG_FLOAT32);
    assert_int_equal(launched->op, alg_collective_reduces(collective) ? ALG_MAX : ALG_SUM);
}

/* Each collective with a configuration: taken with its arguments if that requests nothing, else NCCL's own. */
static void each_collective_has_a_configured_form(void **state)
{
    shim_comm_t *comm = *state;
    coll_config_t requests = coll_config_unset;
    requests.max_ctas = 8;
    for (int c = 0; c < COLLECTIVES; c++) {
        arguments_t a = plain;
        float in, out;
        char name[40];
        a.send = &in;
        a.recv = &out;
        a.op = ncclMax;
        assert_int_equal(call_configured(c, comm->handle, &a, c % 2 ? NULL : &coll_config_unset), ncclSuccess);
        assert_last_launch(c, &in, &out);
        assert_int_equal(call_configured(c, comm->handle, &a, &requests), ncclSuccess);
        snprintf(name, sizeof name, "%sConfig", functions[c]);
        assert_int_equal(fake.real_calls, c + 1);
        assert_string_equal(fake.real_call[c], name);
    }
    assert_in_order(2 * COLLECTIVES);
}

/* Each collective is taken and launched with its arguments, in the order of the calls even on different streams. */
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
        assert_last_launch(c, &in, &out);
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

/* On this rank, 0, the root decides which buffers are needed. A buffer that is not needed may be NULL, and the call
 * must still take the same route as on the peers. */
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

/* A captured call takes the same route as an eager one, since its peers may not be captured. */
static void a_capture_decides_nothing(void **state)
{
    shim_comm_t *comm = *state;
    fake_stream_capture(fake_stream(1), 9);
    for (int c = 0; c < COLLECTIVES; c++)
        assert_int_equal(call(c, comm->handle, &plain), ncclSuccess);
    assert_int_equal(fake.launches, COLLECTIVES);
    assert_int_equal(fake.wrong_waits, 0);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(a_configuration_without_requests_is_taken),
                                       TEST(a_forwarded_call_keeps_its_tag),
                                       TEST(a_configuration_with_requests_is_forwarded),
                                       TEST(a_possibly_invalid_call_is_forwarded),
                                       TEST(each_collective_is_taken),
                                       TEST(each_collective_has_a_configured_form),
                                       TEST(each_collective_is_forwarded),
                                       TEST(a_bcast_is_a_broadcast_in_place),
                                       TEST(wrong_arguments_of_each_are_forwarded),
                                       TEST(only_needed_buffers_count),
                                       TEST(each_collective_in_a_group),
                                       TEST(a_simulation_hears_of_each),
                                       TEST(a_capture_decides_nothing),
                                       TEST(an_operator_may_go_before_its_group_ends),
                                       TEST(an_operator_of_another_type_is_forwarded),
                                       TEST(decisions_are_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
