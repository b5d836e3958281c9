/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statistics_test.c - counts, the last decision, and the table at exit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/account/statistics.h"
#include "tests/abi/child.h"

enum { LOG_BYTES = 16384 };

static sel_choice_t a_choice(void)
{
    return (sel_choice_t){
        .algorithm = alg_registry[0], .blocks = 4, .threads = 256, .reason = SEL_TAKEN, .source = "policy"};
}

static void some_calls(void)
{
    sel_choice_t choice = a_choice();
    shim_count_taken(ALG_ALL_REDUCE, 0, 1024, &choice);
    shim_count_taken(ALG_ALL_REDUCE, 0, 2047, &choice);
    shim_count_forwarded(ALG_ALL_REDUCE, 0, UINT64_MAX, SEL_FORWARD_TABLE, "tuned table");
    shim_count_forwarded(ALG_BROADCAST, 0, 0, SEL_FORWARD_COLLECTIVE, NULL);
}

static int check_counts(void *argument)
{
    (void)argument;
    shunt_decision_t decision = {.size = sizeof(decision)};
    shunt_statistics_t totals = {.size = sizeof(totals)};
    CHILD_CHECK(shunt_last_decision(&decision) == -1);
    some_calls();
    CHILD_CHECK(shunt_stats(&totals) == 0);
    CHILD_CHECK(totals.calls_taken == 2 && totals.bytes_taken == 3071);
    CHILD_CHECK(totals.calls_forwarded == 2 && totals.bytes_forwarded == UINT64_MAX);
    CHILD_CHECK(shunt_last_decision(&decision) == 0);
    CHILD_CHECK(decision.taken == 0 && strcmp(decision.collective, "broadcast") == 0);
    CHILD_CHECK(strcmp(decision.algorithm, "nccl") == 0 && decision.reason[0] != '\0' && decision.blocks == 0);
    CHILD_CHECK(decision.source[0] == '\0');
    sel_choice_t choice = a_choice();
    shim_count_taken(ALG_ALL_REDUCE, 0, 8, &choice);
    CHILD_CHECK(shunt_last_decision(&decision) == 0);
    CHILD_CHECK(decision.taken == 1 && decision.bytes == 8 && decision.blocks == 4 && decision.threads == 256);
    CHILD_CHECK(strcmp(decision.source, "policy") == 0);
    CHILD_CHECK(strcmp(decision.algorithm, alg_registry[0]->name) == 0);
    return 0;
}

static void counts_and_decisions(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(check_counts, NULL, log, sizeof(log)), 0);
}

static void *calls_of_a_thread(void *unused)
{
    some_calls();
    return unused;
}

/* Counts are right with more threads than tables. */
static int check_threads(void *argument)
{
    (void)argument;
    enum { THREADS = 40 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHILD_CHECK(pthread_create(&threads[i], NULL, calls_of_a_thread, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shunt_statistics_t totals = {.size = sizeof(totals)};
    CHILD_CHECK(shunt_stats(&totals) == 0);
    CHILD_CHECK(totals.calls_taken == 2 * THREADS && totals.bytes_taken == 3071 * THREADS);
    CHILD_CHECK(totals.calls_forwarded == 2 * THREADS);
    return 0;
}

static void counts_of_many_threads(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(check_threads, NULL, log, sizeof(log)), 0);
}

/* Fills a table, and keeps it until the other one has counted. */
static void *calls_of_many_kinds(void *barrier)
{
    for (uint32_t place = 1; place <= 3000; place++)
        shim_count_forwarded(ALG_ALL_REDUCE, place, 1024, SEL_FORWARD_TABLE, NULL);
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

static void *a_send(void *barrier)
{
    pthread_barrier_wait(barrier);
    shim_count_forwarded(SHIM_SEND, 0, 4, SEL_FORWARD_COLLECTIVE, NULL);
    pthread_barrier_wait(barrier);
    return NULL;
}

/* However many threads have ended, new ones do not share a table: each count is present though some tables are full. */
static int check_threads_that_go(void *argument)
{
    (void)argument;
    enum { THREADS = 100 };
    pthread_t thread[2];
    pthread_barrier_t barrier;
    some_calls();
    for (int i = 0; i < THREADS; i++) {
        CHILD_CHECK(pthread_create(&thread[0], NULL, calls_of_a_thread, NULL) == 0);
        pthread_join(thread[0], NULL);
    }
    pthread_barrier_init(&barrier, NULL, 2);
    CHILD_CHECK(pthread_create(&thread[0], NULL, calls_of_many_kinds, &barrier) == 0);
    CHILD_CHECK(pthread_create(&thread[1], NULL, a_send, &barrier) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    shim_count_forwarded(SHIM_RECV, 0, 4, SEL_FORWARD_COLLECTIVE, NULL);
    shunt_statistics_t totals = {.size = sizeof(totals)};
    CHILD_CHECK(shunt_stats(&totals) == 0);
    CHILD_CHECK(totals.calls_taken == 2 * (THREADS + 1) && totals.bytes_taken == 3071 * (THREADS + 1));
    CHILD_CHECK(totals.calls_forwarded == 2 * (THREADS + 1) + 3000 + 2);
    char *text = shim_statistics_text();
    fputs(text, stderr);
    free(text);
    return 0;
}

static void assert_separate_lines(const char *log)
{
    assert_int_equal(child_count(log, "shunt: collective=send "), 1);
    assert_int_equal(child_count(log, "shunt: collective=recv "), 1);
    assert_non_null(strstr(log, "beyond the limit of separate lines\n"));
}

static void threads_that_end_leave_their_tables(void **state)
{
    (void)state;
    static char log[1 << 20];
    assert_int_equal(child_run(check_threads_that_go, NULL, log, sizeof(log)), 0);
    assert_separate_lines(log);
}

static pthread_key_t late_key;

/* Calls in another library's destructor, after that of the statistics, count even if another thread has got the
 * table. */
static void late_calls(void *unused)
{
    pthread_t thread;
    pthread_barrier_t barrier;
    (void)unused;
    pthread_barrier_init(&barrier, NULL, 2);
    if (pthread_create(&thread, NULL, calls_of_many_kinds, &barrier) != 0)
        return;
    pthread_barrier_wait(&barrier);
    shim_count_forwarded(SHIM_RECV, 0, 4, SEL_FORWARD_COLLECTIVE, NULL);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

static void *calls_until_the_end(void *unused)
{
    some_calls();
    pthread_setspecific(late_key, &late_key);
    return unused;
}

static int check_late_calls(void *argument)
{
    (void)argument;
    pthread_t thread;
    some_calls();
    CHILD_CHECK(pthread_key_create(&late_key, late_calls) == 0);
    CHILD_CHECK(pthread_create(&thread, NULL, calls_until_the_end, NULL) == 0);
    pthread_join(thread, NULL);
    char *text = shim_statistics_text();
    fputs(text, stderr);
    free(text);
    return 0;
}

static void calls_of_a_thread_that_has_ended(void **state)
{
    (void)state;
    static char log[1 << 20];
    assert_int_equal(child_run(check_late_calls, NULL, log, sizeof(log)), 0);
    assert_int_equal(child_count(log, "shunt: collective=recv "), 1);
    assert_non_null(strstr(log, "bytes_each=4-8       calls=1       bytes=4            algorithm=nccl "));
}

/* In a forked child the only thread keeps its table, and all other tables are free, even those of the parent's living
 * threads. (The thread sanitizer does not support threads in such a child.) */
static int check_threads_of_a_child(void *argument)
{
#ifdef __SANITIZE_THREAD__
    enum { THREADS = 0 };
#else
    enum { THREADS = 20 };
#endif
    pthread_t thread[THREADS + 1];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    some_calls();
    for (int i = 0; i < THREADS; i++)
        CHILD_CHECK(pthread_create(&thread[i], NULL, calls_of_many_kinds, &barrier) == 0);
    pthread_barrier_wait(&barrier);
    const pid_t child = fork();
    if (child == 0)
        _exit(check_threads_that_go(argument));
    int status = 0;
    const pid_t ended = waitpid(child, &status, 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    CHILD_CHECK(ended == child && status == 0);
    return 0;
}

static void tables_of_a_child(void **state)
{
    (void)state;
    static char log[1 << 20];
    assert_int_equal(child_run(check_threads_of_a_child, NULL, log, sizeof(log)), 0);
    assert_separate_lines(log);
}

/* A program built with a smaller structure gets only its fields. */
static int check_sizes(void *argument)
{
    (void)argument;
    some_calls();
    shunt_statistics_t totals;
    memset(&totals, 0xee, sizeof(totals));
    totals.size = offsetof(shunt_statistics_t, calls_forwarded);
    CHILD_CHECK(shunt_stats(&totals) == 0);
    CHILD_CHECK(totals.size == offsetof(shunt_statistics_t, calls_forwarded) && totals.calls_taken == 2);
    CHILD_CHECK(totals.calls_forwarded == 0xeeeeeeeeeeeeeeee);
    totals.size = 0;
    CHILD_CHECK(shunt_stats(&totals) == -1 && shunt_stats(NULL) == -1 && shunt_last_decision(NULL) == -1);
    return 0;
}

static void structures_of_another_size(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(check_sizes, NULL, log, sizeof(log)), 0);
}

/* `argument`: an assignment, or NULL. */
static int check_text(void *argument)
{
    if (argument != NULL)
        putenv(argument);
    CHILD_CHECK(shim_statistics_text() == NULL);
    some_calls();
    char *text = shim_statistics_text();
    fputs(text, stderr);
    free(text);
    return 0;
}

static void the_table(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(check_text, NULL, log, sizeof(log)), 0);
    assert_int_equal(child_count(log, "shunt: collective=allreduce "), 2);
    assert_non_null(strstr(log, "bytes_each=1K-2K     calls=2       bytes=3071 "));
    assert_non_null(strstr(log, "bytes_each=4T-       calls=1 "));
    assert_int_equal(child_count(log, "shunt: collective=broadcast "), 1);
    assert_non_null(strstr(log, "\nshunt: taken=2 forwarded=2\n"));
}

static void pins(void **state)
{
    (void)state;
    static const struct {
        char set[40];
        const char *pin;
    } cases[] = {{"NCCL_ALGO=allreduce:tree", "NCCL_ALGO"},
                 {"NCCL_PROTO=Simple", "NCCL_PROTO"},
                 {"NCCL_LAUNCH_MODE=GROUP", "NCCL_LAUNCH_MODE"},
                 {"NCCL_MAX_NCHANNELS=1", "NCCL_MAX_NCHANNELS"},
                 {"NCCL_MAX_CTAS=2", "NCCL_MAX_CTAS"},
                 {"SHUNT_MAX_CTAS=2", NULL},
                 {"NCCL_LAUNCH_MODE=PARALLEL", NULL}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char log[LOG_BYTES], line[64];
        assert_int_equal(child_run(check_text, (void *)cases[i].set, log, sizeof(log)), 0);
        snprintf(line, sizeof(line), " forwarded=2 pinned=%s\n", cases[i].pin);
        assert_int_equal(child_count(log, "pinned="), cases[i].pin != NULL);
        assert_true(cases[i].pin == NULL || strstr(log, line) != NULL);
    }
}

/* Calls that differ in place, capture, size or algorithm have separate rows. */
static int check_places(void *argument)
{
    (void)argument;
    const sel_topology_t four = {.link = SEL_LINK_NVSWITCH, .nranks = 4, .arch = 90, .fingerprint = 0xabcd};
    const sel_topology_t two = {
        .link = SEL_LINK_PCIE, .nranks = 2, .arch = 120, .multicast = true, .fingerprint = 0xabcd};
    sel_choice_t choice = a_choice();
    for (int i = 0; i < 3; i++)
        shim_count_taken(ALG_ALL_REDUCE, shim_place(&four, ALG_BFLOAT16, false), 65536, &choice);
    shim_count_taken(ALG_ALL_REDUCE, shim_place(&four, ALG_BFLOAT16, true), 65536, &choice);
    shim_count_taken(ALG_ALL_REDUCE, shim_place(&four, ALG_INT32, false), 65536, &choice);
    shim_count_forwarded(ALG_ALL_REDUCE, shim_place(&two, (alg_type_t)99, false), 65536, SEL_FORWARD_TABLE, NULL);
    sel_topology_t pinned = four;
    pinned.memory = ALG_MEMORY_PINNED;
    shim_count_taken(ALG_ALL_REDUCE, shim_place(&pinned, ALG_BFLOAT16, false), 65536, &choice);
    char *text = shim_statistics_text();
    fputs(text, stderr);
    free(text);
    return 0;
}

static void places(void **state)
{
    (void)state;
    char log[LOG_BYTES], row[200];
    assert_int_equal(child_run(check_places, NULL, log, sizeof(log)), 0);
    assert_non_null(strstr(log, " machine=000000000000abcd\n"));
    snprintf(
        row, sizeof(row),
        "collective=allreduce     class=nvswitch-sm90-4 type=f2 bytes_each=64K-128K  calls=3       bytes=196608       "
        "algorithm=%-9s how=eager ",
        alg_registry[0]->name);
    assert_non_null(strstr(log, row));
    snprintf(row, sizeof(row),
             "type=f2 bytes_each=64K-128K  calls=1       bytes=65536        algorithm=%-9s how=captured ",
             alg_registry[0]->name);
    assert_non_null(strstr(log, row));
    assert_non_null(strstr(log, "class=nvswitch-sm90-4 type=i4 "));
    assert_non_null(strstr(
        log, "class=pcie-sm120-2-mc type=-  bytes_each=64K-128K  calls=1       bytes=65536        algorithm=nccl  "
             "    how=-        reason=TABLE outcome=forwarded: the table has no faster"));
    assert_non_null(strstr(log, "class=shm-sm90-4      type=f2 bytes_each=64K-128K  calls=1       bytes=65536 "));
    assert_int_equal(child_count(log, "shunt: collective=allreduce "), 5);
}

/* With more kinds of calls than cells, the sums are still right. */
static int check_many_kinds(void *argument)
{
    (void)argument;
    sel_choice_t choice = a_choice();
    for (uint32_t place = 1; place <= 3000; place++) {
        shim_count_taken(ALG_ALL_REDUCE, place, 1024, &choice);
        shim_count_forwarded(ALG_ALL_REDUCE, place, 1024, SEL_FORWARD_TABLE, NULL);
    }
    shunt_statistics_t totals = {.size = sizeof(totals)};
    CHILD_CHECK(shunt_stats(&totals) == 0);
    CHILD_CHECK(totals.calls_taken == 3000 && totals.bytes_taken == 3000 * 1024);
    CHILD_CHECK(totals.calls_forwarded == 3000);
    char *text = shim_statistics_text();
    CHILD_CHECK(strstr(text, "beyond the limit of separate lines\n") != NULL);
    free(text);
    return 0;
}

static void more_kinds_than_cells(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(check_many_kinds, NULL, log, sizeof(log)), 0);
}

static void exit_with(const char *stats, void (*calls)(void))
{
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    if (stats != NULL)
        setenv("SHUNT_STATS", stats, 1);
    if (calls != NULL)
        calls();
    exit(0);
}

static int exit_after_calls(void *argument)
{
    exit_with(argument, some_calls);
    return 1;
}

/* Statistics are printed on quick_exit, which the ranks of `shunt bench` use to skip CUDA's exit handler. */
static int quick_exit_after_calls(void *argument)
{
    setenv("SHUNT_STATS", argument, 1);
    some_calls();
    quick_exit(0);
}

static int exit_without_calls(void *argument)
{
    exit_with(argument, NULL);
    return 1;
}

static void printed_at_exit(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(exit_after_calls, "1", log, sizeof(log)), 0);
    assert_non_null(strstr(log, "\nshunt: taken=2 forwarded=2\n"));
    assert_int_equal(child_run(quick_exit_after_calls, "1", log, sizeof(log)), 0);
    assert_non_null(strstr(log, "\nshunt: taken=2 forwarded=2\n"));
    assert_int_equal(child_run(exit_after_calls, "0", log, sizeof(log)), 0);
    assert_string_equal(log, "");
    assert_int_equal(child_run(exit_after_calls, NULL, log, sizeof(log)), 0);
    assert_string_equal(log, "");
    assert_int_equal(child_run(exit_without_calls, "1", log, sizeof(log)), 0);
    assert_string_equal(log, "");
}

static void a_file_that_cannot_be_written(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(exit_after_calls, "/nonexistent/stats", log, sizeof(log)), 0);
    assert_non_null(strstr(log, "SHUNT_STATS=/nonexistent/stats cannot be written"));
    assert_non_null(strstr(log, "shunt: taken=2 "));
}

/* A forked child without calls prints nothing; one with calls prints its own. */
static void fork_after_calls(void)
{
    some_calls();
    for (int calls = 0; calls < 2; calls++) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < calls; i++)
                shim_count_forwarded(SHIM_SEND, 0, 4, SEL_FORWARD_COLLECTIVE, NULL);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

static int exit_after_forks(void *argument)
{
    exit_with(argument, fork_after_calls);
    return 1;
}

static void forked_children(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(exit_after_forks, "1", log, sizeof(log)), 0);
    assert_int_equal(child_count(log, "shunt: taken="), 2);
    assert_int_equal(child_count(log, "shunt: taken=0 forwarded=1\n"), 1);
    assert_int_equal(child_count(log, "shunt: taken=2 forwarded=2\n"), 1);
    assert_int_equal(child_count(log, "shunt: collective=send "), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_decisions),
        cmocka_unit_test(counts_of_many_threads),
        cmocka_unit_test(threads_that_end_leave_their_tables),
        cmocka_unit_test(calls_of_a_thread_that_has_ended),
        cmocka_unit_test(tables_of_a_child),
        cmocka_unit_test(structures_of_another_size),
        cmocka_unit_test(the_table),
        cmocka_unit_test(pins),
        cmocka_unit_test(places),
        cmocka_unit_test(more_kinds_than_cells),
        cmocka_unit_test(printed_at_exit),
        cmocka_unit_test(forked_children),
        cmocka_unit_test(a_file_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
