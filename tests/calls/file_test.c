/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_test.c - the files of log, statistics and trace: files of the user and new ones are opened, never one that
 * another user put in their place.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/account/statistics.h"
#include "shim/account/trace.h"
#include "shim/base/file.h"
#include "shim/base/log.h"
#include "tests/abi/child.h"
#include "tests/support/skips.h"

enum { LOG_BYTES = 16384, PATH_BYTES = 256, STRANGER = 54321 };
static const char kept[] = "kept\n";

static char folder[64], target[PATH_BYTES], path[PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shunt-file-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(target, sizeof(target), "%s/target", folder);
    snprintf(path, sizeof(path), "%s/path", folder);
    int fd = open(target, O_WRONLY | O_CREAT | O_EXCL, 0600);
    bool written = fd >= 0 && write(fd, kept, strlen(kept)) == (ssize_t)strlen(kept);
    close(fd);
    return written ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void assert_kept(void)
{
    char text[64] = "";
    int fd = open(target, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof(text) - 1), (ssize_t)strlen(kept));
    close(fd);
    assert_string_equal(text, kept);
}

static void assert_opens(const char *name)
{
    const char *why = "";
    int fd = shim_file_open(name, O_WRONLY | O_APPEND, &why);
    if (fd < 0)
        fail_msg("%s: %s", name, why);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
}

static void assert_refused(const char *name, const char *expected)
{
    const char *why = NULL;
    assert_int_equal(shim_file_open(name, O_RDWR, &why), -1);
    assert_string_equal(why, expected);
}

static void own_and_new_files_are_written(void **state)
{
    (void)state;
    struct stat info;
    assert_opens(path);
    assert_int_equal(stat(path, &info), 0);
    assert_opens(path);
    assert_opens(target);
    assert_opens("/dev/null");
    assert_opens("/dev/stderr");
    assert_kept();
}

static void nothing_else(void **state)
{
    (void)state;
    assert_int_equal(symlink(target, path), 0);
    assert_refused(path, "a link");
    unlink(path);
    assert_int_equal(symlink("/tmp/shunt-file-elsewhere", path), 0);
    assert_refused(path, "a link");
    assert_int_equal(access("/tmp/shunt-file-elsewhere", F_OK), -1);
    unlink(path);
    assert_int_equal(link(target, path), 0);
    assert_refused(path, "the file has a second name (a hard link)");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "not a file");
    unlink(path);
    assert_refused(folder, "Is a directory");
    assert_refused("/nonexistent/file", "No such file or directory");
    assert_kept();
}

static void another_users_file_is_not_written(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_because("another user's file needs root to make");
    assert_int_equal(chown(target, STRANGER, STRANGER), 0);
    assert_refused(target, "another user's file");
    assert_kept();
}

static int write_all(void *variable)
{
    const sel_choice_t choice = {.algorithm = alg_registry[0]};
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    setenv(variable, path, 1);
    shim_warn("a line");
    shim_count_taken(ALG_ALL_REDUCE, 0, 1, &choice);
    shim_trace_call_t call = {.start_ns = shim_trace_begin(), .function = "none"};
    if (call.start_ns != 0)
        shim_trace_end(&call);
    exit(0);
}

/* No file follows a link that another user has made for root to follow. */
static void every_file_is_checked_for_a_link(void **state)
{
    (void)state;
    static const char *const variables[] = {"SHUNT_DEBUG_FILE", "SHUNT_STATS", "SHUNT_TRACE"};
    assert_int_equal(symlink(target, path), 0);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        char log[LOG_BYTES];
        assert_int_equal(child_run(write_all, (void *)variables[i], log, sizeof(log)), 0);
        assert_non_null(strstr(log, variables[i]));
        assert_non_null(strstr(log, "cannot be written (a link)"));
        assert_kept();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(own_and_new_files_are_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_else, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_users_file_is_not_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_file_is_checked_for_a_link, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
