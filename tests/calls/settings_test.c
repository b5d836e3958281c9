/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings_test.c - every setting: right values, wrong values, fallbacks, files. Settings are read once per process, so
 * each case runs in a process of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/base/settings.h"
#include "tests/abi/child.h"

enum { LOG_BYTES = 8192, PAIRS = 8 };

/* Variables to set, and the expected value of a setting. */
typedef struct scenario {
    const char *set[2 * PAIRS]; /* name, value, ..., NULL */
    const char *variable;       /* NULL: nothing more to check */
    const char *value, *origin;
} scenario_t;

static bool find_row(const char *variable, shunt_setting_t *row)
{
    for (uint32_t i = 0; shim_setting_row(i, row); i++)
        if (strcmp(row->name, variable) == 0)
            return true;
    return false;
}

static void fresh_environment(const scenario_t *scenario)
{
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    for (int i = 0; i < 2 * PAIRS && scenario->set[i] != NULL; i += 2)
        setenv(scenario->set[i], scenario->set[i + 1], 1);
}

static int check_scenario(void *argument)
{
    const scenario_t *scenario = argument;
    fresh_environment(scenario);
    shim_settings();
    shunt_setting_t row;
    CHILD_CHECK(find_row(scenario->variable, &row));
    if (strcmp(row.value, scenario->value) != 0 || strcmp(row.origin, scenario->origin) != 0) {
        fprintf(stderr, "%s is \"%s\" from %s\n", row.name, row.value, row.origin);
        return 1;
    }
    return 0;
}

/* Run a scenario that must write no line to the log. */
static void assert_quiet(scenario_t scenario)
{
    char log[LOG_BYTES];
    assert_int_equal(child_run(check_scenario, &scenario, log, sizeof(log)), 0);
    assert_string_equal(log, "");
}

/* Check that a wrong value gives the default and one line with the variable, the value and the allowed values. */
static void assert_refused(const char *variable, const char *value, const char *initial, const char *allowed)
{
    char log[LOG_BYTES];
    scenario_t scenario = {.set = {variable, value}, .variable = variable, .value = initial, .origin = "default"};
    assert_int_equal(child_run(check_scenario, &scenario, log, sizeof(log)), 0);
    assert_int_equal(child_count(log, "\n"), 1);
    char text[512];
    snprintf(text, sizeof(text), "%s=%s is not allowed", variable, value);
    assert_non_null(strstr(log, text));
    assert_non_null(strstr(log, allowed));
    assert_non_null(strstr(log, " WARN "));
}

static void assert_taken(const char *variable, const char *value, const char *shown)
{
    assert_quiet((scenario_t){.set = {variable, value}, .variable = variable, .value = shown, .origin = "environment"});
}

enum {
    SETTINGS = 0
#define SHIM_SETTING(kind, field, variable, fallback, initial, unit, allowed, help) +1
#include "shim/base/settings.def"
#undef SHIM_SETTING
};

static int check_defaults(void *argument)
{
    fresh_environment(argument);
    const shim_settings_t *s = shim_settings();
    CHILD_CHECK(s->device == SHIM_DEVICE_AUTO && s->enable && !s->deterministic && s->max_ctas == 0);
    CHILD_CHECK(s->scratch_bytes == UINT64_C(80) << 20);
    CHILD_CHECK(s->debug == SHIM_LOG_WARN && s->debug_file[0] == '\0' && s->algo[0] == '\0');
    CHILD_CHECK(strcmp(s->stats, "0") == 0);
    CHILD_CHECK(shim_setting_nccl_path() == NULL);
    CHILD_CHECK(shim_setting_timeout_ns(10000) == UINT64_C(10000000000) && shim_setting_timeout_ns(0) == 0);
    shunt_setting_t row;
    uint32_t rows = 0;
    for (; shim_setting_row(rows, &row); rows++) {
        CHILD_CHECK(strcmp(row.value, row.initial) == 0 && strcmp(row.origin, "default") == 0);
        CHILD_CHECK(row.help[0] != '\0');
    }
    CHILD_CHECK(rows == SETTINGS);
    return 0;
}

static void defaults(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    scenario_t scenario = {.set = {NULL}};
    assert_int_equal(child_run(check_defaults, &scenario, log, sizeof(log)), 0);
    assert_string_equal(log, "");
}

static void right_values(void **state)
{
    (void)state;
    assert_taken("SHUNT_DEVICE", "cpu", "cpu");
    assert_taken("SHUNT_DEVICE", "host", "host"); /* its older name */
    assert_taken("SHUNT_DEVICE", "CUDA", "CUDA");
    assert_taken("SHUNT_ENABLE", "0", "0");
    assert_taken("SHUNT_NCCL_PATH", "/a/path", "/a/path");
    assert_taken("SHUNT_ALGO", "oneshot", "oneshot");
    assert_taken("SHUNT_ALGO", "allreduce:0-64K=oneshot;64K-=nccl", "allreduce:0-64K=oneshot;64K-=nccl");
    assert_taken("SHUNT_ALGO", "builtin;1M-=twoshot:64x512", "builtin;1M-=twoshot:64x512");
    assert_taken("SHUNT_TABLE", "/a/table.csv", "/a/table.csv");
    assert_taken("SHUNT_TABLE_FORCE", "1", "1");
    assert_taken("SHUNT_CACHE_DIR", "/a/cache", "/a/cache");
    assert_taken("SHUNT_SCRATCH_BYTES", "1048576", "1048576");
    assert_taken("SHUNT_SCRATCH_BYTES", "16g", "16g");
    assert_taken("SHUNT_MAX_CTAS", "1024", "1024");
    assert_taken("SHUNT_DETERMINISTIC", "1", "1");
    assert_taken("SHUNT_TIMEOUT_MS", "0", "0");
    assert_taken("SHUNT_TIMEOUT_MS", "86400000", "86400000");
    assert_taken("SHUNT_DEBUG", "Trace", "Trace");
    assert_taken("SHUNT_STATS", "/a/%h.%p", "/a/%h.%p");
}

static void wrong_values(void **state)
{
    (void)state;
    assert_refused("SHUNT_DEVICE", "gpu", "auto", "auto, cuda or cpu");
    assert_refused("SHUNT_ENABLE", "yes", "1", "0 or 1");
    assert_refused("SHUNT_ENABLE", "10", "1", "0 or 1");
    assert_refused("SHUNT_ALGO", "allreduce:0-64K=magic", "", "an algorithm's name");
    assert_refused("SHUNT_SCRATCH_BYTES", "64MB", "80M", "1M to 16G, with K, M or G bytes");
    assert_refused("SHUNT_SCRATCH_BYTES", "-1", "80M", "1M to 16G");
    assert_refused("SHUNT_SCRATCH_BYTES", "1023K", "80M", "1M to 16G");
    assert_refused("SHUNT_SCRATCH_BYTES", "17G", "80M", "1M to 16G");
    assert_refused("SHUNT_SCRATCH_BYTES", "17179869184G", "80M", "1M to 16G");
    assert_refused("SHUNT_SCRATCH_BYTES", "99999999999999999999", "80M", "1M to 16G");
    assert_refused("SHUNT_MAX_CTAS", "1025", "0", "0 to 1024");
    assert_refused("SHUNT_MAX_CTAS", "4 ", "0", "0 to 1024");
    assert_refused("SHUNT_MAX_CTAS", "0x10", "0", "0 to 1024");
    assert_refused("SHUNT_DETERMINISTIC", "true", "0", "0 or 1");
    assert_refused("SHUNT_TIMEOUT_MS", "1s", "auto", "auto, or 0 to 86400000 ms");
    assert_refused("SHUNT_TIMEOUT_MS", "86400001", "auto", "86400000");
    assert_refused("SHUNT_DEBUG", "loud", "warn", "none, warn, info or trace");
}

static void an_empty_value_counts_as_unset(void **state)
{
    (void)state;
    assert_quiet(
        (scenario_t){.set = {"SHUNT_DEVICE", ""}, .variable = "SHUNT_DEVICE", .value = "auto", .origin = "default"});
    assert_quiet(
        (scenario_t){.set = {"SHUNT_MAX_CTAS", ""}, .variable = "SHUNT_MAX_CTAS", .value = "0", .origin = "default"});
}

static void nccls_variables_count_where_ours_are_unset(void **state)
{
    (void)state;
    static const char *const words[][2] = {
        {"VERSION", "warn"}, {"WARN", "WARN"}, {"INFO", "INFO"}, {"ABORT", "info"}, {"trace", "trace"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        assert_quiet((scenario_t){.set = {"NCCL_DEBUG", words[i][0]},
                                  .variable = "SHUNT_DEBUG",
                                  .value = words[i][1],
                                  .origin = "NCCL_DEBUG"});
    assert_quiet((scenario_t){
        .set = {"NCCL_MAX_CTAS", "8"}, .variable = "SHUNT_MAX_CTAS", .value = "8", .origin = "NCCL_MAX_CTAS"});
    assert_quiet((scenario_t){.set = {"NCCL_MAX_CTAS", "8", "SHUNT_DETERMINISTIC", "1"}, /* satisfied: pins.h */
                              .variable = "SHUNT_MAX_CTAS",
                              .value = "0",
                              .origin = "default"});
    assert_quiet((scenario_t){.set = {"NCCL_MAX_CTAS", "8", "SHUNT_MAX_CTAS", "4"},
                              .variable = "SHUNT_MAX_CTAS",
                              .value = "4",
                              .origin = "environment"});
    /* NCCL itself reports wrong values of its own variables. */
    assert_quiet(
        (scenario_t){.set = {"NCCL_DEBUG", "bogus"}, .variable = "SHUNT_DEBUG", .value = "warn", .origin = "default"});
}

/* Compare as libc does in a Turkish locale, where "I" is the capital of another letter. */
static bool turkish(const char *a, const char *b, size_t most)
{
    for (size_t i = 0; i < most; i++) {
        if (a[i] != b[i] && ((a[i] | 0x20) != (b[i] | 0x20) || (a[i] | 0x20) == 'i'))
            return false;
        if (a[i] == '\0')
            return true;
    }
    return true;
}

int __wrap_strcasecmp(const char *a, const char *b);
int __wrap_strcasecmp(const char *a, const char *b)
{
    return !turkish(a, b, SIZE_MAX);
}

static void words_in_a_turkish_locale(void **state)
{
    (void)state;
    assert_false(turkish("INFO", "info", SIZE_MAX));
    assert_true(turkish("WARN", "warn", SIZE_MAX));
    assert_quiet((scenario_t){
        .set = {"SHUNT_DEBUG", "INFO"}, .variable = "SHUNT_DEBUG", .value = "INFO", .origin = "environment"});
    assert_quiet((scenario_t){
        .set = {"NCCL_DEBUG", "VERSION"}, .variable = "SHUNT_DEBUG", .value = "warn", .origin = "NCCL_DEBUG"});
}

static void no_log_means_no_line(void **state)
{
    (void)state;
    assert_quiet((scenario_t){.set = {"SHUNT_DEBUG", "none", "SHUNT_DEVICE", "gpu"},
                              .variable = "SHUNT_DEVICE",
                              .value = "auto",
                              .origin = "default"});
}

static char conf_path[64];

static int set_up_file(void **state)
{
    (void)state;
    strcpy(conf_path, "/tmp/shunt-settings-XXXXXX");
    int fd = mkstemp(conf_path);
    static const char text[] = "#SHUNT_ENABLE=0\nSHUNT_MAX_CTAS=7\nSHUNT_MAX_CTAS=9\nno line\n"
                               "NCCL_DEBUG=INFO\r\nNCCL_P2P_DISABLE=1\nSHUNT_ALGO=nccl";
    bool written = fd >= 0 && write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1;
    close(fd);
    return written ? 0 : -1;
}

static int tear_down_file(void **state)
{
    (void)state;
    return unlink(conf_path);
}

static int check_nccl_env(void *argument)
{
    fresh_environment(argument);
    CHILD_CHECK(strcmp(shim_nccl_env("NCCL_P2P_DISABLE"), "1") == 0);
    CHILD_CHECK(shim_nccl_env("NCCL_NO_SUCH") == NULL);
    setenv("NCCL_P2P_DISABLE", "0", 1);
    CHILD_CHECK(strcmp(shim_nccl_env("NCCL_P2P_DISABLE"), "0") == 0);
    return 0;
}

static void nccls_files(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    const char *const expected[][2] = {{"SHUNT_MAX_CTAS", "7"}, {"SHUNT_ALGO", "nccl"}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        assert_quiet((scenario_t){.set = {"NCCL_CONF_FILE", conf_path},
                                  .variable = expected[i][0],
                                  .value = expected[i][1],
                                  .origin = conf_path});
    assert_quiet((scenario_t){
        .set = {"NCCL_CONF_FILE", conf_path}, .variable = "SHUNT_DEBUG", .value = "INFO", .origin = "NCCL_DEBUG"});
    assert_quiet((scenario_t){
        .set = {"NCCL_CONF_FILE", conf_path}, .variable = "SHUNT_ENABLE", .value = "1", .origin = "default"});
    assert_quiet((scenario_t){.set = {"NCCL_CONF_FILE", conf_path, "SHUNT_MAX_CTAS", "3"},
                              .variable = "SHUNT_MAX_CTAS",
                              .value = "3",
                              .origin = "environment"});
    scenario_t scenario = {.set = {"NCCL_CONF_FILE", conf_path}};
    assert_int_equal(child_run(check_nccl_env, &scenario, log, sizeof(log)), 0);
}

static int check_other_files(void *argument)
{
    alarm(60); /* reading a pipe, or a device without an end, would take for ever */
    fresh_environment(argument);
    CHILD_CHECK(shim_nccl_env("NCCL_P2P_DISABLE") == NULL);
    return 0;
}

static void what_is_no_file_is_not_read(void **state)
{
    (void)state;
    char log[LOG_BYTES], pipe_path[64];
    snprintf(pipe_path, sizeof pipe_path, "/tmp/shunt-settings-pipe-%d", (int)getpid());
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    const char *const paths[] = {pipe_path, "/dev/zero", "/tmp"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        scenario_t scenario = {.set = {"NCCL_CONF_FILE", paths[i]}};
        assert_int_equal(child_run(check_other_files, &scenario, log, sizeof(log)), 0);
    }
    unlink(pipe_path);
}

static int check_once(void *argument)
{
    fresh_environment(argument);
    CHILD_CHECK(shim_settings()->max_ctas == 5 && shim_setting_timeout_ns(10000) == 20000000 &&
                shim_setting_timeout_ns(0) == 20000000);
    setenv("SHUNT_MAX_CTAS", "6", 1);
    shunt_setting_t row;
    CHILD_CHECK(shim_settings()->max_ctas == 5);
    CHILD_CHECK(find_row("SHUNT_MAX_CTAS", &row) && strcmp(row.value, "5") == 0);
    CHILD_CHECK(!shim_setting_row(1000, &row));
    return 0;
}

static void settings_are_read_once(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    scenario_t scenario = {.set = {"SHUNT_MAX_CTAS", "5", "SHUNT_TIMEOUT_MS", "20"}};
    assert_int_equal(child_run(check_once, &scenario, log, sizeof(log)), 0);
}

static void paths_are_filled_in(void **state)
{
    (void)state;
    char path[64], expected[64];
    snprintf(expected, sizeof(expected), "a%%b%dc%%x%%", (int)getpid());
    assert_true(shim_setting_expand("a%%b%pc%x%", path, sizeof(path)));
    assert_string_equal(path, expected);
    assert_true(shim_setting_expand("%h", path, sizeof(path)));
    assert_null(strchr(path, '/'));
    char tiny[4];
    assert_true(shim_setting_expand("abc", tiny, sizeof(tiny)));
    assert_false(shim_setting_expand("abcd", tiny, sizeof(tiny)));
    assert_false(shim_setting_expand("", path, sizeof(path)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(right_values),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(an_empty_value_counts_as_unset),
        cmocka_unit_test(nccls_variables_count_where_ours_are_unset),
        cmocka_unit_test(words_in_a_turkish_locale),
        cmocka_unit_test(no_log_means_no_line),
        cmocka_unit_test_setup_teardown(nccls_files, set_up_file, tear_down_file),
        cmocka_unit_test(what_is_no_file_is_not_read),
        cmocka_unit_test(settings_are_read_once),
        cmocka_unit_test(paths_are_filled_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
