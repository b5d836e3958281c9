/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_test.c - shunt.conf: which file applies, the form of a line, and the message for a wrong one. This program is
 * built with another path for the system's file. Settings are read once per process, so each case runs in a process of
 * its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/base/conf.h"
#include "shim/base/settings.h"
#include "tests/abi/child.h"

enum { LOG_BYTES = 16384, PATH_BYTES = 128 };

static char folder[] = "/tmp/shunt-conf-XXXXXX";
static char user_file[PATH_BYTES], home_file[PATH_BYTES], nccl_file[PATH_BYTES];
static const char *const system_file = SHIM_CONF_SYSTEM_FILE;

/* What a process is given, and what it must read from it. */
typedef struct scenario {
    const char *user, *home, *system, *nccl; /* contents of the files; NULL: there is none */
    const char *set[2];                      /* a variable of the environment */
    const char *variable, *value, *origin;   /* expected */
} scenario_t;

static void write_file(const char *path, const char *text)
{
    unlink(path);
    FILE *file = text != NULL ? fopen(path, "w") : NULL;
    if (file == NULL)
        return;
    fputs(text, file);
    fclose(file);
}

static bool find_row(const char *variable, shunt_setting_t *row)
{
    for (uint32_t i = 0; shim_setting_row(i, row); i++)
        if (strcmp(row->name, variable) == 0)
            return true;
    return false;
}

static int check(void *argument)
{
    const scenario_t *scenario = argument;
    clearenv();
    setenv("HOME", folder, 1);
    if (scenario->home == NULL)
        setenv("XDG_CONFIG_HOME", folder, 1);
    setenv("NCCL_CONF_FILE", nccl_file, 1);
    if (scenario->set[0] != NULL)
        setenv(scenario->set[0], scenario->set[1], 1);
    shunt_setting_t row;
    CHILD_CHECK(find_row(scenario->variable, &row));
    if (strcmp(row.value, scenario->value) != 0 || strcmp(row.origin, scenario->origin) != 0) {
        fprintf(stderr, "%s is \"%s\" from %s\n", row.name, row.value, row.origin);
        return 1;
    }
    return 0;
}

static void run(scenario_t scenario, char *log)
{
    write_file(user_file, scenario.user);
    write_file(home_file, scenario.home);
    write_file(system_file, scenario.system);
    write_file(nccl_file, scenario.nccl);
    assert_int_equal(child_run(check, &scenario, log, LOG_BYTES), 0);
}

static void assert_quiet(scenario_t scenario)
{
    char log[LOG_BYTES];
    run(scenario, log);
    assert_string_equal(log, "");
}

static void which_file_is_read(void **state)
{
    (void)state;
    const scenario_t all = {.user = "SHUNT_MAX_CTAS=1\n",
                            .system = "SHUNT_MAX_CTAS=3\nSHUNT_SCRATCH_BYTES=3M\n",
                            .nccl = "SHUNT_MAX_CTAS=4\nSHUNT_SCRATCH_BYTES=4M\nSHUNT_TIMEOUT_MS=4\n",
                            .variable = "SHUNT_MAX_CTAS"};
    scenario_t one = all;
    one.value = "1", one.origin = user_file;
    assert_quiet(one);
    one = all;
    one.user = NULL, one.home = "SHUNT_MAX_CTAS=2\n", one.value = "2", one.origin = home_file;
    assert_quiet(one);
    one = all;
    one.user = NULL, one.value = "3", one.origin = system_file;
    assert_quiet(one);
    one = all;
    one.user = one.system = NULL, one.value = "4", one.origin = nccl_file;
    assert_quiet(one);
    one = all;
    one.set[0] = "SHUNT_MAX_CTAS", one.set[1] = "5", one.value = "5", one.origin = "environment";
    assert_quiet(one);
    one.set[1] = "", one.value = "1", one.origin = user_file; /* empty: none */
    assert_quiet(one);
    one = all;
    one.variable = "SHUNT_SCRATCH_BYTES", one.value = "3M", one.origin = system_file;
    assert_quiet(one);
    one.variable = "SHUNT_TIMEOUT_MS", one.value = "4", one.origin = nccl_file;
    assert_quiet(one);
}

/* A variable of NCCL applies only if Shunt's is set nowhere. */
static void before_nccls_variables(void **state)
{
    (void)state;
    assert_quiet((scenario_t){.user = "SHUNT_MAX_CTAS=1",
                              .set = {"NCCL_MAX_CTAS", "7"},
                              .variable = "SHUNT_MAX_CTAS",
                              .value = "1",
                              .origin = user_file});
}

static void forms_of_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *variable, *value;
    } cases[] = {
        {"SHUNT_ALGO=oneshot", "SHUNT_ALGO", "oneshot"},
        {"\n\n  \t SHUNT_ALGO \t=  oneshot \t\r\n", "SHUNT_ALGO", "oneshot"},
        {"# SHUNT_ALGO=nccl\n#\n  # x\nSHUNT_ALGO=oneshot # why\n", "SHUNT_ALGO", "oneshot"},
        {"SHUNT_STATS=/a#b/c d=e\n", "SHUNT_STATS", "/a#b/c d=e"},
        {"SHUNT_STATS=#x\n", "SHUNT_STATS", "#x"},
        {"SHUNT_STATS= # nothing\nSHUNT_ALGO=nccl", "SHUNT_STATS", ""},
        {"SHUNT_DEBUG_FILE=/tmp/\xc3\xa4", "SHUNT_DEBUG_FILE", "/tmp/\xc3\xa4"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_quiet((scenario_t){
            .user = cases[i].text, .variable = cases[i].variable, .value = cases[i].value, .origin = user_file});
    assert_quiet((scenario_t){.user = "", .variable = "SHUNT_ALGO", .value = "", .origin = "default"});
    assert_quiet(
        (scenario_t){.user = "SHUNT_DEVICE=\n", .variable = "SHUNT_DEVICE", .value = "auto", .origin = "default"});
}

/* Each wrong line is reported once with its position, and later lines still apply, up to the last one. */
static void wrong_lines_are_reported(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"SHUNT_ALGO\n", "shunt.conf:1:11: expected NAME=value; the line is skipped\n"},
        {"\n  =1\n",
         "shunt.conf:2:3: expected the name of a setting, not \"\" (see `shunt settings`); the line is skipped\n"},
        {"\tSHUNT_ALG=nccl\n", "shunt.conf:1:2: expected the name of a setting, not \"SHUNT_ALG\" (see `shunt "
                               "settings`); the line is skipped\n"},
        {"NCCL_ALGO=ring # hm\n", "shunt.conf:1:1: expected the name of a setting, not \"NCCL_ALGO\" (see `shunt "
                                  "settings`); the line is skipped\n"},
        {"SHUNT_ALGO=a\x01z\n", "shunt.conf:1:13: expected text, found the control character 1; the line is skipped\n"},
        {"SHUNT_STATS=1\n\nSHUNT_STATS=0\n",
         "shunt.conf:3:1: SHUNT_STATS is set twice; line 1 is used, this one is skipped\n"},
        {"SHUNT_ENABLE = yes\n",
         "shunt.conf:1:16: SHUNT_ENABLE=yes is not allowed (allowed: 0 or 1); using the default, 1\n"},
        {"# x\nSHUNT_ALGO=0-64K\n", "shunt.conf:2:17: SHUNT_ALGO=0-64K is not allowed (expected '='; allowed: "},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char log[LOG_BYTES], text[256];
        snprintf(text, sizeof(text), "%sSHUNT_MAX_CTAS=7", cases[i].text);
        run((scenario_t){.user = text, .variable = "SHUNT_MAX_CTAS", .value = "7", .origin = user_file}, log);
        assert_int_equal(child_count(log, "\n"), 1);
        assert_int_equal(child_count(log, " WARN "), 1);
        if (strstr(log, cases[i].said) == NULL)
            fail_msg("not \"%s\" but %s", cases[i].said, log);
    }
}

static void faults_are_told_up_to_a_limit(void **state)
{
    (void)state;
    char log[LOG_BYTES], text[4096] = "";
    for (int i = 0; i < 200; i++)
        strcat(text, "nonsense\n");
    strcat(text, "SHUNT_MAX_CTAS=7\n");
    run((scenario_t){.user = text, .variable = "SHUNT_MAX_CTAS", .value = "7", .origin = user_file}, log);
    assert_int_equal(child_count(log, "expected NAME=value"), SHIM_CONF_MOST_FAULTS);
    assert_int_equal(child_count(log, "the others are not reported"), 1);
    assert_int_equal(child_count(log, "\n"), SHIM_CONF_MOST_FAULTS + 1);
}

static void unsuitable_files_are_not_read(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    static char large[70000];
    memset(large, '#', sizeof(large) - 1);
    const scenario_t scenario = {
        .user = large, .system = "SHUNT_MAX_CTAS=7", .variable = "SHUNT_MAX_CTAS", .value = "7", .origin = system_file};
    run(scenario, log);
    assert_int_equal(child_count(log, "\n"), 1);
    assert_non_null(strstr(log, "shunt.conf:1:1: expected a file of less than 64 KiB; the file is not used\n"));
    /* The name is of something other than a file, for which the library must not wait. */
    scenario_t other = scenario;
    other.user = NULL;
    unlink(user_file);
    assert_int_equal(mkfifo(user_file, 0600), 0);
    assert_int_equal(child_run(check, &other, log, sizeof(log)), 0);
    assert_non_null(strstr(log, "expected a file"));
    unlink(user_file);
}

/* A wrong line is not reported if the log's level excludes warnings. */
static void no_log_means_no_line(void **state)
{
    (void)state;
    assert_quiet((scenario_t){
        .user = "nonsense\nSHUNT_DEBUG=none\n", .variable = "SHUNT_DEBUG", .value = "none", .origin = user_file});
}

/* Write "<folder>/<name>" to `path`, for a folder or a file. */
static void join(char *path, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
}

static int set_up(void **state)
{
    (void)state;
    static const char *const folders[] = {"shunt", ".config", ".config/shunt"};
    if (mkdtemp(folder) == NULL)
        return -1;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char path[PATH_BYTES];
        join(path, folders[i]);
        mkdir(path, 0700);
    }
    join(user_file, "shunt/shunt.conf");
    join(home_file, ".config/shunt/shunt.conf");
    join(nccl_file, "nccl.conf");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[PATH_BYTES];
    unlink(system_file);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(which_file_is_read),
        cmocka_unit_test(before_nccls_variables),
        cmocka_unit_test(forms_of_a_line),
        cmocka_unit_test(wrong_lines_are_reported),
        cmocka_unit_test(faults_are_told_up_to_a_limit),
        cmocka_unit_test(unsuitable_files_are_not_read),
        cmocka_unit_test(no_log_means_no_line),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
