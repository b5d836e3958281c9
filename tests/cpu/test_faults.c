/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that die, never call, leave, stall or abort: in each case the others get an error and can clean up, and nothing
 * hangs.
 *
 * If an abort or the check of peers must end a wait, the library's limit is longer than the run's, so a call that
 * returns was not ended by the limit.
 */
#include "cpu.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

/* For inits that cannot succeed. */
static const char *const short_limit[] = {"SHUNT_TIMEOUT_MS", "1000", NULL};
/* For tests in which the time limit must end a wait, and all before it must stay within the limit too. */
static const char *const long_limit[] = {"SHUNT_TIMEOUT_MS", "15000", NULL};

static void fault_run(ranks_shape_t shape, int nranks, uint32_t killed, const char *const *env, ranks_body_t body)
{
    ranks_plan_t plan = {.shape = shape, .nranks = nranks, .killed = killed, .env = env, .body = body};
    assert_int_equal(ranks_run(&plan), 0);
}

static ncclResult_t sum(ncclComm_t comm, int nranks)
{
    float in[50], out[50];
    ncclResult_t result;
    for (int i = 0; i < 50; i++)
        in[i] = (float)i;
    memset(out, 0xff, sizeof out); /* NaN */
    result = ncclAllReduce(in, out, 50, ncclFloat32, ncclSum, comm, NULL);
    for (int i = 0; i < 50 && result == ncclSuccess; i++)
        CHECK(out[i] == (float)(i * nranks));
    return result;
}

/* Check that the call fails, later calls fail too, and the communicator can be destroyed or aborted. */
static void expect_broken(ncclComm_t comm, int nranks, bool abort)
{
    ncclResult_t async = ncclSuccess;
    CHECK_FAILS(sum(comm, nranks));
    CHECK(strlen(ncclGetLastError(comm)) > 0);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &async));
    CHECK(async != ncclSuccess && async != ncclInProgress);
    CHECK_FAILS(sum(comm, nranks));
    if (abort)
        CHECK_NCCL(ncclCommAbort(comm));
    else
        (void)ncclCommDestroy(comm);
}

static void init_fails(ranks_t *ranks, ncclUniqueId id)
{
    ncclComm_t comm = NULL;
    CHECK_FAILS(ncclCommInitRank(&comm, ranks->nranks, id, ranks->rank));
    CHECK(strlen(ncclGetLastError(NULL)) > 0);
    if (comm)
        CHECK_NCCL(ncclCommAbort(comm));
}

static void killed_before_init_body(ranks_t *ranks)
{
    ncclUniqueId id = ranks_id(ranks);
    if (ranks->rank == 1)
        raise(SIGKILL);
    init_fails(ranks, id);
}

static void never_arrives_body(ranks_t *ranks)
{
    ncclUniqueId id = ranks_id(ranks);
    if (ranks->rank == ranks->nranks - 1) {
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1); /* alive, but elsewhere */
        return;
    }
    init_fails(ranks, id);
    atomic_fetch_add(&ranks->shared->words[0], 1);
}

static void missing_at_init(void **state)
{
    (void)state;
    fault_run(RANKS_PROCESSES, 3, 1u << 1, short_limit, killed_before_init_body);
    fault_run(RANKS_PROCESSES, 3, 0, short_limit, never_arrives_body);
    fault_run(RANKS_THREADS, 2, 0, short_limit, never_arrives_body);
}

/* The survivors make a new communicator without the dead rank. */
static void start_over(ranks_t *ranks, int survivors)
{
    ranks_shared_t *shared = ranks->shared;
    ncclComm_t comm = NULL;
    if (ranks->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&shared->id));
        atomic_store(&shared->words[0], 1);
    }
    ranks_wait(ranks, 0, 1);
    CHECK_NCCL(ncclCommInitRank(&comm, survivors, shared->id, ranks->rank));
    for (int i = 0; i < 10; i++)
        CHECK_NCCL(sum(comm, survivors));
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void killed_between_calls_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (int i = 0; i < 5; i++)
        CHECK_NCCL(sum(comm, ranks->nranks));
    ranks_barrier(ranks);
    if (ranks->rank == ranks->nranks - 1)
        raise(SIGKILL);
    expect_broken(comm, ranks->nranks, ranks->rank != 0);
    start_over(ranks, ranks->nranks - 1);
}

static void *kill_soon(void *unused)
{
    (void)unused;
    usleep(50000);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void killed_in_mid_call_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    ncclResult_t result = ncclSuccess;
    pthread_t killer;
    CHECK_NCCL(sum(comm, ranks->nranks));
    if (ranks->rank == ranks->nranks - 1)
        CHECK(pthread_create(&killer, NULL, kill_soon, NULL) == 0);
    while (result == ncclSuccess)
        result = sum(comm, ranks->nranks);
    CHECK(result != ncclInProgress);
    expect_broken(comm, ranks->nranks, true);
    start_over(ranks, ranks->nranks - 1);
}

static void killed(void **state)
{
    (void)state;
    fault_run(RANKS_PROCESSES, 4, 1u << 3, NULL, killed_between_calls_body);
    fault_run(RANKS_PROCESSES, 2, 1u << 1, NULL, killed_between_calls_body);
    for (int i = 0; i < scaled(10); i++)
        fault_run(RANKS_PROCESSES, 3, 1u << 2, NULL, killed_in_mid_call_body);
}

/* A rank that lives but does not make the call is detected by the time limit. */
static void call_alone_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm, ranks->nranks));
    if (ranks->rank == 0) {
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
        CHECK_NCCL(ncclCommAbort(comm));
        return;
    }
    expect_broken(comm, ranks->nranks, true);
    atomic_fetch_add(&ranks->shared->words[0], 1);
}

/* The others detect, without a time limit, a rank that has destroyed its communicator. */
static void peer_left_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm, ranks->nranks));
    ranks_barrier(ranks);
    if (ranks->rank == 0) {
        CHECK_NCCL(ncclCommDestroy(comm));
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
        return;
    }
    expect_broken(comm, ranks->nranks, false);
    atomic_fetch_add(&ranks->shared->words[0], 1);
}

static void call_alone(void **state)
{
    (void)state;
    fault_run(RANKS_PROCESSES, 3, 0, long_limit, call_alone_body);
    fault_run(RANKS_THREADS, 3, 0, long_limit, call_alone_body);
    fault_run(RANKS_PROCESSES, 2, 0, NULL, peer_left_body);
    fault_run(RANKS_THREADS, 3, 0, NULL, peer_left_body);
}

/* A slow rank is not taken for dead. */
static void stalled_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (int i = 0; i < 4; i++) {
        if (ranks->rank == i % ranks->nranks)
            usleep(400000);
        CHECK_NCCL(sum(comm, ranks->nranks));
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void stalled(void **state)
{
    (void)state;
    fault_run(RANKS_PROCESSES, 3, 0, long_limit, stalled_body);
}

static void *abort_soon(void *comm)
{
    usleep(200000);
    CHECK_NCCL(ncclCommAbort(comm));
    return NULL;
}

/* An abort from another thread frees a waiting call. */
static void abort_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    CHECK_NCCL(sum(comm, ranks->nranks));
    if (ranks->rank == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
        CHECK_FAILS(sum(comm, ranks->nranks));
        pthread_join(thread, NULL);
        atomic_store(&ranks->shared->words[0], 1);
        return;
    }
    ranks_wait(ranks, 0, 1);
    CHECK_NCCL(ncclCommAbort(comm));
}

/* An abort from another thread frees a waiting group. */
static void abort_group_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    float in[2] = {1, 2}, out[2];
    if (ranks->rank == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(ncclAllReduce(in, out, 1, ncclFloat32, ncclSum, comm, NULL));
        CHECK_NCCL(ncclAllReduce(in + 1, out + 1, 1, ncclFloat32, ncclSum, comm, NULL));
        CHECK_FAILS(ncclGroupEnd());
        pthread_join(thread, NULL);
        atomic_store(&ranks->shared->words[0], 1);
        return;
    }
    ranks_wait(ranks, 0, 1);
    CHECK_NCCL(ncclCommAbort(comm));
}

/* A non-blocking init whose peers never call can be aborted. */
static void abort_init_body(ranks_t *ranks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    ncclResult_t result;
    (void)ranks;
    config.blocking = 0;
    CHECK_NCCL(ncclGetUniqueId(&id));
    result = ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    CHECK(result == ncclSuccess || result == ncclInProgress);
    CHECK_NCCL(ncclCommGetAsyncError(comm, &result));
    CHECK(result == ncclInProgress);
    CHECK_NCCL(ncclCommAbort(comm));
}

typedef struct waiting_init {
    ncclComm_t comm;
    ncclUniqueId id;
    bool grouped;
    ncclResult_t result;
} waiting_init_t;

static void *waiting_init_main(void *argument)
{
    waiting_init_t *w = argument;
    if (w->grouped)
        CHECK_NCCL(ncclGroupStart());
    w->result = ncclCommInitRank(&w->comm, 2, w->id, 0);
    if (w->grouped)
        w->result = ncclGroupEnd();
    return NULL;
}

/* An init in which a thread waits for a peer can be aborted by another thread as soon as it has the handle, and then
 * fails. */
static void abort_waiting_init_body(ranks_t *ranks)
{
    (void)ranks;
    for (unsigned round = 0; round < 60; round++) {
        waiting_init_t w = {.grouped = round % 2};
        pthread_t thread;
        ncclComm_t seen = NULL;
        CHECK_NCCL(ncclGetUniqueId(&w.id));
        CHECK(pthread_create(&thread, NULL, waiting_init_main, &w) == 0);
        while (!seen)
            seen = __atomic_load_n(&w.comm, __ATOMIC_ACQUIRE);
        if (round % 3 == 1)
            usleep(round * 50);
        CHECK_NCCL(ncclCommAbort(seen));
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_FAILS(w.result);
        CHECK(w.comm == NULL);
    }
}

/* ---- In a message ------------------------------------------------------------------------ */

/* A receive whose sender is gone or never sends; or a send larger than the ring, to a rank that does not receive. */
static ncclResult_t wait_for(ranks_t *ranks, ncclComm_t comm)
{
    static char data[16 << 20];
    const int peer = ranks->nranks - 1;
    return ranks->rank % 2 ? ncclRecv(data, 100, ncclInt8, peer, comm, NULL)
                           : ncclSend(data, sizeof(data), ncclInt8, peer, comm, NULL);
}

static void killed_message_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    ranks_barrier(ranks);
    if (ranks->rank == ranks->nranks - 1)
        raise(SIGKILL);
    CHECK_FAILS(wait_for(ranks, comm));
    expect_broken(comm, ranks->nranks, true);
    start_over(ranks, ranks->nranks - 1);
}

static void late_message_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    if (ranks->rank == ranks->nranks - 1) {
        ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
        CHECK_NCCL(ncclCommAbort(comm));
        return;
    }
    CHECK_FAILS(wait_for(ranks, comm));
    expect_broken(comm, ranks->nranks, true);
    atomic_fetch_add(&ranks->shared->words[0], 1);
}

/* An abort frees waiting messages beside a waiting collective. */
static void abort_messages_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    float in = 1, out;
    if (ranks->rank < ranks->nranks - 1) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
        CHECK_NCCL(ncclGroupStart());
        CHECK_NCCL(wait_for(ranks, comm));
        CHECK_NCCL(ncclAllReduce(&in, &out, 1, ncclFloat32, ncclSum, comm, NULL));
        CHECK_FAILS(ncclGroupEnd());
        pthread_join(thread, NULL);
        atomic_fetch_add(&ranks->shared->words[0], 1);
        return;
    }
    ranks_wait(ranks, 0, (uint64_t)ranks->nranks - 1);
    CHECK_NCCL(ncclCommAbort(comm));
}

static void messages(void **state)
{
    (void)state;
    fault_run(RANKS_PROCESSES, 3, 1u << 2, NULL, killed_message_body);
    fault_run(RANKS_PROCESSES, 3, 0, long_limit, late_message_body);
    fault_run(RANKS_THREADS, 3, 0, long_limit, late_message_body);
    fault_run(RANKS_PROCESSES, 3, 0, NULL, abort_messages_body);
}

static void aborts(void **state)
{
    (void)state;
    fault_run(RANKS_PROCESSES, 2, 0, NULL, abort_body);
    fault_run(RANKS_PROCESSES, 4, 0, NULL, abort_body);
    fault_run(RANKS_THREADS, 3, 0, NULL, abort_body);
    fault_run(RANKS_PROCESSES, 2, 0, NULL, abort_group_body);
    fault_run(RANKS_SOLO, 1, 0, NULL, abort_init_body);
    fault_run(RANKS_SOLO, 1, 0, NULL, abort_waiting_init_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_at_init), cmocka_unit_test(killed), cmocka_unit_test(call_alone),
        cmocka_unit_test(stalled),         cmocka_unit_test(aborts), cmocka_unit_test(messages),
    };
    cpu_limit(100);
    if (getenv("RANKS_PER_NODE") != NULL)
        cmocka_set_skip_filter("messages"); /* there are none between nodes */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
