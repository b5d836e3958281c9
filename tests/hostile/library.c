/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - looks like a real NCCL until it is opened, and leaves a mark when its code has run. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int ncclCommInitRank(void);
int ncclGetVersion(int *version);

__attribute__((constructor)) static void leave_mark(void)
{
    const char *mark = getenv("HOSTILE_MARK");
    int fd = mark ? open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0)
        close(fd);
}

int ncclCommInitRank(void)
{
    return 1;
}

int ncclGetVersion(int *version)
{
    *version = 0;
    return 1;
}
