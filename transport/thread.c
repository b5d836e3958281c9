/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c - threads of this library inside a program that is not ours. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
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

int net_thread_id(void)
{
    return (int)syscall(SYS_gettid); /* glibc 2.28 has no gettid */
}
