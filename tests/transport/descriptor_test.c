/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptor_test.c - descriptors in a program that has closed its own or the library's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "children.h"
#include "transport/memory.h"

typedef uint8_t offer_t[NET_OFFER_BYTES];

static void in_child(int (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(body());
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child && status == 0);
}

static void close_standard(void)
{
    for (int i = 0; i < 3; i++)
        close(i);
}

static bool standard_are_closed(void)
{
    return fcntl(0, F_GETFD) < 0 && fcntl(1, F_GETFD) < 0 && fcntl(2, F_GETFD) < 0;
}

static int moves(void)
{
    close_standard();
    const int made = memfd_create("one", 0);
    const int moved = net_descriptor(made);
    if (made > 2 || moved < 3 || !(fcntl(moved, F_GETFD) & FD_CLOEXEC) || !standard_are_closed())
        return 1;
    errno = EXDEV;
    return net_descriptor(moved) != moved || net_descriptor(-1) != -1 || errno != EXDEV;
}

static int memory_keeps_away(void)
{
    net_memory_t *memory;
    offer_t offer;
    close_standard();
    if (net_memory_create(NET_MEMORY_SHARED, 0, 4096, &memory, offer) != 0)
        return 1;
    return memory->descriptor < 3 || !standard_are_closed();
}

static int box_keeps_away(void)
{
    static const uint64_t token[2] = {1, 2};
    char name[NET_BOX_NAME_BYTES];
    net_box_t box;
    int sent, got;
    sent = memfd_create("one", 0);
    close_standard();
    if (net_box_open(&box, token, name) != 0 || box.socket < 3)
        return 1;
    if (net_box_send(&box, name, token, sent) != 0 || net_box_take(&box, token, &got) != 0)
        return 2;
    net_box_close(&box);
    return got < 3 || !standard_are_closed();
}

static void test_low_numbers(void **state)
{
    (void)state;
    in_child(moves);
    in_child(memory_keeps_away);
    in_child(box_keeps_away);
}

/* The program closes a descriptor of the library and opens a file that gets its number. */
static int take_over(int descriptor)
{
    close(descriptor);
    return dup2(STDERR_FILENO, descriptor) == descriptor;
}

static void test_only_own_are_closed(void **state)
{
    static const uint64_t token[2] = {3, 4};
    char name[NET_BOX_NAME_BYTES];
    net_memory_t *memory;
    offer_t offer;
    net_box_t box;
    (void)state;
    assert_int_equal(net_memory_create(NET_MEMORY_SHARED, 0, 4096, &memory, offer), 0);
    assert_int_equal(net_box_open(&box, token, name), 0);
    const int one = memory->descriptor, two = box.socket;
    assert_true(take_over(one) && take_over(two));
    net_memory_destroy(memory);
    net_box_close(&box);
    assert_true(fcntl(one, F_GETFD) >= 0 && fcntl(two, F_GETFD) >= 0);
    close(one);
    close(two);
}

/* ---- Writes ------------------------------------------------------------------------- */

static void broken_pipe(int ends[2])
{
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
}

static void broken_socket(int ends[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    close(ends[0]);
}

static void test_no_signal(void **state)
{
    int ends[2];
    sigset_t now;
    (void)state;
    for (int i = 0; i < 2; i++) {
        i == 0 ? broken_pipe(ends) : broken_socket(ends);
        net_write(ends[1], "x", 1);
        close(ends[1]);
    }
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
    assert_false(sigismember(&now, SIGPIPE));
}

/* A pending signal that the program has blocked, and will wait for, stays pending. */
static void test_a_pending_signal_stays(void **state)
{
    int ends[2];
    sigset_t set, pending;
    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    broken_pipe(ends);
    net_write(ends[1], "x", 1);
    assert_true(sigpending(&pending) == 0 && !sigismember(&pending, SIGPIPE));
    assert_int_equal(raise(SIGPIPE), 0);
    net_write(ends[1], "x", 1);
    assert_true(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE));
    assert_int_equal(sigwaitinfo(&set, NULL), SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_low_numbers),
        cmocka_unit_test(test_only_own_are_closed),
        cmocka_unit_test(test_no_signal),
        cmocka_unit_test(test_a_pending_signal_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
