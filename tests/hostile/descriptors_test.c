/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptors_test.c - programs with unusual descriptors: the standard ones are closed, as in a daemon, or broken
 * pipes; all are closed after an init; the log's number is reused for a file of the program.
 *
 * With descriptor 2 closed, a rank can report a failure only by its exit status.
 */
#define _GNU_SOURCE
#include "../cpu/cpu.h"

#include "tests/support/skips.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

enum { VALUES = 40000, CALLS = 20 };
#ifdef __SANITIZE_THREAD__
enum { TRACED = false }; /* a close beside the trace's thread is a race of the program */
#else
enum { TRACED = true };
#endif
static const char *const talkative[] = {"SHUNT_DEBUG", "INFO", "SHUNT_STATS", "1", "SHUNT_SCRATCH_BYTES", "4M", NULL};
static const char *const quiet[] = {"SHUNT_SCRATCH_BYTES", "4M", NULL};

static void run(ranks_body_t body, const void *arg, const char *const *env)
{
    ranks_plan_t plan = {.shape = RANKS_PROCESSES, .nranks = 3, .body = body, .arg = arg, .env = env};
    assert_int_equal(ranks_run(&plan), 0);
}

static void right_sums(ranks_t *ranks, ncclComm_t comm)
{
    static int in[VALUES], out[VALUES];
    const int n = ranks->nranks;
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < VALUES; i++) {
            in[i] = ranks->rank + i + call;
            out[i] = -1;
        }
        CHECK_NCCL(ncclAllReduce(in, out, VALUES, ncclInt, ncclSum, comm, NULL));
        for (int i = 0; i < VALUES; i++)
            CHECK(out[i] == n * (i + call) + n * (n - 1) / 2);
    }
}

static void inits_and_sums(ranks_t *ranks)
{
    for (int i = 0; i < 3; i++) {
        ncclComm_t comm = ranks_init(ranks);
        right_sums(ranks, comm);
        CHECK_NCCL(ncclCommDestroy(comm));
    }
}

static bool is_closed(int descriptor)
{
    return fcntl(descriptor, F_GETFD) < 0 && errno == EBADF;
}

/* ---- The standard descriptors ----------------------------------------------------------- */

static void closed_body(ranks_t *ranks)
{
    const int which = *(const int *)ranks->arg;
    for (int i = 0; i < 3; i++)
        if (which >> i & 1)
            close(i);
    ncclComm_t comm = ranks_init(ranks);
    for (int i = 0; i < 3; i++)
        CHECK(!(which >> i & 1) || is_closed(i));
    right_sums(ranks, comm);
    CHECK_NCCL(ncclCommDestroy(comm));
    inits_and_sums(ranks);
}

static void closed_standard_descriptors(void **state)
{
    (void)state;
    for (int which = 1; which < 8; which++)
        run(closed_body, &which, talkative);
}

/* The log reaches its file with closed descriptors: the ranks' settings differ, which is logged at the default
 * level. */
static void at_the_default_level_body(ranks_t *ranks)
{
    const int which = 4;
    char blocks[16];
    ranks->arg = &which;
    snprintf(blocks, sizeof(blocks), "%d", 4 + ranks->rank);
    setenv("SHUNT_MAX_CTAS", blocks, 1);
    closed_body(ranks);
}

static void only_on_one_node(void)
{
    if (!getenv("RANKS_PER_NODE"))
        return;
    skip_because("only ranks of one node");
}

static void closed_stderr_at_the_default_level(void **state)
{
    (void)state;
    only_on_one_node(); /* between nodes such settings are an error */
    run(at_the_default_level_body, NULL, quiet);
}

/* A log into a pipe or a socket without a reader does not end the program. */
static void unread_body(ranks_t *ranks)
{
    int ends[2];
    CHECK(pipe(ends) == 0 && signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    inits_and_sums(ranks);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE));
}

static void unread_stderr(void **state)
{
    (void)state;
    run(unread_body, NULL, talkative);
}

/* ---- The program's own files --------------------------------------------------------------- */

static char folder[] = "/tmp/shunt-descriptors-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static int own_file(ranks_t *ranks, int number)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/own.%d.%d", folder, ranks->rank, number);
    int made = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(made >= 0);
    return made;
}

static bool is_empty(int descriptor)
{
    struct stat info;
    return fstat(descriptor, &info) == 0 && info.st_size == 0;
}

/* The library does not write to a file of the program with number 2, which unlike a stderr is close-on-exec, as Python
 * and Go open files. */
static void number_two_body(ranks_t *ranks)
{
    close(STDERR_FILENO);
    int made = own_file(ranks, 0);
    CHECK(made == STDERR_FILENO);
    inits_and_sums(ranks);
    CHECK(is_empty(made));
}

static void a_file_with_stderrs_number(void **state)
{
    (void)state;
    run(number_two_body, NULL, talkative);
}

/* Calls work after a program has closed all descriptors, also the library's, and opened its own, as a daemon does. */
static void closes_all_body(ranks_t *ranks)
{
    enum { MOST = 64 };
    int closed = 0, own[MOST];
    char trace[64];
    snprintf(trace, sizeof(trace), "%s/trace.%%p", folder);
    if (TRACED)
        setenv("SHUNT_TRACE", trace, 1);
    setenv("SHUNT_DEBUG_FILE", ranks->arg, 1);
    inits_and_sums(ranks);
    for (int i = 3; i < MOST; i++)
        closed += close(i) == 0;
    for (int i = 0; i < closed; i++)
        own[i] = own_file(ranks, i);
    inits_and_sums(ranks);
    for (int i = 0; i < closed; i++)
        CHECK(is_empty(own[i]));
}

static uint32_t lines_of(const char *name, const char *word)
{
    char line[4096];
    uint32_t lines = 0;
    FILE *in = fopen(name, "r");
    assert_non_null(in);
    while (fgets(line, sizeof(line), in))
        lines += strstr(line, word) != NULL;
    fclose(in);
    return lines;
}

static void the_logs_number_reused(void **state)
{
    char name[64];
    (void)state;
    only_on_one_node(); /* between nodes it closes the sockets, too */
    snprintf(name, sizeof(name), "%s/log", folder);
    run(closes_all_body, name, talkative);
    /* A line of each rank for each of the six communicators. */
    assert_true(lines_of(name, "attached") >= 18);
    assert_int_equal(lines_of(name, "the program has closed it"), TRACED ? 3 : 0);
}

int main(void)
{
    cpu_limit(60);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_standard_descriptors),
        cmocka_unit_test(closed_stderr_at_the_default_level),
        cmocka_unit_test(unread_stderr),
        cmocka_unit_test(a_file_with_stderrs_number),
        cmocka_unit_test(the_logs_number_reused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
