/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_signatures.c - every treated function, called by its signature on a communicator that Shunt does not know: the
 * real NCCL gets the call once, with every argument unchanged, and its result is returned.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "child.h"
#include "signatures.h"

enum { AREA_BYTES = 4096, LOG_BYTES = 32768 };

/* Where pointers point: zeros, which may be read. */
static uint64_t area[RECORD_WORDS][AREA_BYTES / sizeof(uint64_t)];
static char log_text[LOG_BYTES];

static id128_t some_id(void)
{
    id128_t id;
    for (uint64_t i = 0; i < 16; i++)
        id.word[i] = UINT64_C(0x0123456789abcdef) * (i + 1);
    return id;
}

/* Of argument n. No two are equal. */
#define VALUE_P(n) ((void *)area[n])
#define VALUE_Z(n) (UINT64_C(0x1000000000) + n)
#define VALUE_I(n) (0x100 + n)
#define VALUE_D(n) some_id()

/* As recorder.c notes a call. */
#define VALUE(A, number) VALUE_##A(number)
#define WANTED(A, number) WORD_##A(VALUE_##A(number))

typedef struct call {
    const char *name;
    int (*make)(void), (*make_twin)(void);
    uint64_t (*wanted)(int at);
} call_t;

#define SIGNATURE(n, name, ...)                                                          \
    int name(EACH_##n(PARAMETER, ##__VA_ARGS__));                                        \
    int p##name(EACH_##n(PARAMETER, ##__VA_ARGS__));                                     \
    static int make_##name(void)                                                         \
    {                                                                                    \
        return name(EACH_##n(VALUE, ##__VA_ARGS__));                                     \
    }                                                                                    \
    static int make_p##name(void)                                                        \
    {                                                                                    \
        return p##name(EACH_##n(VALUE, ##__VA_ARGS__));                                  \
    }                                                                                    \
    static uint64_t wanted_##name(int at)                                                \
    {                                                                                    \
        return ((const uint64_t[RECORD_WORDS]){n, EACH_##n(WANTED, ##__VA_ARGS__)})[at]; \
    }
#include "signatures.def"
#undef SIGNATURE

static const call_t calls[] = {
#define SIGNATURE(n, name, ...) {#name, make_##name, make_p##name, wanted_##name},
#include "signatures.def"
#undef SIGNATURE
};

enum { CALLS = sizeof calls / sizeof calls[0] };

static int check(const call_t *call, int (*make)(void))
{
    child_settings("cuda", ABI_RECORDER);
    const int result = make();
    record_find_t *find = (record_find_t *)dlsym(dlopen(ABI_RECORDER, RTLD_NOW | RTLD_NOLOAD), "record_find");
    CHILD_CHECK(find != NULL);
    const record_t *record = find(call->name);
    CHILD_CHECK(record->calls == 1 && result == RECORD_RESULT);
    for (int i = 0; i < RECORD_WORDS; i++)
        CHILD_CHECK(record->word[i] == call->wanted(i));
    return 0;
}

static int check_plain(void *call)
{
    return check(call, ((const call_t *)call)->make);
}

static int check_twin(void *call)
{
    return check(call, ((const call_t *)call)->make_twin);
}

static void the_real_nccl_gets_every_argument(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < CALLS; i++) {
        const int failed = child_run(check_plain, (void *)&calls[i], log_text, sizeof log_text) != 0 ||
                           child_run(check_twin, (void *)&calls[i], log_text, sizeof log_text) != 0;
        if (failed)
            print_error("%s\n", calls[i].name);
        wrong += failed;
    }
    assert_int_equal(wrong, 0);
}

/* Every treated name has a signature here, except those that Shunt answers itself (versions and texts), which
 * test_real.c calls. */
static void every_treated_name_has_a_signature(void **state)
{
    (void)state;
    static const char *const treated[] = {
#define SHIM_TREATED(name) #name,
#include "shim/names/names.def"
    };
    static const char *const apart[] = {"ncclGetVersion", "ncclGetErrorString", "ncclGetLastError"};
    enum { TREATED = sizeof treated / sizeof treated[0], APART = sizeof apart / sizeof apart[0] };
    for (int i = 0; i < TREATED; i++) {
        int found = 0;
        for (int k = 0; k < CALLS; k++)
            found += strcmp(treated[i], calls[k].name) == 0;
        for (int k = 0; k < APART; k++)
            found += strcmp(treated[i], apart[k]) == 0;
        if (found != 1)
            print_error("%s: add it to signatures.def\n", treated[i]);
        assert_int_equal(found, 1);
    }
    assert_int_equal(TREATED, CALLS + APART);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_treated_name_has_a_signature),
        cmocka_unit_test(the_real_nccl_gets_every_argument),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
