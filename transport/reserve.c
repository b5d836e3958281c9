/* SPDX-License-Identifier: Apache-2.0 */
/* reserve.c - a file above the limit on file sizes (ulimit -f), also one in memory, would end the program by
 * SIGXFSZ. */
#define _GNU_SOURCE
#include "transport/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

int net_reserve(int fd, size_t bytes)
{
    struct rlimit limit;
    int error;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return -EFBIG;
    do {
        error = posix_fallocate(fd, 0, (off_t)bytes);
    } while (error == EINTR);
    return -error;
}
