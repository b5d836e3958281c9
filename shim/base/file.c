/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - creates new files with O_EXCL, so no other process has put them there. An existing file must belong to the
 * user and have one link. */
#define _GNU_SOURCE
#include "shim/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/transport.h"

/* Returns a duplicate of the descriptor if `path` is /dev/stdout or /dev/stderr, which are links; else -1. */
static int file_standard(const char *path)
{
    int standard = strcmp(path, "/dev/stderr") == 0   ? STDERR_FILENO
                   : strcmp(path, "/dev/stdout") == 0 ? STDOUT_FILENO
                                                      : -1;
    return standard < 0 ? -1 : net_descriptor(fcntl(standard, F_DUPFD_CLOEXEC, 0));
}

static const char *file_fault(int fd)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return strerror(errno);
    if (S_ISCHR(info.st_mode))
        return NULL;
    if (!S_ISREG(info.st_mode))
        return "not a file";
    if (info.st_uid != geteuid())
        return "another user's file";
    return info.st_nlink > 1 ? "the file has a second name (a hard link)" : NULL;
}

int shim_file_open(const char *path, int flags, const char **why)
{
    *why = NULL;
    int fd = file_standard(path);
    if (fd >= 0)
        return fd;
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; /* opening a pipe must not wait for its other end */
    fd = net_descriptor(open(path, flags | O_CREAT | O_EXCL, 0644));
    if (fd < 0 && errno == EEXIST) {
        fd = net_descriptor(open(path, flags));
        *why = fd >= 0 ? file_fault(fd) : NULL;
    }
    if (fd < 0) {
        *why = errno == ELOOP ? "a link" : strerror(errno);
        return -1;
    }
    if (*why) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK); /* writes to a slow terminal must wait, not fail */
    return fd;
}

int shim_file_stderr(void)
{
    const int flags = fcntl(STDERR_FILENO, F_GETFD);
    return flags >= 0 && !(flags & FD_CLOEXEC) ? STDERR_FILENO : -1;
}
