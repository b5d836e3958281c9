/* SPDX-License-Identifier: Apache-2.0 */
/* fake_calls.c - see fake_calls.h. */
#include "fake_calls.h"

_Alignas(16) float buffer[2];

ncclResult_t reduce(shim_comm_t *comm, size_t count, int stream)
{
    return ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, comm->handle, fake_stream(stream));
}

ncclResult_t broadcast(shim_comm_t *comm, int stream)
{
    return ncclBroadcast(buffer, buffer, LARGE, ncclFloat32, 0, comm->handle, fake_stream(stream));
}

bool after(uint32_t later, uint32_t sooner)
{
    return fake.work[later].before >> sooner & 1;
}

bool beside(uint32_t a, uint32_t b)
{
    return !after(a, b) && !after(b, a);
}

void assert_in_order_from(uint32_t first, uint32_t works)
{
    assert_int_equal(fake.works, works);
    for (uint32_t i = first; i < works; i++)
        assert_int_equal(fake.work[i].before & ALL_OF(i), ALL_OF(i));
    assert_int_equal(fake.wrong_waits, 0);
}

void assert_in_order(uint32_t works)
{
    assert_in_order_from(0, works);
}

void assert_run_in_order(int device, int count)
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

int set_up(void **state)
{
    fake_reset();
    *state = fake_comm(0, true);
    return 0;
}

int tear_down(void **state)
{
    fake_graphs_destroy();
    fake_comm_end(*state);
    return 0;
}
