/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secure_test.c - a program with more rights than its caller reads nothing from
 * the environment.
 *
 * As root, a copy of this program is made setuid root, and another user runs it
 * with every variable that could name a file, load a library or change the
 * library's behaviour. The copy, with `probe` as its only argument, reports what
 * it read. A copy without more rights gets the same environment and must follow
 * it, which shows that the attack works.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/account/ranges.h"
#include "shim/account/statistics.h"
#include "shim/account/trace.h"
#include "shim/base/log.h"
#include "shim/base/nccl_env.h"
#include "shim/base/settings.h"
#include "shim/real/real.h"
#include "shim/setup/table_load.h"
#include "tests/support/skips.h"

enum { STRANGER = 54321, NOT_SECURE = 77 };

/* The attacker's folder; all files in it are his. */
static char folder[] = "/tmp/shunt-secure-XXXXXX";

/* A leak checker may not watch the end of a process with more rights. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* ---- The copy ----------------------------------------------------------------------- */

/* Print the settings with a source other than the system's own file; returns their number. */
static int obeyed(void)
{
    int count = 0;
    shunt_setting_t row;
    for (uint32_t i = 0; shim_setting_row(i, &row); i++) {
        if (strcmp(row.origin, "default") == 0 || strncmp(row.origin, "/etc/", 5) == 0)
            continue;
        printf("%s=%s from %s\n", row.name, row.value, row.origin);
        count++;
    }
    return count;
}

static int probe(void)
{
    static const char *const nccls[] = {"NCCL_ALGO", "NCCL_HOSTID", "NCCL_PROTO"};
    const sel_choice_t choice = {.algorithm = alg_registry[0]};
    char path[PATH_MAX];
    bool secure = getauxval(AT_SECURE) != 0;
    int taken = obeyed();
    for (size_t i = 0; i < sizeof nccls / sizeof *nccls; i++)
        taken += shim_nccl_env(nccls[i]) != NULL;
    taken += shim_table_path(1, path, sizeof path);
    const shim_real_t *real = shim_real();
    taken += real && strstr(real->path, "shunt-secure-") != NULL;
    shim_warn("a line");
    shim_count_taken(ALG_ALL_REDUCE, 0, 1, &choice);
    shim_trace_call_t call = {.start_ns = shim_trace_begin(), .function = "none"};
    if (call.start_ns != 0)
        shim_trace_end(&call);
    taken += call.start_ns != 0;
    (void)shim_range_begin("none", 1); /* opens no tool's library */
    printf("%s: %d taken, the real NCCL: %s\n", secure ? "secure" : "plain", taken, real ? real->path : "none");
    if (secure)
        exit(taken == 0 ? 0 : 1); /* so that files written at exit are written */
    exit(taken == 0 ? 1 : NOT_SECURE);
}

/* ---- Around it ----------------------------------------------------------------------- */

static const char *in_folder(const char *name)
{
    static char paths[16][PATH_MAX];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

static void make_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
    char bytes[65536];
    int source = open(from, O_RDONLY | O_CLOEXEC), target = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    assert_true(source >= 0 && target >= 0);
    for (ssize_t got; (got = read(source, bytes, sizeof bytes)) > 0;)
        assert_int_equal(write(target, bytes, (size_t)got), got);
    assert_int_equal(fchmod(target, mode), 0);
    close(source);
    close(target);
}

static void make_folder(void)
{
    static const char *const folders[] = {
        "bin",          ".config",           ".config/shunt",        "lib", "lib/python3.11", "outer", "wheel",
        "wheel/nvidia", "wheel/nvidia/nccl", "wheel/nvidia/nccl/lib"};
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0755), 0);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(in_folder(folders[i]), 0755), 0);
    /* The wheels of <folder>/bin/python3 are in <folder>/lib/python3.11/site-packages. */
    assert_int_equal(symlink("../../wheel", in_folder("lib/python3.11/site-packages")), 0);
    make_file(".config/shunt/shunt.conf", "SHUNT_DETERMINISTIC=1\n");
    make_file(".nccl.conf", "NCCL_PROTO=Simple\n");
    make_file("named.conf", "NCCL_PROTO=LL\n");
    copy_file(HOSTILE_LIBRARY, in_folder("wheel/nvidia/nccl/lib/libnccl.so.2"), 0755);
    /* Named like Python interpreters, for which wheels come before the system's folders. */
    copy_file("/proc/self/exe", in_folder("bin/python-plain"), 0755);
    copy_file("/proc/self/exe", in_folder("bin/python-secure"), 04755);
    assert_int_equal(chmod(in_folder("outer"), 0777), 0); /* what the copies write */
}

/* Run a copy as the other user; returns its exit status. */
static int run_copy(const char *copy, const char *device)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char *const arguments[] = {"python3", "probe", NULL};
        unlink(in_folder("bin/python3"));
        if (symlink(in_folder(copy), in_folder("bin/python3")) != 0 || setgid(STRANGER) != 0 || setuid(STRANGER) != 0)
            _exit(1);
        clearenv();
        setenv("HOME", folder, 1);
        setenv("XDG_CONFIG_HOME", in_folder(".config"), 1);
        setenv("XDG_CACHE_HOME", folder, 1);
        setenv("VIRTUAL_ENV", folder, 1);
        setenv("PYTHONPATH", in_folder("wheel"), 1);
        setenv("LD_LIBRARY_PATH", in_folder("wheel/nvidia/nccl/lib"), 1);
        setenv("CUDA_HOME", in_folder("wheel/nvidia/nccl"), 1);
        setenv("CUDA_PATH", in_folder("wheel/nvidia/nccl"), 1);
        if (device[0] != '\0')
            setenv("SHUNT_DEVICE", device, 1);
        setenv("SHUNT_NCCL_PATH", device[0] != '\0' ? in_folder("wheel/nvidia/nccl/lib") : "", 1);
        setenv("SHUNT_CACHE_DIR", folder, 1);
        setenv("SHUNT_TABLE", in_folder("named.conf"), 1);
        setenv("SHUNT_ALGO", "twoshot", 1);
        setenv("SHUNT_DEBUG", "trace", 1);
        setenv("SHUNT_DEBUG_FILE", in_folder("outer/log"), 1);
        setenv("SHUNT_STATS", in_folder("outer/statistics"), 1);
        setenv("SHUNT_TRACE", in_folder("outer/trace"), 1);
        setenv("NCCL_CONF_FILE", in_folder("named.conf"), 1);
        setenv("NCCL_ALGO", "Ring", 1);
        setenv("NCCL_HOSTID", "elsewhere", 1);
        setenv("NCCL_MAX_CTAS", "3", 1);
        setenv("NVTX_INJECTION64_PATH", in_folder("wheel/nvidia/nccl/lib/libnccl.so.2"), 1);
        setenv("HOSTILE_MARK", in_folder("outer/loaded"), 1);
        execv(in_folder("bin/python3"), arguments);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int written(void)
{
    static const char *const names[] = {"outer/log", "outer/statistics", "outer/trace", "outer/loaded"};
    int count = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (access(in_folder(names[i]), F_OK) == 0)
            print_message("written: %s\n", names[i]);
        count += unlink(in_folder(names[i])) == 0;
    }
    return count;
}

static void the_environment_is_not_read(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip_because("a setuid program of another user's needs root");
    make_folder();
    /* The attack works where it may: by name, and by a Python's search path. */
    assert_int_equal(run_copy("bin/python-plain", "cpu"), NOT_SECURE);
    assert_int_equal(written(), 4);
    assert_int_equal(run_copy("bin/python-plain", ""), NOT_SECURE);
    assert_int_equal(written(), 4);
    int first = run_copy("bin/python-secure", "cpu"), files = written();
    int second = run_copy("bin/python-secure", "");
    files += written();
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
    if (first == NOT_SECURE)
        skip_because("/tmp gives a setuid program no rights");
    assert_int_equal(first, 0);
    assert_int_equal(second, 0);
    assert_int_equal(files, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_environment_is_not_read)};
    if (argc == 2 && strcmp(argv[1], "probe") == 0)
        return probe();
    return cmocka_run_group_tests_name("secure", tests, NULL, NULL);
}
