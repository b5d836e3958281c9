/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c - see transport.h. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "transport/transport.h"

int net_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t detached;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    if (!thread)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a new thread inherits the mask */
    const int error = -pthread_create(thread ? thread : &detached, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

void net_condition_make(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* glibc 2.28 has no pthread_cond_clockwait */
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int net_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t until_ns)
{
    const uint64_t second_ns = UINT64_C(1000000000);
    const struct timespec until = {(time_t)(until_ns / second_ns), (long)(until_ns % second_ns)};
    return -pthread_cond_timedwait(condition, mutex, &until);
}

uint64_t net_now_ns(void)
{
    struct timespec now = {0};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t net_thread_number(void)
{
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t number;
    if (!number)
        number = atomic_fetch_add(&threads, 1) + 1;
    return number;
}

int net_thread_id(void)
{
    return (int)syscall(SYS_gettid); /* glibc 2.28 has no gettid */
}
