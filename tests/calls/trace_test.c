/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_test.c - SHUNT_TRACE: the events of a file, that the file is complete at
 * any time, and forks, floods and full disks.
 *
 * tests/tools checks that a file is JSON as Perfetto expects it. Here an event is a line, and a complete file ends with
 * one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/account/trace.h"
#include "tests/abi/child.h"
#include "tests/support/clock_back.h"
#include "tests/support/skips.h"

enum { LOG_BYTES = 16384, PATH_BYTES = 512, FLOOD = 100000 };

static char folder[] = "/tmp/shunt-trace-XXXXXX";

static void set_trace(const char *name)
{
    char path[PATH_BYTES];
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    setenv("SHUNT_TRACE", path, 1);
}

static void some_calls(int count)
{
    for (int i = 0; i < count; i++) {
        shim_trace_call_t call = {.start_ns = shim_trace_begin(),
                                  .function = "ncclAllReduce",
                                  .comm = (void *)0xabc0,
                                  .count = 512,
                                  .type = 9,
                                  .rank = 1,
                                  .nranks = 4,
                                  .decision = {.taken = 1,
                                               .algorithm = "oneshot",
                                               .reason = "why",
                                               .source = "whose",
                                               .bytes = 1024,
                                               .blocks = 4,
                                               .threads = 256}};
        if (call.start_ns != 0)
            shim_trace_end(&call);
    }
}

/* The contents of a file. */
typedef struct summary {
    int files;         /* 0 or 1 */
    int calls, begins; /* events */
    long dropped;
    bool whole;
} summary_t;

static summary_t summary_of(const char *path)
{
    summary_t summary = {0};
    char line[2048], last[2048] = "";
    FILE *file = fopen(path, "r");
    for (int first = 1; file != NULL && fgets(line, sizeof(line), file) != NULL; first = 0) {
        summary.files = 1;
        summary.calls += strstr(line, "\"name\":\"ncclAllReduce oneshot\"") != NULL;
        summary.begins += strstr(line, "\"name\":\"begin\"") != NULL;
        const char *dropped = strstr(line, "\"name\":\"dropped\"");
        if (dropped != NULL)
            summary.dropped += atol(strstr(dropped, "\"calls\":") + strlen("\"calls\":"));
        if (first)
            assert_memory_equal(line, "[{\"", 3);
        strcpy(last, line);
    }
    if (file != NULL)
        fclose(file);
    summary.whole = strcmp(last, "]\n") == 0;
    return summary;
}

/* Wait until the writer, a separate thread, has written the calls. A "%p" ends the file's name. */
static void wait_until_written(int calls)
{
    const char *pattern = getenv("SHUNT_TRACE"), *process = strstr(pattern, "%p");
    char path[PATH_BYTES];
    if (process != NULL)
        snprintf(path, sizeof(path), "%.*s%d", (int)(process - pattern), pattern, getpid());
    for (int round = 0; round < 2000 && summary_of(process != NULL ? path : pattern).calls < calls; round++)
        usleep(10000);
}

/* Of a file in the folder, whose name may end with "*" for the process id; removes it. */
static summary_t take(const char *name)
{
    size_t length = strcspn(name, "*");
    char path[PATH_BYTES] = "";
    DIR *entries = opendir(folder);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strncmp(entry->d_name, name, length) == 0 && (name[length] == '*' || entry->d_name[length] == '\0'))
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
    }
    closedir(entries);
    summary_t summary = summary_of(path);
    unlink(path);
    return summary;
}

static void assert_calls(summary_t summary, int calls)
{
    assert_int_equal(summary.files, 1);
    assert_int_equal(summary.calls, calls);
    assert_int_equal(summary.begins, 1);
    assert_int_equal(summary.dropped, 0);
    assert_true(summary.whole);
}

static void assert_nothing_left(void)
{
    assert_int_equal(rmdir(folder), 0); /* it was empty */
    assert_non_null(strcpy(folder, "/tmp/shunt-trace-XXXXXX"));
    assert_non_null(mkdtemp(folder));
}

static void run(int (*scenario)(void *argument), const char *expected_log)
{
    char log[LOG_BYTES];
    assert_int_equal(child_run(scenario, NULL, log, sizeof(log)), 0);
    if (expected_log[0] == '\0')
        assert_string_equal(log, "");
    else if (child_count(log, "\n") != 1 || strstr(log, expected_log) == NULL)
        fail_msg("not one line with \"%s\": %s", expected_log, log);
}

static int exit_after_calls(void *argument)
{
    (void)argument;
    set_trace("one");
    some_calls(100);
    exit(0);
}

static void written_at_exit(void **state)
{
    (void)state;
    run(exit_after_calls, "");
    assert_calls(take("one"), 100);
    run(exit_after_calls, ""); /* the same name again: replaced */
    assert_calls(take("one"), 100);
    assert_nothing_left();
}

static int exit_without_trace(void *argument)
{
    (void)argument;
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    CHILD_CHECK(shim_trace_begin() == 0);
    CHILD_CHECK(atomic_load(&shim_trace_off));
    some_calls(10);
    exit(0);
}

static void off(void **state)
{
    (void)state;
    run(exit_without_trace, "");
    assert_nothing_left();
}

static void *calls_of_a_thread(void *unused)
{
    some_calls(50);
    return unused;
}

/* Events of more threads than there are rings, in sequence and at once, are written. */
static int exit_after_threads(void *argument)
{
    (void)argument;
    enum { AT_ONCE = 4, ROUNDS = 20 };
    set_trace("threads");
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            CHILD_CHECK(pthread_create(&threads[i], NULL, calls_of_a_thread, NULL) == 0);
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(threads[i], NULL);
    }
    exit(0);
}

static void threads(void **state)
{
    (void)state;
    run(exit_after_threads, "");
    assert_calls(take("threads"), 50 * 4 * 20);
    assert_nothing_left();
}

/* Forked children with and without calls, and the parent before and after, write their own events. */
static int exit_after_forks(void *argument)
{
    set_trace(argument);
    some_calls(4);
    /* As it starts, the writer may hold the lock of a sanitizer's allocator, which stays locked in a child. */
    wait_until_written(4);
    for (int calls = 0; calls <= 7; calls += 7) {
        some_calls(3); /* not yet written, as a rule */
        pid_t child = fork();
        if (child == 0) {
            some_calls(calls);
            exit(0);
        }
        waitpid(child, NULL, 0);
    }
    some_calls(10);
    exit(0);
}

static int exit_after_forks_of_one_name(void *argument)
{
    (void)argument;
    return exit_after_forks("fork");
}

static int exit_after_forks_of_two_names(void *argument)
{
    (void)argument;
    return exit_after_forks("fork.%p");
}

static void forks(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip_because("a thread sanitizer does not let a forked child start a thread");
#endif
    run(exit_after_forks_of_one_name, "");
    assert_calls(take("fork"), 20);
    assert_calls(take("fork.*"), 7);
    assert_nothing_left();
    run(exit_after_forks_of_two_names, "");
    summary_t a = take("fork.*"), b = take("fork.*");
    assert_calls(a, a.calls == 7 ? 7 : 20);
    assert_calls(b, a.calls == 7 ? 20 : 7);
    assert_nothing_left();
}

static int killed(void *argument)
{
    (void)argument;
    set_trace("killed");
    pid_t child = fork();
    if (child == 0) {
        some_calls(30);
        wait_until_written(30);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    return 0;
}

static void whole_after_a_kill(void **state)
{
    (void)state;
    run(killed, "");
    assert_calls(take("killed"), 30);
    assert_nothing_left();
}

static int written_as_the_clock_goes_back(void *argument)
{
    (void)argument;
    set_trace("back");
    atomic_store(&clock_goes_back, true);
    some_calls(30);
    wait_until_written(30);
    _exit(0);
}

static void written_whatever_the_time_of_day(void **state)
{
    (void)state;
    run(written_as_the_clock_goes_back, "");
    assert_calls(take("back"), 30);
    assert_nothing_left();
}

static int end_after_flush(void *argument)
{
    (void)argument;
    set_trace("flush");
    some_calls(10);
    shim_trace_flush(); /* as at the end of a communicator */
    _exit(0);
}

static void written_before_the_exit(void **state)
{
    (void)state;
    run(end_after_flush, "");
    assert_calls(take("flush"), 10);
    assert_nothing_left();
}

static int exit_after_flood(void *argument)
{
    (void)argument;
    set_trace("flood");
    some_calls(FLOOD);
    exit(0);
}

/* In a flood every call is either an event or counted in the report of dropped ones. */
static void a_flood(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(exit_after_flood, NULL, log, sizeof(log)), 0);
    summary_t summary = take("flood");
    assert_true(summary.whole);
    assert_int_equal(summary.calls + summary.dropped, FLOOD);
    assert_true(summary.calls >= 8192);
    assert_int_equal(child_count(log, "calls or kernels, for which it had no room"), summary.dropped > 0);
    assert_nothing_left();
}

static int exit_unwritable(void *argument)
{
    (void)argument;
    set_trace("no/such/folder");
    some_calls(10);
    exit(0);
}

static void a_file_that_cannot_be_written(void **state)
{
    (void)state;
    run(exit_unwritable, "cannot be written (No such file or directory); there is no trace");
    assert_nothing_left();
}

static int exit_on_a_full_disk(void *argument)
{
    (void)argument;
    const struct rlimit limit = {20000, 20000};
    set_trace("full");
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    some_calls(20); /* these fit */
    wait_until_written(20);
    some_calls(1000);
    while (!atomic_load(&shim_trace_off))
        usleep(1000);
    usleep(50000); /* the writer ends */
    const time_t start = time(NULL);
    for (int i = 0; i < 50; i++)
        shim_trace_flush(); /* waits for no writer: 50 waits are 10 s */
    CHILD_CHECK(time(NULL) - start < 8);
    exit(0);
}

static void a_full_disk(void **state)
{
    (void)state;
    run(exit_on_a_full_disk, "full cannot be written (");
    assert_calls(take("full"), 20);
    assert_nothing_left();
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_at_exit),
        cmocka_unit_test(off),
        cmocka_unit_test(threads),
        cmocka_unit_test(forks),
        cmocka_unit_test(whole_after_a_kill),
        cmocka_unit_test(written_whatever_the_time_of_day),
        cmocka_unit_test(written_before_the_exit),
        cmocka_unit_test(a_flood),
        cmocka_unit_test(a_file_that_cannot_be_written),
        cmocka_unit_test(a_full_disk),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
