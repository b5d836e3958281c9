/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only the parent of a measurement's ranks decides when they have waited too long: a rank's own limit would end calls
 * whose peer is delayed by a busy machine. A signal does not end the parent's wait for a separate process.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/bench/bench.h"

enum { RANKS = 2 };

/* ---- The parts of the command that this file does not need ---- */

bool tool_open_shunt(tool_shunt_t *shunt, tool_nccl_t *nccl, char error[TOOL_ERROR_BYTES])
{
    (void)shunt, (void)nccl, (void)error;
    return false;
}

void tool_gpus_read(tool_gpus_t *gpus)
{
    (void)gpus;
}

void tool_floor_measure(uint32_t gpus, tool_floor_t *floor)
{
    (void)gpus, (void)floor;
}

/* ---- The tests ---- */

static bool has_limit(const void *job, bench_shared_t *shared, uint32_t rank, int rows)
{
    (void)shared, (void)rank, (void)rows;
    const char *limit = getenv("SHUNT_TIMEOUT_MS");
    return limit != NULL && strcmp(limit, job) == 0;
}

static bool take(void *context, const void *row)
{
    (void)context, (void)row;
    return true;
}

static bool ranks_have(const char *limit)
{
    bench_shared_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    bench_family_t family = {.command = "test", .shared = shared, .ranks = RANKS};
    const bool have = bench_family_run(&family, has_limit, limit, 1, take, NULL);
    munmap(shared, sizeof *shared);
    return have;
}

static void ranks_wait_as_long_as_the_parent(void **state)
{
    (void)state;
    unsetenv("SHUNT_TIMEOUT_MS");
    assert_true(ranks_have("0"));
    setenv("SHUNT_TIMEOUT_MS", "500", 1); /* unless the user says otherwise */
    assert_true(ranks_have("500"));
}

static volatile sig_atomic_t interrupts;

static void count_interrupt(int signal)
{
    (void)signal;
    interrupts = interrupts + 1;
}

static void interrupt_parent(void *parent)
{
    for (int i = 0; i < 50; i++) {
        kill(*(pid_t *)parent, SIGINT);
        usleep(1000);
    }
}

/* A second Ctrl-C while `shunt tune` looks for the place of its table must not lose what was measured. */
static void an_interrupt_ends_no_wait(void **state)
{
    (void)state;
    const struct sigaction action = {.sa_handler = count_interrupt};
    pid_t parent = getpid();
    assert_int_equal(sigaction(SIGINT, &action, NULL), 0);
    assert_true(bench_apart("test", "interrupting", interrupt_parent, &parent));
    assert_true(interrupts > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_wait_as_long_as_the_parent),
                                       cmocka_unit_test(an_interrupt_ends_no_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
