/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups' calls in the account: they are counted and traced, a rank that is late is named, and ranks that call
 * different things are reported.
 */
#include "../cpu/cpu.h"
#include "experts.h"

#include <glob.h>
#include <shunt.h>
#include <string.h>

enum { TEXT_BYTES = 1 << 20, SECONDS = 100 };

static char g_folder[64], g_reports[96], g_text[TEXT_BYTES];

/* ---- Files ---- */

static void read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    const size_t size = file ? fread(g_text, 1, TEXT_BYTES - 1, file) : 0;
    g_text[size] = '\0';
    if (file)
        fclose(file);
}

static int count_of(const char *part)
{
    int count = 0;
    for (const char *at = g_text; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

static void contains(const char *part)
{
    if (strstr(g_text, part) == NULL)
        fail_msg("no \"%s\" in: %s", part, g_text);
}

static void wait_for_report(const char *part)
{
    for (int naps = 0; naps < SECONDS * 100; naps++) {
        read_file(g_reports);
        const char *at = strstr(g_text, part);
        if (at != NULL && strchr(at, '\n') != NULL)
            return;
        usleep(10000);
    }
    check_failed(__FILE__, __LINE__, "there is a report", g_text);
}

/* Run ranks with a short limit, and read the reports. */
static void report_run(ranks_shape_t shape, int nranks, ranks_body_t body, const char *error)
{
    const char *const env[] = {
        "SHUNT_HANG_WARN_MS", "1500", "SHUNT_HANG_FILE", g_reports, "SHUNT_MISMATCH_ERROR", error, NULL};
    ranks_plan_t plan = {.shape = shape, .nranks = nranks, .env = env, .body = body};
    unlink(g_reports);
    assert_int_equal(ranks_run(&plan), 0);
    read_file(g_reports);
}

static void end(ncclComm_t comm, shim_experts_group_t *group, experts_round_t *r)
{
    CHECK_NCCL(experts_service()->handle_destroy(r->handle));
    CHECK_NCCL(experts_service()->destroy(group));
    experts_round_free(r);
    CHECK_NCCL(ncclCommDestroy(comm));
}

/* ---- Counts and events ---- */

static void counted_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, true, 4);
    shunt_decision_t last = {.size = sizeof(last)};
    ranks_barrier(ranks);
    if (ranks->rank == 1)
        usleep(2000000); /* late: the watcher looks five times a second, and a busy machine holds it up */
    for (int i = 0; i < 3; i++)
        CHECK_NCCL(experts_dispatch(r));
    CHECK(shunt_last_decision(&last) == 0 && last.taken && strcmp(last.collective, "dispatch") == 0);
    CHECK(strcmp(last.algorithm, "experts") == 0 && last.bytes == r->tokens.sizes[0] * EXPERTS_HIDDEN * sizeof(float));
    CHECK(last.blocks == 1 && last.threads == 1);
    r->combine.send_only = 1;
    CHECK_NCCL(experts_combine(r));
    CHECK_FAILS(experts_combine(r)); /* one is open: refused, so not counted */
    CHECK_NCCL(experts_complete(r));
    CHECK(shunt_last_decision(&last) == 0 && strcmp(last.collective, "combine") == 0);
    end(comm, group, r);
}

static void calls_are_counted_and_traced(void **state)
{
    (void)state;
    char stats[96], trace[96], pattern[96];
    glob_t found;
    snprintf(stats, sizeof(stats), "%s/stats", g_folder);
    snprintf(trace, sizeof(trace), "%s/trace.%%p", g_folder);
    snprintf(pattern, sizeof(pattern), "%s/trace.*", g_folder);
    const char *const env[] = {"SHUNT_STATS", stats, "SHUNT_TRACE", trace, NULL};
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 2, .env = env, .body = counted_body};
    assert_int_equal(ranks_run(&plan), 0);
    read_file(stats);
    assert_int_equal(count_of("collective=dispatch "), 2);
    assert_int_equal(count_of("collective=combine "), 2);
    assert_int_equal(count_of("shunt: taken=4 forwarded=0"), 2);
    contains("calls=3 ");
    contains("algorithm=experts ");
    contains(" ranks=2 late_rank=1 waits=");
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 2);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        read_file(found.gl_pathv[i]);
        assert_int_equal(count_of("\"name\":\"ncclEpDispatch experts\",\"cat\":\"shunt\""), 3);
        assert_int_equal(count_of("\"name\":\"ncclEpCombine experts\",\"cat\":\"shunt\""), 1);
        assert_int_equal(count_of("\"name\":\"ncclEpCombine refused\""), 1);
        assert_int_equal(count_of("\"name\":\"ncclEpComplete\""), 1);
        assert_int_equal(
            count_of("\"captured\":false,\"route\":\"shunt\",\"algorithm\":\"experts\",\"blocks\":1,\"threads\":1,"),
            4);
        contains("\"type\":\"float32\"");
        unlink(found.gl_pathv[i]);
    }
    globfree(&found);
    unlink(stats);
}

/* ---- Who is late ---- */

#define LATE_CALL "\"call\":\"dispatch #3 of "
#define STAGED_CALL "\"call\":\"dispatch #1 of "

static void late_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 4);
    CHECK_NCCL(experts_dispatch(r));
    CHECK_NCCL(experts_combine(r));
    ranks_barrier(ranks); /* none but the last rank is late */
    if (ranks->rank == ranks->nranks - 1)
        wait_for_report(LATE_CALL);
    CHECK_NCCL(experts_dispatch(r));
    ranks_barrier(ranks); /* a rank that has left no longer says that it has reported */
    end(comm, group, r);
}

static void a_rank_that_is_late_is_named(void **state)
{
    (void)state;
    report_run(RANKS_PROCESSES, 3, late_body, "0");
    assert_int_equal(count_of(LATE_CALL), 1);
    contains(" tokens on a communicator of 3 ranks has waited ");
    contains(" s for rank 2 (pid ");
    contains("it has not made this call: its last call was combine #2");
    contains("\"waits_for\":[{\"rank\":2,");
    report_run(RANKS_THREADS, 3, late_body, "0");
    contains("\"waits_for\":[{\"rank\":2,");
}

/* The first rank waits in ncclEpComplete. The second has sent and does something else: it is not to blame. */
static void staged_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, false, 4);
    r->config.send_only = 1;
    ranks_barrier(ranks);
    if (ranks->rank == 2)
        wait_for_report(STAGED_CALL);
    CHECK_NCCL(experts_dispatch(r));
    if (ranks->rank == 1)
        wait_for_report(STAGED_CALL);
    CHECK_NCCL(experts_complete(r));
    experts_check_dispatch(r);
    ranks_barrier(ranks);
    end(comm, group, r);
}

static void a_rank_that_is_late_in_a_staged_call_is_named(void **state)
{
    (void)state;
    report_run(RANKS_PROCESSES, 3, staged_body, "0");
    assert_int_equal(count_of(STAGED_CALL), 1);
    contains(" s for rank 2 (pid ");
    contains("\"waits_for\":[{\"rank\":2,");
    contains("\"cause\":\"not-called\"");
    assert_int_equal(count_of("\"cause\":\"not-begun\""), 0);
}

/* ---- Different calls ---- */

static void different_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    shim_experts_group_t *group = experts_group(comm, ranks->nranks);
    experts_round_t *r = experts_round(group, NULL, ranks->rank, ranks->nranks, true, 4);
    CHECK_NCCL(experts_dispatch(r));
    ranks_barrier(ranks);
    (void)(ranks->rank == 0 ? experts_combine(r) : experts_dispatch(r));
    wait_for_report("call different things");
    for (int naps = 0; naps < SECONDS * 100; naps++) {
        ncclResult_t error = ncclSuccess;
        CHECK_NCCL(ncclCommGetAsyncError(comm, &error));
        if (error == ncclInvalidUsage)
            break;
        CHECK(error == ncclSuccess);
        usleep(10000);
    }
    CHECK_FAILS(experts_dispatch(r));
    ranks_barrier(ranks);
    CHECK_NCCL(experts_service()->handle_destroy(r->handle));
    CHECK_NCCL(experts_service()->destroy(group));
    experts_round_free(r);
    CHECK_NCCL(ncclCommAbort(comm));
}

static void different_calls_end_the_communicator(void **state)
{
    (void)state;
    report_run(RANKS_PROCESSES, 2, different_body, "1");
    contains("rank 0 (pid ");
    contains(" has called combine #2 of ");
    contains(" has called dispatch #2 of ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_counted_and_traced),
        cmocka_unit_test(a_rank_that_is_late_is_named),
        cmocka_unit_test(a_rank_that_is_late_in_a_staged_call_is_named),
        cmocka_unit_test(different_calls_end_the_communicator),
    };
    cpu_limit(60);
    snprintf(g_folder, sizeof(g_folder), "/tmp/shunt-account-XXXXXX");
    if (mkdtemp(g_folder) == NULL)
        return 1;
    snprintf(g_reports, sizeof(g_reports), "%s/reports", g_folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(g_reports);
    rmdir(g_folder);
    return failed;
}
