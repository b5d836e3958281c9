/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends: destroys in any order, ranks that die or abort while others wait, time-outs, and memory after a thousand
 * groups.
 */
#include "../cpu/cpu.h"
#include "experts.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

static const char *const call_limit[] = {"SHUNT_TIMEOUT_MS", "15000", NULL};

/* ---- Orders ---- */

static void orders_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    for (int order = 0; order < 3; order++) {
        ncclComm_t comm = ranks_init(ranks);
        shim_experts_group_t *group = experts_group(comm, ranks->nranks);
        experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 6);
        CHECK_NCCL(experts_dispatch(r));
        CHECK_NCCL(experts_combine(r));
        experts_check_combine(r);
        ranks_barrier(ranks);
        if (order == 0) { /* the communicator first */
            CHECK_NCCL(ncclCommDestroy(comm));
            CHECK_RESULT(experts_dispatch(r), ncclInvalidUsage);
            CHECK_NCCL(service->handle_destroy(r->handle));
            CHECK_NCCL(service->destroy(group));
        } else if (order == 1) { /* the group before its handle */
            CHECK_NCCL(service->destroy(group));
            CHECK_RESULT(experts_dispatch(r), ncclInvalidUsage);
            CHECK_NCCL(ncclCommDestroy(comm));
            CHECK_NCCL(service->handle_destroy(r->handle));
        } else { /* with an open call */
            r->config.send_only = 1;
            CHECK_NCCL(experts_dispatch(r));
            ranks_barrier(ranks);
            CHECK_NCCL(service->handle_destroy(r->handle));
            CHECK_NCCL(service->destroy(group));
            CHECK_NCCL(ncclCommDestroy(comm));
        }
        experts_round_free(r);
    }
    CHECK_RESULT(service->destroy(NULL), ncclInvalidArgument);
}

static void any_order_of_destroys_is_safe(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, orders_body, NULL);
    cpu_run(RANKS_PROCESSES, 3, orders_body, NULL);
}

/* ---- Faults ---- */

/* The call, and every later one, fails with an error of this group. */
static void expect_broken(experts_round_t *r, ncclComm_t comm, shim_experts_group_t *group)
{
    CHECK_FAILS(experts_dispatch(r));
    CHECK(strlen(ncclGetLastError(NULL)) > 0);
    CHECK_FAILS(experts_dispatch(r));
    CHECK_FAILS(experts_combine(r));
    CHECK_NCCL(experts_service()->handle_destroy(r->handle));
    CHECK_NCCL(experts_service()->destroy(group));
    CHECK_NCCL(ncclCommAbort(comm));
    experts_round_free(r);
}

static void dies_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_run(group, ranks->rank, ranks->nranks, true, 5);
    ranks_barrier(ranks);
    if (ranks->rank == 1)
        raise(SIGKILL);
    experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 4);
    expect_broken(r, comm, group);
}

static void a_dead_rank_ends_a_call(void **state)
{
    (void)state;
    for (int nranks = 2; nranks <= 4; nranks += 2) {
        ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = nranks, .killed = 1u << 1, .body = dies_body};
        assert_int_equal(ranks_run(&plan), 0);
    }
}

static void *kill_soon(void *after_us)
{
    usleep(*(const useconds_t *)after_us);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Groups and calls without end, until one rank is killed in the middle of anything. */
static void killed_body(ranks_t *ranks)
{
    const shim_experts_service_t *service = experts_service();
    const ncclEpGroupConfig_t config = experts_config(ranks->nranks);
    ncclComm_t comm = ranks_init(ranks);
    pthread_t killer;
    bool going = true;
    ranks_barrier(ranks);
    if (ranks->rank == 1)
        CHECK(pthread_create(&killer, NULL, kill_soon, (void *)ranks->arg) == 0);
    for (uint64_t seed = 0; going; seed++) {
        shim_experts_group_t *group = NULL;
        const char *why = NULL;
        CHECK_NCCL(service->create(comm, &config, &group, &why));
        going = group != NULL;
        for (uint64_t i = 0; going && i < 20; i++) {
            experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, i % 2, seed + i);
            going = experts_dispatch(r) == ncclSuccess && experts_combine(r) == ncclSuccess;
            CHECK_NCCL(service->handle_destroy(r->handle));
            experts_round_free(r);
        }
        if (group != NULL)
            CHECK_NCCL(service->destroy(group));
    }
    CHECK_NCCL(ncclCommAbort(comm));
}

static void a_rank_killed_at_any_time_hangs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < scaled(12); i++) {
        const useconds_t after_us = 3000 + 7001 * (useconds_t)i;
        ranks_plan_t plan = {
            .shape = RANKS_PROCESSES, .nranks = 3, .killed = 1u << 1, .body = killed_body, .arg = &after_us};
        assert_int_equal(ranks_run(&plan), 0);
    }
}

static void alone_body(ranks_t *ranks)
{
    const uint64_t *own_ns = ranks->arg;
    ncclComm_t comm = ranks_init(ranks);
    ncclEpGroupConfig_t config = experts_config(ranks->nranks);
    shim_experts_group_t *group = NULL;
    const char *why = NULL;
    config.timeout_ns = *own_ns;
    CHECK_NCCL(experts_service()->create(comm, &config, &group, &why));
    CHECK(group != NULL);
    if (ranks->rank == 0) {
        experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 4);
        CHECK_RESULT(experts_dispatch(r), ncclRemoteError);
        expect_broken(r, comm, group);
        ranks_barrier(ranks);
    } else { /* alive, but elsewhere */
        ranks_barrier(ranks);
        CHECK_NCCL(experts_service()->destroy(group));
        CHECK_NCCL(ncclCommAbort(comm));
    }
}

static void a_call_alone_times_out(void **state)
{
    (void)state;
    static const uint64_t none = 0, short_ns = 300000000;
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = call_limit, .body = alone_body, .arg = &none};
    assert_int_equal(ranks_run(&plan), 0);
    cpu_run(RANKS_THREADS, 2, alone_body, &short_ns); /* the group's own limit, below the library's */
}

static void *abort_soon(void *comm)
{
    usleep(100000);
    CHECK_NCCL(ncclCommAbort(comm));
    return NULL;
}

static void abort_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_run(group, ranks->rank, ranks->nranks, false, 2);
    if (ranks->rank == 0) {
        experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 4);
        pthread_t aborter;
        CHECK(pthread_create(&aborter, NULL, abort_soon, comm) == 0);
        CHECK_FAILS(experts_dispatch(r));
        CHECK(pthread_join(aborter, NULL) == 0);
        CHECK_FAILS(experts_dispatch(r));
        CHECK_NCCL(experts_service()->handle_destroy(r->handle));
        CHECK_NCCL(experts_service()->destroy(group));
        experts_round_free(r);
        ranks_barrier(ranks);
    } else {
        ranks_barrier(ranks);
        CHECK_NCCL(experts_service()->destroy(group));
        CHECK_NCCL(ncclCommAbort(comm));
    }
}

static void an_abort_ends_a_waiting_call(void **state)
{
    (void)state;
    cpu_run(RANKS_THREADS, 2, abort_body, NULL);
    cpu_run(RANKS_PROCESSES, 2, abort_body, NULL);
}

/* ---- A thousand groups ---- */

static long pages(void)
{
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &total, &resident) == 2);
    fclose(file);
    return total;
}

static void thousand_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    const int times = scaled(1000);
    long before = 0;
    for (int i = 0; i < times; i++) {
        shim_experts_group_t *group = experts_group(comm, ranks->nranks);
        if (i % 50 == 0)
            experts_run(group, ranks->rank, ranks->nranks, false, (uint64_t)i);
        CHECK_NCCL(experts_service()->destroy(group));
        if (i == times / 4)
            before = pages();
    }
    CHECK(pages() - before < 4096); /* 16 MiB: less than twenty groups' memory */
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_thousand_groups_leave_nothing(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, thousand_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_destroys_is_safe),          cmocka_unit_test(a_dead_rank_ends_a_call),
        cmocka_unit_test(a_rank_killed_at_any_time_hangs_nobody), cmocka_unit_test(a_call_alone_times_out),
        cmocka_unit_test(an_abort_ends_a_waiting_call),           cmocka_unit_test(a_thousand_groups_leave_nothing),
    };
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
