/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that leave after their part, by the end of their process, a destroy, or both: the others are not disturbed
 * unless they still need a rank that is gone.
 *
 * The library's limit is longer than the run's, so it ends no call.
 */
#include "cpu.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

enum { LONG = 3 << 20 };

static ncclResult_t sum(ncclComm_t comm, int nranks)
{
    int32_t in[50], out[50];
    for (int i = 0; i < 50; i++)
        in[i] = i;
    memset(out, 0xff, sizeof out);
    ncclResult_t result = ncclAllReduce(in, out, 50, ncclInt32, ncclSum, comm, NULL);
    for (int i = 0; i < 50 && result == ncclSuccess; i++)
        CHECK(out[i] == i * nranks);
    return result;
}

static void send_to(int peer, size_t bytes, ncclComm_t comm)
{
    static uint8_t data[LONG];
    memset(data, (int)bytes % 251, bytes);
    CHECK_NCCL(ncclSend(data, bytes, ncclUint8, peer, comm, NULL));
}

static ncclResult_t receive_from(int peer, size_t bytes, ncclComm_t comm)
{
    static uint8_t data[LONG];
    memset(data, 255, bytes);
    ncclResult_t result = ncclRecv(data, bytes, ncclUint8, peer, comm, NULL);
    for (size_t i = 0; i < bytes && result == ncclSuccess; i++)
        CHECK(data[i] == bytes % 251);
    return result;
}

static void tell_pid(ranks_t *ranks)
{
    atomic_store(&ranks->shared->words[ranks->rank], (uint64_t)getpid());
}

static void wait_for_end_of(ranks_t *ranks, int rank)
{
    ranks_wait(ranks, rank, 1);
    while (kill((pid_t)atomic_load(&ranks->shared->words[rank]), 0) == 0)
        usleep(1000);
}

/* Ranks 2, 3 and 4 leave in different ways while rank 0 waits for rank 1: its wait must not end. */
static void messages_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm, ranks->nranks));
    switch (ranks->rank) {
    case 0:
        CHECK_NCCL(receive_from(2, LONG, comm));
        CHECK_NCCL(receive_from(1, LONG, comm));
        send_to(1, 1000, comm);
        CHECK_RESULT(receive_from(1, 10, comm), ncclRemoteError); /* which itself fails */
        break;
    case 1:
        wait_for_end_of(ranks, 2);
        wait_for_end_of(ranks, 4);
        ranks_wait(ranks, 3, 1);
        usleep(1300000); /* more than the second after which a dead rank once ended all calls */
        send_to(0, LONG, comm);
        CHECK_NCCL(receive_from(0, 1000, comm));
        CHECK_NCCL(receive_from(2, 100, comm)); /* sent before its end */
        CHECK_RESULT(receive_from(2, 100, comm), ncclRemoteError);
        break;
    case 2:
        send_to(1, 100, comm);
        send_to(0, LONG, comm);
        tell_pid(ranks);
        return;
    default:
        CHECK_NCCL(ncclCommDestroy(comm));
        tell_pid(ranks);
        if (ranks->rank == 3)
            ranks_wait(ranks, 10, 2);
        return;
    }
    CHECK_NCCL(ncclCommAbort(comm));
    atomic_fetch_add(&ranks->shared->words[10], 1);
}

enum { HURRY = 100000 };

/* Exact in fp32; of each call, rank and place another. */
static float value_of(int call, int rank, int i)
{
    return (float)(1 + call * 1000 + rank * 100 + i % 97);
}

static void expect_sum(const float *out, int call, int nranks)
{
    for (int i = 0; i < HURRY; i++) {
        float sum = 0;
        for (int r = 0; r < nranks; r++)
            sum += value_of(call, r, i);
        CHECK(out[i] == sum);
    }
}

/* Results are right if every rank leaves directly after its part, and some are slow. */
static void hurry_body(ranks_t *ranks)
{
    static float in[HURRY], out[HURRY];
    ncclComm_t comm = ranks_init(ranks);
    for (int i = 0; i < 5; i++) {
        if (i == ranks->rank)
            usleep(120000);
        for (int k = 0; k < HURRY; k++)
            in[k] = value_of(i, ranks->rank, k);
        CHECK_NCCL(ncclAllReduce(in, out, HURRY, ncclFloat32, ncclSum, comm, NULL));
        expect_sum(out, i, ranks->nranks);
        const int root = ranks->nranks - 1 - i % 2;
        CHECK_NCCL(ncclBroadcast(in, out, HURRY, ncclFloat32, root, comm, NULL));
        for (int k = 0; k < HURRY; k++)
            CHECK(out[k] == value_of(i, root, k));
    }
}

static void messages(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 5, messages_body, NULL);
}

static void collectives(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 4, hurry_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(collectives),
    };
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
