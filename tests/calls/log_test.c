/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_test.c - lines of the log: their form, levels and destination.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "tests/abi/child.h"

enum { LOG_BYTES = 16384 };

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shunt-log-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void quiet_environment(void)
{
    clearenv();
    setenv("HOME", "/nonexistent", 1);
}

static int some_lines(void *argument)
{
    quiet_environment();
    if (argument != NULL)
        setenv("SHUNT_DEBUG", argument, 1);
    errno = ENOTTY;
    shim_warn("number %d", 1);
    shim_info("number %d", 2);
    shim_trace("number %d", 3);
    return errno == ENOTTY ? 0 : 1;
}

static void a_line_has_its_form(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(some_lines, NULL, log, sizeof(log)), 0);
    regex_t form;
    assert_int_equal(regcomp(&form, "^shunt: [^ :]+:[0-9]+:[0-9]+ WARN number 1\n$", REG_EXTENDED), 0);
    assert_int_equal(regexec(&form, log, 0, NULL, 0), 0);
    regfree(&form);
}

static void levels(void **state)
{
    (void)state;
    static const struct {
        char level[8];
        int lines;
    } cases[] = {{"none", 0}, {"warn", 1}, {"info", 2}, {"trace", 3}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char log[LOG_BYTES];
        assert_int_equal(child_run(some_lines, (void *)cases[i].level, log, sizeof(log)), 0);
        assert_int_equal(child_count(log, "\n"), cases[i].lines);
    }
}

static int odd_lines(void *argument)
{
    (void)argument;
    quiet_environment();
    shim_warn("two\nlines\tand \x1b[31mcolour");
    shim_warn("a\x7f"
              "b\x80"
              "c\x9b"
              "d\xc2\x9b"
              "e\xe0\x80\x9b"
              "f\xf0\x80\x80\x9b"
              "g\xc3"); /* controls, hidden or not */
    shim_warn("\xc3\x9c"
              "bung \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xa0 \xe4|"); /* UTF-8, and a letter of ISO 8859-1 */
    char *text = malloc(10000);
    memset(text, 'x', 9999);
    text[9999] = '\0';
    shim_warn("%s", text);
    free(text);
    return 0;
}

static void control_characters_stay_in_one_line(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(odd_lines, NULL, log, sizeof(log)), 0);
    assert_int_equal(child_count(log, "\n"), 4);
    assert_non_null(strstr(log, "two lines and  [31mcolour\n"));
    assert_non_null(strstr(log, "a b c d\xc2 e\xe0  f\xf0   g\xc3\n"));
    assert_non_null(strstr(log, "\xc3\x9c"
                                "bung \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xa0 \xe4|\n"));
}

static void read_whole(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t got = read(fd, text, capacity - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
}

static char pattern[128];

/* Log a line before a fork, one in the child and one after it. */
static int lines_of_two(void *argument)
{
    (void)argument;
    quiet_environment();
    setenv("SHUNT_DEBUG_FILE", pattern, 1);
    shim_warn("parent %d", (int)getpid());
    pid_t child = fork();
    if (child == 0) {
        shim_warn("child %d", (int)getpid());
        _exit(0);
    }
    waitpid(child, NULL, 0);
    shim_warn("parent again");
    FILE *names = fopen(strcat(strcpy(pattern, folder), "/names"), "w");
    fprintf(names, "%d %d", (int)getpid(), (int)child);
    fclose(names);
    return 0;
}

static void a_file_for_each_process(void **state)
{
    (void)state;
    char log[LOG_BYTES], path[256], names[64];
    snprintf(pattern, sizeof(pattern), "%s/log.%%p", folder);
    assert_int_equal(child_run(lines_of_two, NULL, log, sizeof(log)), 0);
    assert_string_equal(log, "");
    snprintf(path, sizeof(path), "%s/names", folder);
    read_whole(path, names, sizeof(names));
    char *second = strchr(names, ' ');
    *second++ = '\0';
    snprintf(path, sizeof(path), "%s/log.%s", folder, names);
    read_whole(path, log, sizeof(log));
    assert_int_equal(child_count(log, "\n"), 2);
    assert_non_null(strstr(log, "parent again"));
    snprintf(path, sizeof(path), "%s/log.%s", folder, second);
    read_whole(path, log, sizeof(log));
    assert_int_equal(child_count(log, "\n"), 1);
    assert_non_null(strstr(log, "child"));
}

static int unwritable(void *argument)
{
    (void)argument;
    quiet_environment();
    setenv("SHUNT_DEBUG_FILE", "/nonexistent/log", 1);
    shim_warn("one");
    shim_warn("two");
    return 0;
}

static void a_file_that_cannot_be_written(void **state)
{
    (void)state;
    char log[LOG_BYTES];
    assert_int_equal(child_run(unwritable, NULL, log, sizeof(log)), 0);
    assert_int_equal(child_count(log, "\n"), 3);
    assert_int_equal(child_count(log, "SHUNT_DEBUG_FILE=/nonexistent/log cannot be written"), 1);
    assert_non_null(strstr(log, "one\n"));
    assert_non_null(strstr(log, "two\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_its_form),
        cmocka_unit_test(levels),
        cmocka_unit_test(control_characters_stay_in_one_line),
        cmocka_unit_test_setup_teardown(a_file_for_each_process, make_folder, remove_folder),
        cmocka_unit_test(a_file_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
