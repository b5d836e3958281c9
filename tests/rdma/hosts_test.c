/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library as two ranks of two hosts see it, each with an RDMA device of its own: sums and gathers, and a wire that
 * is cut in mid-call. Runs in scripts/rdma-vm, and with made-up devices (SHUNT_IBV_SO).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/ranks.h"

enum { RANKS = 2, COUNT = 100000 };

static const char *device_of(int rank)
{
    const char *made_up = getenv("SHUNT_IBV_SO");
    static const char *const device[2][RANKS] = {{"=rxe0", "=rxe1"}, {"=fake0", "=fake1"}};
    return device[made_up != NULL][rank];
}

static ncclComm_t init(ranks_t *ranks)
{
    char host[16], log[64];
    snprintf(host, sizeof(host), "host%d", ranks->rank);
    snprintf(log, sizeof(log), "/tmp/rdma-hosts-%d", (int)getpid());
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_IB_HCA", device_of(ranks->rank), 1);
    setenv("SHUNT_DEBUG", "info", 1);
    setenv("SHUNT_DEBUG_FILE", log, 1);
    return ranks_init(ranks);
}

/* What the log says of the way to the other host. */
static bool by_device(int rank)
{
    char log[64], line[512], wanted[64];
    bool found = false;
    snprintf(log, sizeof(log), "/tmp/rdma-hosts-%d", (int)getpid());
    snprintf(wanted, sizeof(wanted), "reached by RDMA (%s:1)", device_of(rank) + 1);
    FILE *file = fopen(log, "re");
    while (file && fgets(line, sizeof(line), file))
        found = found || strstr(line, wanted);
    if (file)
        fclose(file);
    unlink(log);
    return found;
}

static ncclResult_t sum(ncclComm_t comm, size_t count, float first)
{
    static float in[COUNT], out[COUNT];
    for (size_t i = 0; i < count; i++)
        in[i] = first + (float)(i % 1000);
    ncclResult_t result = ncclAllReduce(in, out, count, ncclFloat32, ncclSum, comm, NULL);
    for (size_t i = 0; i < count && result == ncclSuccess; i++)
        CHECK(out[i] == (first + (float)(i % 1000)) * RANKS);
    return result;
}

static void sums_body(ranks_t *ranks)
{
    static const size_t counts[] = {1, 1000, 5003, 77777, COUNT};
    ncclComm_t comm = init(ranks);
    CHECK(by_device(ranks->rank));
    for (int i = 0; i < 20; i++) {
        int32_t in = 7 * ranks->rank + i, all[RANKS];
        CHECK(sum(comm, counts[i % 5], (float)i) == ncclSuccess);
        CHECK(ncclAllGather(&in, all, 1, ncclInt32, comm, NULL) == ncclSuccess);
        CHECK(all[0] == i && all[1] == 7 + i);
    }
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

static void sums(void **state)
{
    (void)state;
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = RANKS, .body = sums_body};
    assert_int_equal(ranks_run(&plan), 0);
}

/* Packets are sent again for 67 ms * 4. */
static void cut_body(ranks_t *ranks)
{
    setenv("NCCL_IB_TIMEOUT", "14", 1);
    setenv("NCCL_IB_RETRY_CNT", "3", 1);
    ncclComm_t comm = init(ranks);
    CHECK(by_device(ranks->rank));
    ncclResult_t result = ncclSuccess, state;
    for (int i = 0; result == ncclSuccess; i++) {
        result = sum(comm, COUNT, (float)i);
        if (i == 5 && ranks->rank == 0)
            CHECK(system("ip link set veth1 down") == 0);
    }
    CHECK(result == ncclRemoteError);
    CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclRemoteError);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
}

static void cut_wires_are_seen(void **state)
{
    static const char *const env[] = {"SHUNT_TIMEOUT_MS", "60000", NULL};
    (void)state;
    if (!getenv("RDMA_VM_WIRE"))
        skip();
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = RANKS, .env = env, .body = cut_body};
    assert_int_equal(ranks_run(&plan), 0);
    assert_int_equal(system("sh $RDMA_VM_WIRE"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums), cmocka_unit_test(cut_wires_are_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
