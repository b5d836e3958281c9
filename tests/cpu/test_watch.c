/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `shunt watch` as a program: it prints the ranks of a node's processes, the rank to blame first; a killed reader or a
 * dead process has no effect on others.
 */
#include "cpu.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { TEXT_BYTES = 1 << 20, COMMUNICATORS = 12, COUNT = 64 };

/* Read the output of a command; returns its exit status. */
static int output_of(const char *command, char text[TEXT_BYTES])
{
    FILE *pipe = popen(command, "r");
    CHECK(pipe);
    const size_t size = fread(text, 1, TEXT_BYTES - 1, pipe);
    text[size] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static ncclResult_t sum(ncclComm_t comm)
{
    float in[COUNT] = {0}, out[COUNT];
    return ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, NULL);
}

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

/* The last rank makes its call after rank 0 has seen in `shunt watch` that the others wait for it. */
static void many_body(ranks_t *ranks)
{
    static char text[TEXT_BYTES];
    const int last = ranks->nranks - 1;
    char expected[96];
    ncclComm_t comm[COMMUNICATORS] = {ranks_init(ranks)};
    for (int i = 1; i < COMMUNICATORS; i++)
        CHECK_NCCL(ncclCommSplit(comm[0], 0, ranks->rank, &comm[i], NULL));
    for (int i = 0; i < COMMUNICATORS; i++)
        CHECK_NCCL(sum(comm[i]));
    atomic_store(&ranks->shared->words[ranks->rank], (uint64_t)getpid());
    ranks_barrier(ranks);
    if (ranks->rank == last) {
        snprintf(expected, sizeof expected, "{\"rank\": %d, \"pid\": %d, \"cause\": \"not-called\"", last,
                 (int)getpid());
        for (int naps = 0; naps < 600 && !strstr(text, expected); naps++) {
            const double begin = ranks_seconds();
            CHECK(output_of(TOOL " watch --all --once --json", text) == 0);
            if (strstr(text, expected))
                printf("%d ranks with %d communicators: %.3f s\n", ranks->nranks, COMMUNICATORS,
                       ranks_seconds() - begin);
            usleep(100000);
        }
        CHECK(strstr(text, expected));
        for (int r = 0; r < ranks->nranks; r++) {
            snprintf(expected, sizeof expected, "{\"rank\": %d, \"pid\": %d, \"device\": -1, \"state\": \"attached\"",
                     r, (int)atomic_load(&ranks->shared->words[r]));
            CHECK(count_of(text, expected) == COMMUNICATORS);
        }
        CHECK(strstr(text, "\"waits_in\": null, \"waited_ms\": null"));
        /* Other tests' communicators may be there, too. */
        CHECK(count_of(text, "\"waits_in\": ") >= ranks->nranks * COMMUNICATORS);
        CHECK(output_of(TOOL " watch --once", text) == 0);
        CHECK(strstr(text, "all-reduce #2 of 64 fp32 has waited "));
        snprintf(expected, sizeof expected, "rank %d (pid %d): it has not made this call", last, (int)getpid());
        CHECK(strstr(text, expected));
    }
    CHECK_NCCL(sum(comm[3]));
    for (int i = COMMUNICATORS - 1; i >= 0; i--)
        CHECK_NCCL(ncclCommDestroy(comm[i]));
}

static void all_ranks_are_shown_and_who_is_late(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 8, many_body, NULL);
}

/* Calls are not disturbed by a reader that is killed at any time. */
static void killed_reader_body(ranks_t *ranks)
{
    ncclComm_t comm = ranks_init(ranks);
    for (int i = 0; i < scaled(20); i++) {
        pid_t child = 0;
        if (ranks->rank == 0 && (child = fork()) == 0) {
            CHECK(freopen("/dev/null", "w", stdout));
            execl(TOOL, TOOL, "watch", NULL);
            _exit(1);
        }
        for (int k = 0; k < 200; k++)
            CHECK_NCCL(sum(comm));
        if (child > 0) {
            kill(child, SIGKILL);
            CHECK(waitpid(child, NULL, 0) == child);
        }
    }
    CHECK_NCCL(ncclCommDestroy(comm));
}

static void a_killed_reader_harms_nobody(void **state)
{
    (void)state;
    cpu_run(RANKS_PROCESSES, 2, killed_reader_body, NULL);
}

static void a_process_without_communicators_has_none(void **state)
{
    (void)state;
    static char text[TEXT_BYTES];
    char command[512];
    snprintf(command, sizeof command, "%s watch %d --once 2>&1", TOOL, (int)getpid());
    assert_int_equal(output_of(command, text), 1);
    assert_non_null(strstr(text, "has no record"));
    assert_int_equal(output_of(TOOL " watch --nonsense 2>&1", text), 2);
    assert_int_equal(output_of(TOOL " watch --help", text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_are_shown_and_who_is_late),
        cmocka_unit_test(a_killed_reader_harms_nobody),
        cmocka_unit_test(a_process_without_communicators_has_none),
    };
    cpu_limit(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
