/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exit_test.c - a process exits with live communicators: waiting kernels are ended, as CUDA's exit handler would
 * otherwise wait for them, and an abort during the exit frees nothing that other threads use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comms.h"
#include "shim/comm/stop.h"

static ncclComm_t comms[N];

static bool is_stopped(int rank)
{
    const shim_comm_t *comm = shim_comm_find(comms[rank]);
    return comm && __atomic_load_n(&alg_scratch_control(comm->scratch)->abort, __ATOMIC_ACQUIRE) != 0;
}

/* Wait for kernels as CUDA's exit handler does. CUDA was initialised before the communicators, so its handler runs
 * after Shunt's. */
static void wait_until_stopped(void)
{
    for (int r = 0; r < N; r++)
        for (int naps = 0; !is_stopped(r); naps++) {
            if (naps == 20000)
                _exit(1);
            usleep(1000);
        }
}

static void wait_for_stopped(void)
{
    wait_until_stopped();
    _exit(0);
}

static void wait_for_kernels(void)
{
    wait_until_stopped();
    const bool refuses = comms_poll_once(comms[0]) == ncclSystemError; /* no thread makes another call */
    _exit(refuses ? 0 : 2);
}

static void abort_one(void)
{
    const bool aborted = ncclCommAbort(comms[1]) == ncclSuccess && is_stopped(1);
    _exit(aborted && comms[1]->aborts == 0 && comms_poll(comms[1]) != ncclInternalError ? 0 : 3);
}

/* destroyed: another thread waits in the destroys, whose calls a dead peer holds up. */
static int status_of_exit(void (*handler)(void), bool destroyed)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        atexit(handler);
        fake_reset();
        comms_init(comms, N, comms_id());
        comms_expect(comms, N, SHIM_COMM_ATTACHED);
        for (int r = 0; destroyed && r < N; r++)
            shim_comm_close(shim_comm_acquire(comms[r]));
        exit(9);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void waiting_kernels_leave(void **state)
{
    (void)state;
    assert_int_equal(status_of_exit(wait_for_kernels, false), 0);
}

static void kernels_of_destroyed_ones_leave(void **state)
{
    (void)state;
    assert_int_equal(status_of_exit(wait_for_stopped, true), 0);
}

static void an_abort_is_not_forwarded(void **state)
{
    (void)state;
    assert_int_equal(status_of_exit(abort_one, false), 0);
}

int main(void)
{
    setenv("SHUNT_DEBUG", "none", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_kernels_leave),
                                       cmocka_unit_test(kernels_of_destroyed_ones_leave),
                                       cmocka_unit_test(an_abort_is_not_forwarded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
