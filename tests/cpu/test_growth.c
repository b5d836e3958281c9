/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is allocated when a call first needs it: for any order of the ranks' first long calls, beside short ones,
 * and if a rank is dead, has left, or is stopped.
 */
#include "cpu.h"

#include <signal.h>
#include <string.h>

/* The tests' nccl.h may be older. */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);

enum { SHORT = 3000, LONG = 3 << 20, MOST_COMMS = 4 };

/* MiB that this process has mapped of its own and its peers' memory. */
static long mapped_mib(void)
{
    char line[512];
    unsigned long from, to, bytes = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        if (strstr(line, "/memfd:shunt ") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            bytes += to - from;
    }
    fclose(maps);
    return (long)(bytes >> 20);
}

static void call_all(ranks_t *ranks, ncclComm_t comm, size_t bytes, coll_t k, uint64_t *hash)
{
    call_t call;
    const call_shape_t shape = {0, 0, false};
    k.c.nranks = ranks->nranks;
    k.c.count = bytes;
    call_prepare_coll(&call, comm, ranks->rank, &k, shape);
    CHECK_NCCL(call_issue(&call));
    call_finish(&call, ranks->rank, ranks->nranks, hash);
}

/* Alternating short and long calls of all collectives are right, though each kind has halves of its own while calls
 * have common numbers. */
static void mixed_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    uint64_t seed = 4, hash = 0;
    CHECK(mapped_mib() < ranks->nranks * 30);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2 * COLL_COUNT; i++) {
            coll_t k = {.collective = (alg_collective_t)(i / 2),
                        .root = (uint32_t)data_below(&seed, (uint64_t)ranks->nranks),
                        .c = {.kind = DATA_RANDOM, .type = round % 2 ? ncclInt8 : ncclFloat8e4m3, .op = REF_MAX}};
            k.c.seed = data_random(&seed);
            call_all(ranks, comm, data_below(&seed, 2) ? SHORT : (size_t)LONG / 2, k, &hash);
            call_all(ranks, comm, SHORT, k, &hash);
        }
    }
    call_agree(ranks, hash);
    CHECK(mapped_mib() > ranks->nranks * 50);
    CHECK_NCCL(ncclCommDestroy(comm));
}

static ncclResult_t sum(ncclComm_t comm, uint8_t *data, size_t bytes)
{
    return ncclAllReduce(data, data, bytes, ncclUint8, ncclSum, comm, NULL);
}

static void expect(const uint8_t *data, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i++)
        CHECK(data[i] == value);
}

/* First long calls of four communicators in a different order on each rank complete, beside short ones. */
static void crossed_body(ranks_t *ranks)
{
    uint8_t(*data)[2][LONG] = malloc(sizeof *data * MOST_COMMS); /* a thread's own */
    ncclComm_t comms[MOST_COMMS];
    CHECK(data != NULL);
    for (int i = 0; i < MOST_COMMS; i++)
        comms[i] = ranks_init(ranks);
    memset(data, 1, sizeof *data * MOST_COMMS);
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < MOST_COMMS; i++) {
        const int at = (i + ranks->rank) % MOST_COMMS;
        CHECK_NCCL(sum(comms[at], data[at][0], SHORT));
        CHECK_NCCL(sum(comms[at], data[at][1], LONG));
    }
    CHECK_NCCL(ncclGroupEnd());
    for (int i = 0; i < MOST_COMMS; i++) {
        expect(data[i][0], SHORT, ranks->nranks);
        expect(data[i][1], LONG, ranks->nranks);
        CHECK_NCCL(ncclCommDestroy(comms[i]));
    }
    free(data);
}

/* With one thread for all ranks, the first rank's call must not block until the second's is made. */
static void solo_body(ranks_t *ranks)
{
    static uint8_t data[MOST_COMMS][LONG];
    ncclComm_t comms[MOST_COMMS];
    CHECK_NCCL(ncclCommInitAll(comms, ranks->nranks, NULL));
    memset(data, 1, sizeof data);
    CHECK_NCCL(ncclGroupStart());
    for (int i = 0; i < ranks->nranks; i++)
        CHECK_NCCL(sum(comms[i], data[i], LONG));
    CHECK_NCCL(ncclGroupEnd());
    for (int i = 0; i < ranks->nranks; i++) {
        expect(data[i], LONG, ranks->nranks);
        CHECK_NCCL(ncclCommDestroy(comms[i]));
    }
}

/* The next communicator gets the scratch from the pool with all its pieces. */
static void again_body(ranks_t *ranks)
{
    static uint8_t data[LONG];
    for (int i = 0; i < 3; i++) {
        ncclComm_t comm = ranks_init(ranks);
        CHECK((mapped_mib() > ranks->nranks * 40) == (i > 0));
        memset(data, 1, LONG);
        CHECK_NCCL(sum(comm, data, LONG));
        expect(data, LONG, ranks->nranks);
        ranks_barrier(ranks);
        CHECK_NCCL(ncclCommDestroy(comm));
        ranks_barrier(ranks);
    }
}

/* ---- Ranks that do not come --------------------------------------------------------------- */

enum { LEAST_LIMIT_S = 58 }; /* of a meeting of the ranks (shim/comm/grow.c); that of a call is 2 s longer */

typedef enum absence { IS_DEAD, HAS_LEFT, IS_STOPPED } absence_t;

/* If the last rank is absent at the others' first long call, that and later long calls fail on all ranks, but short
 * ones succeed. On the CPU device no call can be forwarded; on GPUs the real NCCL would serve them. */
static void absent_body(ranks_t *ranks)
{
    static uint8_t data[LONG];
    const absence_t absence = *(const absence_t *)ranks->arg;
    const bool absent = ranks->rank == ranks->nranks - 1;
    ncclComm_t comm = ranks_init(ranks);
    if (absent) {
        atomic_store(&ranks->shared->words[0], (uint64_t)getpid());
        if (absence == HAS_LEFT)
            CHECK_NCCL(ncclCommDestroy(comm));
        ranks_barrier(ranks);
        if (absence != HAS_LEFT)
            CHECK(raise(absence == IS_DEAD ? SIGKILL : SIGSTOP) == 0);
        ranks_wait(ranks, 1, (uint64_t)ranks->nranks - 1);
        if (absence == IS_STOPPED)
            CHECK_RESULT(sum(comm, data, LONG), ncclSystemError); /* it was declined while this rank was stopped */
        return;
    }
    ranks_barrier(ranks);
    if (absence == IS_STOPPED)
        usleep(300000);
    const double begin = ranks_seconds();
    CHECK_RESULT(sum(comm, data, LONG), ncclSystemError);
    CHECK(absence == IS_STOPPED || ranks_seconds() - begin < LEAST_LIMIT_S); /* no limit has ended the wait */
    CHECK_RESULT(sum(comm, data, LONG), ncclSystemError);
    atomic_fetch_add(&ranks->shared->words[1], 1);
    ranks_wait(ranks, 1, (uint64_t)ranks->nranks - 1);
    kill((pid_t)atomic_load(&ranks->shared->words[0]), SIGCONT);
    CHECK_NCCL(ncclCommAbort(comm));
}

/* ---- Suspending ----------------------------------------------------------------------------- */

/* Calls are right on two communicators while one is suspended and resumed repeatedly, at different times on each
 * rank. */
static void suspended_body(ranks_t *ranks)
{
    static uint8_t data[LONG];
    ncclComm_t comms[2] = {ranks_init(ranks), ranks_init(ranks)};
    long least = 0;
    for (int round = 0; round < scaled(8); round++) {
        const size_t bytes = round % 2 ? SHORT : LONG;
        for (int i = 0; i < 3 + round % 2; i++) { /* an odd number of calls: the other half */
            memset(data, 1, bytes);
            CHECK_NCCL(sum(comms[0], data, bytes));
            expect(data, bytes, ranks->nranks);
        }
        usleep((unsigned)data_hash((uint64_t)ranks->rank, &round, sizeof round) % 5000);
        CHECK_NCCL(ncclCommSuspend(comms[0], 0)); /* of nothing */
        CHECK_RESULT(ncclCommResume(comms[0]), ncclInvalidUsage);
        CHECK_NCCL(ncclCommSuspend(comms[0], 1));
        CHECK_RESULT(ncclCommSuspend(comms[0], 1), ncclInvalidUsage);
        CHECK_RESULT(sum(comms[0], data, SHORT), ncclInvalidUsage);
        ranks_barrier(ranks);
        least = round == 0 ? mapped_mib() : least;
        CHECK(mapped_mib() == least && least < ranks->nranks * 30);
        memset(data, 1, SHORT);
        CHECK_NCCL(sum(comms[1], data, SHORT));
        expect(data, SHORT, ranks->nranks);
        CHECK_NCCL(ncclCommResume(comms[0]));
        CHECK(mapped_mib() > least);
    }
    CHECK_NCCL(ncclCommSuspend(comms[0], 1));
    CHECK_NCCL(ncclCommDestroy(comms[0]));
    CHECK_NCCL(ncclCommDestroy(comms[1]));
}

/* Suspending works with one thread for all ranks. */
static void suspended_solo_body(ranks_t *ranks)
{
    static uint8_t data[MOST_COMMS][SHORT];
    ncclComm_t comms[MOST_COMMS];
    CHECK_NCCL(ncclCommInitAll(comms, ranks->nranks, NULL));
    for (int round = 0; round < 3; round++) {
        memset(data, 1, sizeof data);
        CHECK_NCCL(ncclGroupStart());
        for (int i = 0; i < ranks->nranks; i++)
            CHECK_NCCL(sum(comms[i], data[i], SHORT));
        CHECK_NCCL(ncclGroupEnd());
        for (int i = 0; i < ranks->nranks; i++)
            expect(data[i], SHORT, ranks->nranks);
        for (int i = 0; i < ranks->nranks; i++)
            CHECK_NCCL(ncclCommSuspend(comms[i], 1));
        CHECK(mapped_mib() == 0);
        for (int i = 0; i < ranks->nranks; i++)
            CHECK_NCCL(ncclCommResume(comms[i]));
    }
    for (int i = 0; i < ranks->nranks; i++)
        CHECK_NCCL(ncclCommDestroy(comms[i]));
}

/* If one rank does not resume, the others do not hang. */
static void unresumed_body(ranks_t *ranks)
{
    uint8_t data[SHORT] = {0};
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(ncclCommSuspend(comm, 1));
    ranks_barrier(ranks);
    if (ranks->rank == 1) {
        CHECK_NCCL(ncclCommDestroy(comm));
        ranks_barrier(ranks);
        return;
    }
    CHECK_RESULT(ncclCommResume(comm), ncclSystemError);
    CHECK_FAILS(sum(comm, data, SHORT));
    ranks_barrier(ranks);
    CHECK_NCCL(ncclCommAbort(comm));
}

static void suspended(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, suspended_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, suspended_body, NULL);
    cpu_run(RANKS_SOLO, 3, suspended_solo_body, NULL);
}

static void unresumed(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 3, unresumed_body, NULL);
}

static void run_absent(absence_t absence)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES,
                         .nranks = 3,
                         .body = absent_body,
                         .arg = &absence,
                         .killed = absence == IS_DEAD ? 1 << 2 : 0};
    assert_int_equal(ranks_run(&plan), 0);
}

static void a_dead_rank(void **state)
{
    (void)state;
    run_absent(IS_DEAD);
}

static void a_rank_that_left(void **state)
{
    (void)state;
    run_absent(HAS_LEFT);
}

static void a_stopped_rank(void **state)
{
    (void)state;
    run_absent(IS_STOPPED);
}

static void mixed(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, mixed_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, mixed_body, NULL);
    cpu_run(RANKS_THREADS, 4, mixed_body, NULL);
}

static void crossed(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, crossed_body, NULL);
    cpu_run(RANKS_THREADS, 3, crossed_body, NULL);
}

static void one_thread(void **state)
{
    (void)state;
    cpu_run(RANKS_SOLO, 3, solo_body, NULL);
}

/* NCCL_COMM_ID gives all communicators one id: an ended one must not keep the next one from its memory. */
static void one_id_body(ranks_t *ranks)
{
    enum { COUNT = 1 << 20 };
    float *in = calloc(COUNT, sizeof *in), *out = calloc(COUNT, sizeof *out);
    CHECK(in != NULL && out != NULL);
    for (int i = 0; i < COUNT; i++)
        in[i] = 1;
    for (int round = 0; round < 3; round++) {
        ncclUniqueId id;
        ncclComm_t comm = NULL;
        CHECK_NCCL(ncclGetUniqueId(&id));
        CHECK_NCCL(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
        for (size_t count = 16; count <= COUNT; count *= COUNT / 16) {
            CHECK_NCCL(ncclAllReduce(in, out, count, ncclFloat32, ncclSum, comm, NULL));
            CHECK(out[count - 1] == (float)ranks->nranks);
        }
        if (round < 2)
            CHECK_NCCL(ncclCommDestroy(comm));
        ranks_barrier(ranks);
    }
    ncclComm_t two[2];
    for (int i = 0; i < 2; i++) {
        ncclUniqueId id;
        CHECK_NCCL(ncclGetUniqueId(&id));
        CHECK_NCCL(ncclCommInitRank(&two[i], ranks->nranks, id, ranks->rank));
    }
    for (int i = 0; i < 2; i++)
        CHECK_NCCL(ncclCommSuspend(two[i], 1));
    for (int i = 0; i < 2; i++) {
        CHECK_NCCL(ncclCommResume(two[i]));
        CHECK_NCCL(ncclAllReduce(in, out, 16, ncclFloat32, ncclSum, two[i], NULL));
    }
    free(in);
    free(out);
}

static void one_id(void **state)
{
    static char address[64];
    const char *const env[] = {"NCCL_COMM_ID", address, NULL};
    (void)state;
    snprintf(address, sizeof address, "127.0.0.1:%d", 20000 + (int)getpid() % 10000);
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = env, .body = one_id_body};
    assert_int_equal(ranks_run(&plan), 0);
}

static void again(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, again_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suspended),      cmocka_unit_test(unresumed),   cmocka_unit_test(mixed),
        cmocka_unit_test(crossed),        cmocka_unit_test(one_thread),  cmocka_unit_test(again),
        cmocka_unit_test(one_id),         cmocka_unit_test(a_dead_rank), cmocka_unit_test(a_rank_that_left),
        cmocka_unit_test(a_stopped_rank),
    };
    cpu_limit(90);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
