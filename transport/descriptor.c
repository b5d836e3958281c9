/* SPDX-License-Identifier: Apache-2.0 */
/* descriptor.c - see transport.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "transport/transport.h"

int net_descriptor(int made)
{
    if (made < 0 || made > STDERR_FILENO)
        return made;
    const int moved = fcntl(made, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int error = errno;
    close(made);
    errno = error;
    return moved;
}

void net_mute(int descriptor)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0 || nowhere == descriptor)
        return;
    (void)dup2(nowhere, descriptor);
    close(nowhere);
}

net_mark_t net_mark(int descriptor)
{
    struct stat info;
    return fstat(descriptor, &info) == 0 ? (net_mark_t){info.st_dev, info.st_ino} : (net_mark_t){0, 0};
}

bool net_means(int descriptor, const net_mark_t *mark)
{
    const net_mark_t now = net_mark(descriptor);
    return now.inode != 0 && now.inode == mark->inode && now.device == mark->device;
}

void net_close(int descriptor, const net_mark_t *mark)
{
    if (net_means(descriptor, mark))
        close(descriptor);
}

/* SIGPIPE is sent to the writing thread; one that was pending before belongs to the program. */
void net_write(int descriptor, const void *bytes, size_t size)
{
    const struct timespec none = {0};
    sigset_t broken, before, pending;
    sigemptyset(&pending);
    sigpending(&pending);
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    if (write(descriptor, bytes, size) < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&broken, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
