/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts_test.c - groups of collectives on a fake GPU: which of them share one launch, and its place in the order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "fake.h"
#include "shim/call/group.h"

enum { SMALL = 10, RANKS = 4, LONG = FAKE_PART_BYTES / 4 + 1, FORWARDED = FAKE_TAKEN_LIMIT + 1 };

static float in[RANKS], out[RANKS];

static ncclResult_t broadcast(shim_comm_t *comm, size_t count, int root)
{
    return ncclBroadcast(&in[root], &out[root], count, ncclFloat32, root, comm->handle, fake_stream(1));
}

static ncclResult_t reduce(shim_comm_t *comm, ncclDataType_t type, ncclRedOp_t op, int root)
{
    return ncclReduce(&in[root], &out[root], SMALL, type, op, root, comm->handle, fake_stream(1));
}

static void broadcast_all(shim_comm_t *comm, const size_t count[RANKS])
{
    assert_int_equal(ncclGroupStart(), ncclSuccess);
    for (int root = 0; root < RANKS; root++)
        assert_int_equal(broadcast(comm, count[root], root), ncclSuccess);
    assert_int_equal(fake.launches, 0);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
}

static void assert_part(const alg_part_t *part, uint32_t root, uint64_t count)
{
    assert_int_equal(part->root, root);
    assert_int_equal(part->count, count);
    assert_ptr_equal(part->input, &in[root]);
    assert_ptr_equal(part->output, &out[root]);
}

static shim_comm_t *new_comm(int device)
{
    shim_comm_t *comm = fake_comm(device, true);
    comm->nranks = RANKS;
    comm->plan = calloc(1, sizeof(*comm->plan));
    assert_non_null(comm->plan);
    return comm;
}

static int set_up(void **state)
{
    fake_reset();
    *state = new_comm(0);
    return 0;
}

static int tear_down(void **state)
{
    fake_graphs_destroy();
    fake_comm_end(*state);
    return 0;
}

static void one_of_each_root_is_one_launch(void **state)
{
    const size_t count[RANKS] = {SMALL, 2 * SMALL, 1, 3 * SMALL};
    broadcast_all(*state, count);
    assert_int_equal(fake.launches, 1);
    assert_int_equal(fake.launched[0].collective, ALG_BROADCAST);
    assert_int_equal(fake.launched[0].part_count, RANKS);
    assert_true(fake.launched[0].blocks >= RANKS);
    for (uint32_t i = 0; i < RANKS; i++)
        assert_part(&fake.launched[0].parts[i], i, count[i]);
}

/* Empty collectives are not launched, and the others stay on the group's stream. */
static void empty_ones_are_none(void **state)
{
    shim_comm_t *comm = *state;
    const size_t count[RANKS] = {0, SMALL, 0, SMALL};
    broadcast_all(comm, count);
    assert_int_equal(fake.launches, 1);
    assert_int_equal(fake.launched[0].part_count, 2);
    assert_part(&fake.launched[0].parts[0], 1, SMALL);
    assert_part(&fake.launched[0].parts[1], 3, SMALL);
    assert_int_equal(fake.real_calls, 2); /* for their arguments */
    assert_int_equal(fake.streams_made, 0);
}

static void long_ones_are_alone(void **state)
{
    const size_t count[RANKS] = {SMALL, SMALL, LONG, SMALL};
    broadcast_all(*state, count);
    assert_int_equal(fake.launches, 3);
    assert_int_equal(fake.launched[0].part_count, 2);
    assert_int_equal(fake.launched[1].part_count, 0);
    assert_int_equal(fake.launched[1].count, LONG);
    assert_int_equal(fake.launched[2].part_count, 0);
    assert_int_equal(fake.launched[2].root, 3);
}

static void forwarded_ones_are_not_between(void **state)
{
    const size_t count[RANKS] = {SMALL, FORWARDED, SMALL, SMALL};
    broadcast_all(*state, count);
    assert_int_equal(fake.launches, 1);
    assert_int_equal(fake.launched[0].part_count, 3);
}

/* The calls of a communicator keep their order: a call of another kind between them, or a lower root, ends a launch. */
static void others_keep_their_order(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    broadcast(comm, SMALL, 1);
    broadcast(comm, SMALL, 2);
    broadcast(comm, SMALL, 2);
    broadcast(comm, SMALL, 0);
    broadcast(comm, SMALL, 3);
    ncclAllReduce(in, out, SMALL, ncclFloat32, ncclSum, comm->handle, fake_stream(1));
    reduce(comm, ncclFloat32, ncclSum, 0);
    reduce(comm, ncclFloat32, ncclMax, 1);
    reduce(comm, ncclFloat32, ncclMax, 2);
    reduce(comm, ncclInt32, ncclMax, 3);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    static const struct {
        alg_collective_t collective;
        uint32_t parts, root;
    } wanted[] = {{ALG_BROADCAST, 2, 1}, {ALG_BROADCAST, 0, 2}, {ALG_BROADCAST, 2, 0}, {ALG_ALL_REDUCE, 0, 0},
                  {ALG_REDUCE, 0, 0},    {ALG_REDUCE, 2, 1},    {ALG_REDUCE, 0, 3}};
    assert_int_equal(fake.launches, sizeof(wanted) / sizeof(wanted[0]));
    for (uint32_t i = 0; i < fake.launches; i++) {
        const alg_call_t *call = &fake.launched[i];
        assert_int_equal(call->collective, wanted[i].collective);
        assert_int_equal(call->part_count, wanted[i].parts);
        assert_int_equal(call->part_count > 0 ? call->parts[0].root : call->root, wanted[i].root);
    }
}

/* Messages, which have their own branch, do not end a launch of collectives. */
static void messages_are_not_between(void **state)
{
    shim_comm_t *comm = *state;
    ncclGroupStart();
    broadcast(comm, SMALL, 0);
    ncclSend(in, SMALL, ncclFloat32, 1, comm->handle, fake_stream(1));
    broadcast(comm, SMALL, 1);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 2);
    assert_int_equal(fake.launched[0].collective, ALG_SEND_RECV);
    assert_int_equal(fake.launched[1].part_count, 2);
}

static void communicators_have_their_own(void **state)
{
    shim_comm_t *comm[2] = {*state, new_comm(1)};
    ncclGroupStart();
    for (int root = 0; root < RANKS; root++)
        for (int i = 0; i < 2; i++)
            broadcast(comm[i], SMALL + (size_t)i, root);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(fake.launched[i].part_count, RANKS);
        for (uint32_t k = 0; k < RANKS; k++)
            assert_part(&fake.launched[i].parts[k], k, fake.launched[i].parts[0].count);
    }
    assert_int_not_equal(fake.launched[0].parts[0].count, fake.launched[1].parts[0].count);
    fake_comm_end(comm[1]);
}

static void the_most_blocks_hold_for_all_parts(void **state)
{
    shim_comm_t *comm = *state;
    const size_t count[RANKS] = {SMALL, SMALL, SMALL, SMALL};
    comm->plan->settings.max_blocks = 2;
    broadcast_all(comm, count);
    assert_int_equal(fake.launched[0].part_count, RANKS);
    assert_int_equal(fake.launched[0].blocks, 2);
}

static void all_reduce(shim_comm_t *comm, size_t count, ncclRedOp_t op)
{
    assert_int_equal(ncclAllReduce(in, out, count, ncclFloat32, op, comm->handle, fake_stream(1)), ncclSuccess);
}

/* Short all-reduces share one launch, up to its limit of calls. */
static void short_all_reduces_are_one_launch(void **state)
{
    enum { CALLS = ALG_MOST_PARTS + 6 };
    fake.lists = true;
    ncclGroupStart();
    for (int i = 0; i < CALLS; i++)
        all_reduce(*state, i % 2 ? SMALL : 3 * SMALL, ncclSum);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, 2);
    assert_int_equal(fake.launched[0].part_count, ALG_MOST_PARTS);
    assert_int_equal(fake.launched[0].parts[0].count, 3 * SMALL);
    assert_int_equal(fake.launched[0].parts[ALG_MOST_PARTS - 1].count, SMALL);
    assert_int_equal(fake.launched[1].part_count, CALLS - ALG_MOST_PARTS);
}

/* Calls that share a kernel use the same halves as single calls would, since other ranks may make them one by one. */
static void parts_use_the_same_halves(void **state)
{
    enum { LONGER = FAKE_SHORT_ELEMENTS + 1 };
    const size_t count[RANKS] = {SMALL, SMALL, LONGER, LONGER};
    fake.cut = true;
    broadcast_all(*state, count);
    assert_int_equal(fake.launches, 2);
    assert_int_equal(fake.launched[0].part_count, 2);
    assert_int_equal(fake.launched[1].part_count, 2);
    assert_int_equal(fake.launched[1].parts[0].count, LONGER);
}

/* Short calls of other collectives in which all ranks send to all share one launch, too. */
static void short_calls_are_one_launch(void **state)
{
    enum { CALLS = 3 };
    shim_comm_t *comm = *state;
    fake.lists = true;
    ncclGroupStart();
    for (int i = 0; i < CALLS; i++)
        ncclAllGather(in, out, SMALL + (size_t)i, ncclFloat32, comm->handle, fake_stream(1));
    for (int i = 0; i < CALLS; i++)
        ncclReduceScatter(in, out, SMALL + (size_t)i, ncclFloat32, ncclSum, comm->handle, fake_stream(1));
    for (int i = 0; i < CALLS; i++)
        ncclAlltoAll(in, out, SMALL + (size_t)i, ncclFloat32, comm->handle, fake_stream(1));
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    static const alg_collective_t wanted[] = {ALG_ALL_GATHER, ALG_REDUCE_SCATTER, ALG_ALL_TO_ALL};
    assert_int_equal(fake.launches, sizeof(wanted) / sizeof(wanted[0]));
    for (uint32_t i = 0; i < fake.launches; i++) {
        assert_int_equal(fake.launched[i].collective, wanted[i]);
        assert_int_equal(fake.launched[i].part_count, CALLS);
        assert_int_equal(fake.launched[i].parts[CALLS - 1].count, SMALL + CALLS - 1);
    }
}

/* Long all-reduces, other collectives and other operators are launched in their place in the order. */
static void all_reduces_keep_their_order(void **state)
{
    static const struct {
        alg_collective_t collective;
        uint32_t parts;
        uint64_t count;
    } wanted[] = {{ALG_ALL_REDUCE, 2, SMALL}, {ALG_ALL_REDUCE, 0, LONG}, {ALG_ALL_REDUCE, 2, SMALL},
                  {ALG_ALL_REDUCE, 0, SMALL}, {ALG_BROADCAST, 0, SMALL}, {ALG_ALL_REDUCE, 0, SMALL}};
    fake.lists = true;
    ncclGroupStart();
    all_reduce(*state, SMALL, ncclSum);
    all_reduce(*state, SMALL, ncclSum);
    all_reduce(*state, LONG, ncclSum);
    all_reduce(*state, SMALL, ncclSum);
    all_reduce(*state, SMALL, ncclSum);
    all_reduce(*state, SMALL, ncclMax);
    broadcast(*state, SMALL, 0);
    all_reduce(*state, SMALL, ncclMax);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    assert_int_equal(fake.launches, sizeof(wanted) / sizeof(wanted[0]));
    for (uint32_t i = 0; i < fake.launches; i++) {
        const alg_call_t *call = &fake.launched[i];
        assert_int_equal(call->collective, wanted[i].collective);
        assert_int_equal(call->part_count, wanted[i].parts);
        assert_int_equal(call->part_count > 0 ? call->parts[0].count : call->count, wanted[i].count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_of_each_root_is_one_launch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(empty_ones_are_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_ones_are_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forwarded_ones_are_not_between, set_up, tear_down),
        cmocka_unit_test_setup_teardown(others_keep_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(messages_are_not_between, set_up, tear_down),
        cmocka_unit_test_setup_teardown(communicators_have_their_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_most_blocks_hold_for_all_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_all_reduces_are_one_launch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts_use_the_same_halves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_calls_are_one_launch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_reduces_keep_their_order, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("parts", tests, NULL, NULL);
}
