/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frozen_test.c - a program whose clock does not advance, as with libfaketime: waits still end.
 *
 * The program's clock_gettime replaces libc's, for the library, too.
 */
#define _GNU_SOURCE
#include "../cpu/cpu.h"

#include <string.h>
#include <sys/syscall.h>
#include <time.h>

static atomic_bool frozen;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!atomic_load(&frozen))
        return (int)syscall(SYS_clock_gettime, clock, now);
    *now = (struct timespec){.tv_sec = 1000000000};
    return 0;
}

static void nodes_body(ranks_t *ranks)
{
    float in = 1, out = 0;
    atomic_store(&frozen, true);
    setenv("NCCL_HOSTID", ranks->rank ? "one" : "other", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
    CHECK(out == (float)ranks->nranks);
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void two_nodes_meet(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .seconds = 60, .body = nodes_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

static void alone_body(ranks_t *ranks)
{
    setenv("SHUNT_TIMEOUT_MS", "300", 1);
    ncclUniqueId id = ranks_id(ranks);
    ncclComm_t comm = NULL;
    atomic_store(&frozen, true);
    CHECK_FAILS(ncclCommInitRank(&comm, 2, id, 0));
    CHECK(strstr(ncclGetLastError(NULL), "within 300 ms") != NULL);
}

static void a_missing_rank_is_noticed(void **state)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 1, .seconds = 60, .body = alone_body};
    (void)state;
    assert_int_equal(ranks_run(&plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_nodes_meet),
        cmocka_unit_test(a_missing_rank_is_noticed),
    };
    cpu_limit(30);
    return cmocka_run_group_tests_name("frozen", tests, NULL, NULL);
}
