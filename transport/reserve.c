/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c - a file above `ulimit -f`, even one in memory, would end the program by SIGXFSZ. Signals are blocked:
 * before Linux 6.11 each makes tmpfs undo all pages, so a profiler's timer could keep it from ending. */
#define _GNU_SOURCE
#include "transport/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

int net_reserve(int fd, size_t bytes)
{
    struct rlimit limit;
    sigset_t all, before;
    int error;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return -EFBIG;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do {
        error = posix_fallocate(fd, 0, (off_t)bytes);
    } while (error == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}
