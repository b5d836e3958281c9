/*
 * Shares of a GPU's multiprocessors: whatever communicators ask for and in which order, their kernels and early
 * successors fit together, and each can launch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "shim/room.h"
#include "tests/support/data.h"

static uint32_t multiprocessors;

uint32_t shim_room_multiprocessors(int device, void *stream)
{
    (void)device, (void)stream;
    return multiprocessors;
}

static alg_call_t grant(shim_comm_t *comm, uint32_t blocks)
{
    alg_call_t call = {.blocks = blocks, .threads = 512};
    shim_room_grant(comm, &call, NULL);
    assert_in_range(call.most_blocks, 1, blocks);
    return call;
}

static void one_has_all_and_early(void **state)
{
    (void)state;
    shim_comm_t comm = {0};
    multiprocessors = 132;
    for (int i = 0; i < 3; i++) {
        const alg_call_t call = grant(&comm, 64);
        assert_int_equal(call.most_blocks, 64);
        assert_int_equal(call.early, 1);
    }
    shim_room_release(&comm);
}

/* A barrier's communicator that came first does not keep a large one from running ahead. */
static void the_largest_leads(void **state)
{
    (void)state;
    shim_comm_t barrier = {0}, work = {0};
    multiprocessors = 132;
    grant(&barrier, 1);
    const alg_call_t call = grant(&work, 64);
    assert_int_equal(call.most_blocks, 64);
    assert_int_equal(call.early, 1);
    assert_int_equal(grant(&barrier, 1).early, 1);
    shim_room_release(&work);
    assert_int_equal(grant(&barrier, 64).most_blocks, 64);
    shim_room_release(&barrier);
}

/* What the communicators may hold at once, but for the leader's successors. */
static void random_shares_fit(void **state)
{
    (void)state;
    enum { COMMS = 8 };
    uint64_t random = 7;
    for (int round = 0; round < 300; round++) {
        shim_comm_t comms[COMMS] = {0};
        uint32_t held[COMMS] = {0};
        multiprocessors = 20 + (uint32_t)data_below(&random, 130);
        for (int i = 0; i < 60; i++) {
            const size_t c = data_below(&random, COMMS);
            if (data_below(&random, 12) == 0) {
                shim_room_release(&comms[c]);
                held[c] = 0;
                continue;
            }
            const alg_call_t call = grant(&comms[c], 1 + (uint32_t)data_below(&random, 64));
            const uint32_t holds = call.most_blocks * (call.early && !comms[c].share.leads ? 2 : 1);
            held[c] = holds > held[c] ? holds : held[c];
            uint32_t all = 0, leaders = 0;
            for (int k = 0; k < COMMS; k++) {
                all += held[k];
                leaders += comms[k].share.leads;
                assert_true(held[k] <= comms[k].share.blocks);
            }
            assert_true(leaders <= 1);
            assert_true(all <= multiprocessors + COMMS);
        }
        for (int k = 0; k < COMMS; k++)
            shim_room_release(&comms[k]);
    }
}

/* 4 communicators with the largest calls, on a whole GPU and on 40% of one. */
static void four_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        shim_comm_t comms[4] = {0};
        uint32_t all = 0;
        multiprocessors = i == 0 ? 132 : 52;
        for (int c = 0; c < 4; c++) {
            const alg_call_t call = grant(&comms[c], 64);
            all += call.most_blocks * (call.early && c > 0 ? 2 : 1);
        }
        assert_in_range(all, multiprocessors * 3 / 4, multiprocessors);
        for (int c = 0; c < 4; c++)
            shim_room_release(&comms[c]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_has_all_and_early),
        cmocka_unit_test(the_largest_leads),
        cmocka_unit_test(random_shares_fit),
        cmocka_unit_test(four_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
