/* SPDX-License-Identifier: Apache-2.0 */
/*
 * real_child.c - a forked child that exits must not end a thread of its parent.
 *
 * From 2.24 on NCCL's exit handler ends its RAS thread by a message through a pipe. A child has both, but no thread:
 * its exit() ends the parent's thread, and the parent crashes at its next communicator. So a child's write end becomes
 * /dev/null. Only NCCL's symbol table names the variable with the descriptors; nothing is done for a stripped library.
 */
#include <string.h>
#include <sys/stat.h>

#include "shim/real/real_parts.h"
#include "transport/transport.h"

static const void *ras_pipe; /* int[2]; NULL: not found */

void shim_child_find(const char *path, const struct link_map *library)
{
    uint64_t address = 0;
    if (shim_elf_find(path, "_ZL19rasNotificationPipe", 2 * sizeof(int), &address))
        ras_pipe = (const void *)(library->l_addr + address);
}

void shim_child_begins(void)
{
    int end[2];
    struct stat from, to;
    if (!ras_pipe)
        return;
    memcpy(end, ras_pipe, sizeof end);
    /* Both are -1 before the first communicator. */
    if (end[0] < 0 || end[1] < 0 || fstat(end[0], &from) != 0 || fstat(end[1], &to) != 0 || !S_ISFIFO(to.st_mode) ||
        from.st_dev != to.st_dev || from.st_ino != to.st_ino)
        return;
    net_mute(end[1]);
}
