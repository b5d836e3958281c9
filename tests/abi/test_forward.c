/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_forward.c - the trampolines: they pass every argument, even if many threads make a name's first call at once;
 * and a call to a missing name is an error with one line in the log.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "child.h"
#include "fake_nccl.h"

enum { INVALID_USAGE = 5, THREADS = 16, LOG_BYTES = 32768 };

/* A treated function that the fake lacks. */
int ncclCommShrink(void *comm, int *exclude, int count, void **child, void *config, int flags);
int pncclCommShrink(void *comm, int *exclude, int count, void **child, void *config, int flags);

static char log_text[LOG_BYTES];

static int call_many(int (*function)(FAKE_MANY_PARAMETERS), fake_seen_t *seen)
{
    memset(seen, 0, sizeof *seen);
    return function(seen, 100, -101, INT64_MAX, INT64_MIN, 104, 0.5, -1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5,
                    11.5, 105, 106, -107, 108, 109, 110, 111, (fake_triple_t){1, -2, 3});
}

static int seen_is_right(const fake_seen_t *seen)
{
    static const int64_t integer[] = {100, -101, INT64_MAX, INT64_MIN, 104, 105, 106, -107, 108, 109, 110, 111};
    static const double real[] = {0.5, -1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5};
    return memcmp(seen->integer, integer, sizeof integer) == 0 && memcmp(seen->real, real, sizeof real) == 0 &&
           seen->triple.a == 1 && seen->triple.b == -2 && seen->triple.c == 3 && seen->aligned;
}

static int scenario_arguments(void *unused)
{
    fake_seen_t seen;
    (void)unused;
    child_settings("cuda", ABI_FAKE);
    for (int round = 0; round < 2; round++) { /* the slow path, then the fast one */
        CHILD_CHECK(call_many(ncclDevCommCreate, &seen) == 42);
        CHILD_CHECK(seen_is_right(&seen) && !seen.twin);
        CHILD_CHECK(call_many(pncclDevCommCreate, &seen) == 43);
        CHILD_CHECK(seen_is_right(&seen) && seen.twin);
        fake_triple_t triple = ncclTeamCft(7, 8, 9);
        CHILD_CHECK(triple.a == 9 && triple.b == 8 && triple.c == 7);
        CHILD_CHECK(ncclParamGet(10, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.) == 55.);
    }
    return 0;
}

static void test_arguments(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_arguments, NULL, log_text, sizeof log_text), 0);
    assert_string_equal(log_text, "");
}

/* Every forwarded name of names.def, in the library's scope and in the recorder. */
static const char *const forwarded[] = {
#define SHIM_FORWARD(name) #name, "p" #name,
#define SHIM_FORWARD_ONLY(name) #name,
#include "shim/names/names.def"
};

static int scenario_every_name(void *unused)
{
    (void)unused;
    child_settings("cuda", ABI_RECORDER);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) {
        const char *name = forwarded[i];
        const int twin = name[0] == 'p';
        fake_seen_t seen;
        int (*function)(FAKE_MANY_PARAMETERS) = (int (*)(FAKE_MANY_PARAMETERS))dlsym(RTLD_DEFAULT, name);
        CHILD_CHECK(function != NULL);
        for (int round = 0; round < 2; round++) {
            CHILD_CHECK(call_many(function, &seen) == (int)strlen(name) && seen_is_right(&seen));
            CHILD_CHECK(seen.name != NULL && strcmp(seen.name, name + twin) == 0 && seen.twin == twin);
        }
    }
    return 0;
}

static void every_forwarded_name_reaches_its_own_function(void **state)
{
    (void)state;
    assert_true(sizeof forwarded / sizeof forwarded[0] > 80);
    assert_int_equal(child_run(scenario_every_name, NULL, log_text, sizeof log_text), 0);
    assert_string_equal(log_text, "");
}

static pthread_barrier_t start;

static void *first_callers(void *argument)
{
    fake_seen_t seen;
    uintptr_t wrong = 0;
    int i = (int)(intptr_t)argument;
    pthread_barrier_wait(&start);
    wrong += ncclCommGrow() != INVALID_USAGE; /* first, since all threads return from loading at once */
    wrong += ncclParamGetI8(i) != i + 1;
    wrong += pncclParamGetI8(i) != i + 2;
    wrong += call_many(ncclDevCommCreate, &seen) != 42 || !seen_is_right(&seen);
    wrong += ncclParamGetI16(i) != i + 3;
    wrong += ncclParamGetI32(i) != i + 4;
    return (void *)wrong;
}

static int scenario_threads(void *unused)
{
    pthread_t thread[THREADS];
    (void)unused;
    child_settings("cuda", ABI_FAKE);
    CHILD_CHECK(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (intptr_t i = 0; i < THREADS; i++)
        CHILD_CHECK(pthread_create(&thread[i], NULL, first_callers, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        CHILD_CHECK(pthread_join(thread[i], &wrong) == 0);
        CHILD_CHECK(wrong == NULL);
    }
    return 0;
}

static void test_threads(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        assert_int_equal(child_run(scenario_threads, NULL, log_text, sizeof log_text), 0);
        assert_int_equal(child_count(log_text, "\n"), 1); /* the missing name's line, once for all threads */
    }
}

static int scenario_missing(void *unused)
{
    (void)unused;
    child_settings("cuda", ABI_FAKE);
    for (int round = 0; round < 3; round++) {
        CHILD_CHECK(ncclCommGrow() == INVALID_USAGE);
        CHILD_CHECK(ncclDevCommDestroy() == INVALID_USAGE);
        void *child = NULL;
        CHILD_CHECK(ncclCommShrink((void *)0x1000, NULL, 0, &child, NULL, 0) == INVALID_USAGE);
        CHILD_CHECK(pncclCommShrink((void *)0x1000, NULL, 0, &child, NULL, 0) == INVALID_USAGE);
    }
    return 0;
}

static void test_missing(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_missing, NULL, log_text, sizeof log_text), 0);
    assert_int_equal(child_count(log_text, "ncclCommGrow"), 1);
    assert_int_equal(child_count(log_text, "ncclDevCommDestroy"), 1);
    assert_int_equal(child_count(log_text, "ncclCommShrink"), 1);
    assert_int_equal(child_count(log_text, "\n"), 3);
    assert_int_equal(child_count(log_text, "2.31.99"), 3);
}

static int scenario_cpu(void *unused)
{
    (void)unused;
    child_settings("cpu", NULL);
    for (int round = 0; round < 3; round++) {
        CHILD_CHECK(ncclCommGrow() == INVALID_USAGE);
        CHILD_CHECK(ncclParamGetI8(1) == INVALID_USAGE);
    }
    return 0;
}

static void test_cpu(void **state)
{
    (void)state;
    assert_int_equal(child_run(scenario_cpu, NULL, log_text, sizeof log_text), 0);
    assert_int_equal(child_count(log_text, "ncclCommGrow"), 1);
    assert_int_equal(child_count(log_text, "ncclParamGetI8"), 1);
    assert_int_equal(child_count(log_text, "\n"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments), cmocka_unit_test(every_forwarded_name_reaches_its_own_function),
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_missing),
        cmocka_unit_test(test_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
