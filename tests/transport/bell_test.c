/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bell_test.c - a process's bell: any process can wake those who wait for it, and a forked child has its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "children.h"
#include "transport/transport.h"

static net_bell_t *shared; /* the ringer's and the sleeper's */

static int sleeper(uint32_t rank, uint32_t nranks, void *argument)
{
    (void)rank, (void)nranks, (void)argument;
    const uint32_t rung = net_bell_rung();
    net_bell_t place;
    CHECK(net_bell_place(&place) == 0);
    CHECK(place.owner.pid == getpid()); /* not the parent's */
    memcpy(&shared[1], &place, sizeof place);
    __atomic_store_n(&shared[0].descriptor, 1, __ATOMIC_RELEASE);
    for (int i = 0; net_bell_rung() == rung && i < 100; i++)
        net_bell_wait(rung, 600000); /* longer than the test may take */
    return net_bell_rung() == rung;
}

static void a_ring_wakes_another_process(void **state)
{
    (void)state;
    net_bell_t own;
    assert_int_equal(net_bell_place(&own), 0);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    pid_t child = start_child(sleeper, 0, 1, NULL);
    while (__atomic_load_n(&shared[0].descriptor, __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    usleep(50000);
    assert_int_equal(net_bell_ring(&shared[1]), 0);
    assert_true(wait_child(child));
    assert_int_equal(net_bell_ring(&shared[1]), -ESRCH);
    munmap(shared, 4096);
}

static void ones_own(void **state)
{
    (void)state;
    net_bell_t own, again;
    assert_int_equal(net_bell_place(&own), 0);
    const int open = open_descriptors();
    assert_int_equal(net_bell_place(&again), 0);
    assert_memory_equal(&own, &again, sizeof own);
    const uint32_t rung = net_bell_rung();
    assert_int_equal(net_bell_ring(&own), 0);
    assert_int_equal(net_bell_rung(), rung + 1);
    net_bell_wait(rung, 600000); /* rung before: it does not sleep */
    net_bell_wait(rung + 1, 1);
    assert_int_equal(open_descriptors(), open);
}

/* Places that a peer posts may have any value and do no harm. */
static void wrong_places(void **state)
{
    (void)state;
    net_bell_t own, wrong = {0};
    assert_int_equal(net_bell_ring(&wrong), -EPROTO);
    assert_int_equal(net_bell_place(&own), 0);
    wrong = own;
    wrong.inode++;
    assert_int_equal(net_bell_ring(&wrong), -EPROTO);
    wrong = own;
    wrong.descriptor = 1;
    wrong.device++;
    assert_int_equal(net_bell_ring(&wrong), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ones_own),
        cmocka_unit_test(a_ring_wakes_another_process),
        cmocka_unit_test(wrong_places),
    };
    return cmocka_run_group_tests_name("bell", tests, NULL, NULL);
}
